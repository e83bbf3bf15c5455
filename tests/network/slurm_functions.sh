# What the tests on Slurm's cluster share: a folder for their files, and ways to wait and to fail.
export WEFT_RECORDER_DIR=none WEFT_TUNE=off
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "FAILED: $1"
  tail -n 40 "$folder/output"
  exit 1
}

# wait_until SECONDS WHAT COMMAND …
wait_until() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "$what: not there in time"
    sleep 0.05
  done
}

# Liveness or data, whichever connection tells of the death first. srun may lose the last words of the tasks that it ends after a
# killed one, so tasks write them to errors.RANK themselves.
names_rank_1() { grep -qE "rank 1 (is dead|closed its connection)|connection with rank 1 broke" "$folder"/errors.*; }
