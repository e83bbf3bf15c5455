#!/bin/bash
# below_byte_pairs.sh FILE: whether the model in what `loom eval --baseline` printed predicts a byte better than byte pairs do. Of the two
# losses in nats a byte the model's comes first. Ends with 1 and a sentence if it does not.
set -uo pipefail
grep -oE '[0-9.]+ nats a byte' "$1" | awk '
  { loss[NR] = $1 }
  END {
    if (NR != 2) {
      print "expected the losses of a model and of byte pairs, in nats a byte, and found " NR + 0
      exit 1
    }
    if (loss[1] + 0 < loss[2] + 0) exit 0
    print "the model reaches " loss[1] " nats a byte, must be below the " loss[2] " of byte pairs"
    exit 1
  }' >&2
exit "${PIPESTATUS[1]}"
