#!/bin/bash
# Training on two nodes of a real Slurm that is killed, signalled, cancelled and requeued, and goes on from its checkpoint each
# time: slurm_jobs_test.sh BIN. Skipped (77) where slurm_cluster.sh cannot make a cluster.
set -euo pipefail
[ "${1:-}" = --on-cluster ] || exec "$(dirname "$0")/slurm_cluster.sh" "$0" --on-cluster "$@"
loom=$2/loom
# shellcheck source=tests/network/slurm_functions.sh
source "$(dirname "$0")/slurm_functions.sh"

for ((i = 0; i < 800; i++)); do echo "line $i of $((i * 7 % 10))"; done > "$folder/text.txt"
"$loom" tokenize "$folder/text.txt" --out "$folder/data" > "$folder/output"
cat > "$folder/config.json" << END
{"model": {"width": 32, "layers": 2},
 "data": {"folder": "$folder/data", "sequence_length": 16, "global_batch": 8},
 "parallel": {"threads": 1},
 "optimizer": {"schedule": "constant"},
 "run": {"steps": 1000000, "out": "$folder/run", "checkpoint_every": 50}}
END
train=("$loom" train "$folder/config.json")
cat > "$folder/job.sh" << END
#!/bin/bash
echo "begun \${SLURM_RESTART_COUNT:-0}"
srun ${train[*]} "\$@"
echo "srun ended with \$?"
END

# The step of the newest complete checkpoint, which has a manifest; 0 if there is none.
latest() {
  local name
  name=$(cd "$folder/run/checkpoints" 2> /dev/null && ls -d step-*/manifest.json 2> /dev/null | sort | tail -1) || true
  name=${name%/*}
  name=${name##*-}
  echo $((10#${name:-0}))
}
has_passed() { [ "$(latest)" -gt "$1" ]; }
has_left() { ! squeue -h -j "$1" 2> /dev/null | grep -q .; }

# Slurm lets a requeued job wait for two minutes, unless it is told otherwise.
has_begun_again() { scontrol update "JobId=$1" StartTime=now; grep -q "begun 1" "$folder/output"; }

before=0
wait_for_checkpoint() { wait_until 60 "a checkpoint beyond step $before" has_passed "$before"; }

# Whether the output tells of a checkpoint of the very step at which the run was asked to stop.
expect_stopped() {
  local stopped
  stopped=$(sed -n 's/.*stopped after step \([0-9]*\) of.*/\1/p' "$folder/output" | tail -1)
  [ -n "$stopped" ] || fail "the run does not say where it stopped"
  [ "$(latest)" = "$stopped" ] || fail "no checkpoint of step $stopped, where the run stopped"
  before=$stopped
}
expect_resumed() { grep -q "resumed after step $before\$" "$folder/output" || fail "not resumed after step $before"; }

# The time limit is looked at every half minute: this job waits for that beside the others.
limited=$(sbatch --parsable -N1 -n1 -t 1 --signal=TERM@50 -o "$folder/limited" "$folder/job.sh" "--run.out=$folder/limited-run")

echo "== a killed task"
srun -N2 -n2 bash -c "echo \$\$ > $folder/pid.\$SLURM_PROCID; exec ${train[*]} 2> $folder/errors.\$SLURM_PROCID" > "$folder/output" 2>&1 &
job=$!
wait_for_checkpoint
kill -9 "$(< "$folder/pid.1")"
code=0
wait $job || code=$?
[ $code -ne 0 ] || fail "srun says that all is well"
names_rank_1 || fail "rank 0 does not name the dead rank"
before=$(latest)

echo "== scancel --signal=TERM"
job=$(sbatch --parsable -N2 -n2 -o "$folder/output" "$folder/job.sh")
wait_for_checkpoint
expect_resumed
scancel --signal=TERM "$job"
wait_until 60 "the job's end" has_left "$job"
grep -q "srun ended with 143" "$folder/output" || fail "srun must end with 143"
expect_stopped

echo "== requeue"
job=$(sbatch --parsable -N2 -n2 --open-mode=append -o "$folder/output" "$folder/job.sh")
wait_for_checkpoint
expect_resumed
scontrol requeue "$job"
wait_until 60 "the job's second beginning" has_begun_again "$job"
expect_stopped
wait_for_checkpoint
expect_resumed

echo "== scancel"
scancel "$job"
wait_until 60 "the job's end" has_left "$job"
expect_stopped

echo "== to the end, after all of that"
srun -N2 -n2 "${train[@]}" --run.steps=$((before + 10)) > "$folder/output" 2>&1 || fail "the last run ended with $?"
expect_resumed
[ -e "$folder/run/model/model.safetensors" ] || fail "no model"

echo "== --signal before the time limit"
wait_until 90 "the job's end" has_left "$limited"
cp "$folder/limited" "$folder/output"
grep -q "stopped after step" "$folder/output" || fail "the run was not told that its time is nearly over"
grep -q "srun ended with 143" "$folder/output" || fail "srun must end with 143"
