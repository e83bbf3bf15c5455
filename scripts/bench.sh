#!/bin/bash
# Measures: every benchmark program of the build, then the perf tools over all sizes at 2 ranks on one node and 4 ranks on 2.
# Sizes: BENCH_MAX (256M) is the largest.
set -euo pipefail
bin=$1/bin
max=${BENCH_MAX:-256M}

for benchmark in "$bin"/*_bench; do
  if [ -x "$benchmark" ]; then
    echo "== $(basename "$benchmark")"
    "$benchmark"
  fi
done
for layout in "2 1" "4 2"; do
  read -r ranks nodes <<< "$layout"
  for collective in all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv; do
    echo "== ${collective}_perf, $ranks ranks on $nodes node(s)"
    "$bin/weft_run" -n "$ranks" --nodes "$nodes" --no-label "$bin/${collective}_perf" -b 8 -e "$max" -f 4
  done
done
