#!/bin/bash
# demo_loom.sh BUILD: trains a small GPT on real text for a minute or two, over 4 ranks as 2 nodes, each half of them sharing one
# copy of the model's state; compares it with what a model of byte pairs reaches, which it must beat, and lets it write a paragraph.
set -euo pipefail
build=$1 bin=$1/bin demo=$1/demo
mkdir -p "$demo"
"$(dirname "$0")/demo_text.sh" "$demo/text.txt"
[ -f "$demo/data/dataset.json" ] || "$bin/loom" tokenize "$demo/text.txt" --out "$demo/data"
rm -rf "$demo/run"
cat > "$demo/config.json" << END
{
  "model": {"width": 128, "layers": 4, "heads": 4},
  "data": {"folder": "$demo/data", "sequence_length": 128, "global_batch": 16},
  "parallel": {"sharded_data_parallel_degree": 2, "threads": 1},
  "optimizer": {"learning_rate": 2e-3, "final_rate": 2e-4, "warmup_steps": 40},
  "run": {"out": "$demo/run", "steps": ${LOOM_DEMO_STEPS:-500}, "evaluate_every": 100, "checkpoint_every": 250}
}
END
echo
echo "$ $bin/loom plan $demo/config.json -n 4 --ranks-per-node 2"
"$bin/loom" plan "$demo/config.json" -n 4 --ranks-per-node 2
echo
echo "$ $bin/weft_run -n 4 --nodes 2 --no-label $bin/loom train $demo/config.json"
"$bin/weft_run" -n 4 --nodes 2 --no-label --timeout 900 "$bin/loom" train "$demo/config.json" > "$demo/train.log"
grep -E 'parameters in' "$demo/train.log"
grep -E '^step ' "$demo/train.log" | awk 'NR == 1 || NR % 50 == 0'
echo
echo "$ $bin/loom eval $demo/run/model $demo/data --batches 160 --baseline"
"$bin/loom" eval "$demo/run/model" "$demo/data" --batches 160 --baseline | tee "$demo/eval.log"
"$(dirname "$0")/below_byte_pairs.sh" "$demo/eval.log"
echo
echo "$ $bin/loom sample $demo/run/model --prompt 'And the LORD said' --tokens 400"
"$bin/loom" sample "$demo/run/model" --prompt "And the LORD said" --tokens 400
echo
echo "The report is $demo/run/report.html; the model, for transformers too, is $demo/run/model."
