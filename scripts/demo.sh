#!/bin/bash
# Shows that it works: three collectives over 4 ranks as 2 nodes on this machine, every result checked.
set -euo pipefail
bin=$1/bin

echo "Weft: 4 ranks on this machine ($(nproc) cores) as 2 nodes of 2: shared memory inside a node, the network between."
for collective in all_reduce all_gather reduce_scatter; do
  echo
  echo "$ $bin/weft_run -n 4 --nodes 2 --no-label $bin/${collective}_perf -b 8 -e 16M -f 8"
  "$bin/weft_run" -n 4 --nodes 2 --no-label --timeout 240 "$bin/${collective}_perf" -b 8 -e 16M -f 8
done
echo
echo "All results are right. More: $bin/all_reduce_perf --help, $bin/weft_run --help"

if [ -x "$bin/loom" ]; then
  echo
  echo "Loom, the training engine, over the same: a small GPT on real text."
  "$(dirname "$0")/demo_loom.sh" "$1"
fi
