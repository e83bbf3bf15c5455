#!/bin/bash
# Measures: bench.sh BUILD compares Weft with the peers in what fits into BENCH_MINUTES (10), and leaves BUILD/bench.html,
# .json and .md. bench.sh --layers BUILD runs the benchmarks of single layers instead, which know no peers.
set -euo pipefail

if [ "$1" = --layers ]; then
  for benchmark in "$2"/bin/*_bench; do
    echo "== $(basename "$benchmark")"
    "$benchmark"
  done
  exit
fi

build=$1
scripts/deps.sh --peers || echo "Some peers cannot be installed here; the comparison leaves them out." >&2
perf/compare.py --build "$build" --minutes "${BENCH_MINUTES:-10}" \
  --scenarios "${BENCH_SCENARIOS:-shm2,shm4,shm8,tcp2,tcp4,cluster4,cluster8,startup}" \
  --json "$build/bench.json" --html "$build/bench.html" | tee "$build/bench.md"
echo "Charts: $build/bench.html"
