#!/bin/sh
# Everything that is to be measured on a GPU, in one command that needs no network: see docs/results/gpu.md, "Measuring on a GPU".
#   perf/gpu/quarter_hour.sh --stage prepare      before: builds the programs and collects them in build/gpu-kit.tar.xz
#   perf/gpu/quarter_hour.sh --out DIR            on the machine with the GPU: results.jsonl, output.log and report.md in DIR
#   perf/gpu/quarter_hour.sh --fake --out DIR     the same on the tests' driver, where there is no GPU
exec python3 -B "$(dirname "$0")/quarter_hour.py" "$@"
