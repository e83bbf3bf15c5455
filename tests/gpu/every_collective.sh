#!/bin/bash
# Every collective on GPU memory, results checked, by ranks that share a device as one node and as two:
# every_collective.sh FOLDER RANKS [COLLECTIVE...]
# MOST is the largest size, 4M.
set -euo pipefail
programs=$1 ranks=$2
shift 2
[ $# -gt 0 ] || set -- all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv

for nodes in 1 2; do
  for collective in "$@"; do
    echo "== $collective, $ranks ranks, $nodes nodes"
    "$programs/weft_run" -n "$ranks" --nodes "$nodes" --timeout 120 --no-label "$programs/${collective}_perf" --device cuda \
      -b 8 -e "${MOST:-4M}" -f 64 -n 2 -w 1
  done
done
