#!/bin/bash
# Ranks on two nodes of a real Slurm, started in each way that it has, with data checks: slurm_launch_test.sh BIN.
# Skipped (77) where slurm_cluster.sh cannot make a cluster.
set -euo pipefail
[ "${1:-}" = --on-cluster ] || exec "$(dirname "$0")/slurm_cluster.sh" "$0" --on-cluster "$@"
bin=$2
# shellcheck source=tests/network/slurm_functions.sh
source "$(dirname "$0")/slurm_functions.sh"
perf=("$bin/all_reduce_perf" -b 8 -e 64K -f 16 -n 3 -w 1)

# Runs a command, which must print the word of a perf tool that all results are right, of so many ranks.
right() {
  local ranks=$1
  shift
  timeout 60 "$@" > "$folder/output" 2>&1 || fail "$* ended with $?"
  grep -q "Out of bounds values : 0 OK" "$folder/output" || fail "$*: results are not right"
  [ "$(grep -c '^#  Rank' "$folder/output")" = "$ranks" ] || fail "$*: must have $ranks ranks"
}

for mpi in pmix pmi2 none; do
  if [ $mpi = pmix ] && ! srun --mpi=pmix true > "$folder/output" 2>&1; then
    echo "not tried: srun --mpi=pmix ($(head -1 "$folder/output"))"
    continue
  fi
  echo "== srun --mpi=$mpi"
  right 4 srun -N2 -n4 --mpi=$mpi "${perf[@]}"
  grep -q "on *n2 node  1" "$folder/output" || fail "no rank on the second node"
done

echo "== a batch script is one rank, and its steps are as many as srun is told"
cat > "$folder/job.sh" << END
#!/bin/bash
${perf[*]}
srun -n2 ${perf[*]}
END
sbatch --quiet --wait -N2 -n4 -o "$folder/batch" "$folder/job.sh" || { cat "$folder/batch"; exit 1; }
[ "$(grep -c '^#  Rank' "$folder/batch")" = 3 ] || { cat "$folder/batch"; exit 1; }
grep -q "this job of Slurm has 4 tasks, and srun starts them" "$folder/batch" || { cat "$folder/batch"; exit 1; }
right 1 salloc --quiet -n2 "${perf[@]}"

echo "== a killed task"
srun -N2 -n2 bash -c "echo \$\$ > $folder/pid.\$SLURM_PROCID; exec $bin/all_reduce_perf -b 64K -e 64K -n 100000000 -c 0 2> $folder/errors.\$SLURM_PROCID" \
  > "$folder/output" 2>&1 &
job=$!
wait_until 30 "ranks that have met" grep -q "^#  Rank  1" "$folder/output"
kill -9 "$(< "$folder/pid.1")"
code=0
wait $job || code=$?
[ $code -ne 0 ] || fail "srun says that all is well"
names_rank_1 || fail "rank 0 does not name the dead rank"

echo "== nodes whose names have no address"
echo "127.0.0.1 localhost" > "$SLURM_CLUSTER_HOSTS"
if WEFT_INIT_TIMEOUT_S=3 timeout 60 srun -N2 -n2 "${perf[@]}" > "$folder/output" 2>&1; then fail "srun without names says that all is well"; fi
grep -q "srun --mpi=pmix or --mpi=pmi2 needs no names, or set WEFT_ROOT=host:port" "$folder/output" ||
  fail "nothing says what needs no names"
grep -q "trying again for up to 3 s" "$folder/output" || fail "nothing says that names are waited for"
right 2 srun -N2 -n2 --mpi=pmi2 "${perf[@]}"
WEFT_ROOT=10.77.0.1:4711 right 2 srun -N2 -n2 "${perf[@]}"
