#!/bin/bash
# Runs nccl-tests over Weft's libnccl.so.2 on the fake CUDA runtime: every program with four ranks, as threads with two devices
# each and as processes, with every type and operator, checked by nccl-tests themselves:
# run_nccl_tests.sh FOLDER libfake_cuda.so libwrong_all_reduce.so mpiexec|none [PROGRAM...]
set -uo pipefail
folder=$1 driver=$2 wrong=$3 mpiexec=$4
shift 4
programs=("$@")
[ $# -gt 0 ] || programs=(all_reduce all_gather broadcast reduce_scatter reduce alltoall alltoallv scatter gather sendrecv hypercube)
export WEFT_CUDA_LIBRARY=$driver FAKE_CUDA_DEVICES=4 WEFT_BACKEND=weft WEFT_SOCKET_IFNAME=lo WEFT_TUNE=off WEFT_RECORDER_DIR=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
failures=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# check COMMAND...: it ends well, with the last line but one of a run whose every value was right.
check() {
  local code
  timeout 300 "$@" > "$output" 2>&1
  code=$?
  [ $code = 0 ] && grep -q '^# Out of bounds values : 0 OK' "$output" && return
  failures=$((failures + 1))
  echo "exit code $code: $*"
  tail -n 25 "$output"
}
# check_all COMMAND...: with every type and operator. Left out is the multiplied sum of e5m2 over four ranks, for which the
# checker divides by zero: a GPU goes on, a CPU does not.
check_all() {
  local type op
  for type in int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3; do check "$@" -d $type -o all; done
  for op in sum prod max min avg; do check "$@" -d f8e5m2 -o $op; done
}
# refuse PART COMMAND...: it ends with an error that says so.
refuse() {
  local part=$1
  shift
  if timeout 300 "$@" > "$output" 2>&1 || ! grep -q -- "$part" "$output"; then
    failures=$((failures + 1))
    echo "not refused with \"$part\": $*"
    tail -n 25 "$output"
  fi
}

small=(-b 4 -e 4K -f 32 -w 1 -n 2 -c 1)
for program in "${programs[@]}"; do
  run=$folder/${program}_perf
  every_type=(check) all_types=(-d all) two_each=(-t 2 -g 2) one_thread=(-t 1 -g 4)
  case $program in
    all_reduce | reduce_scatter | reduce) every_type=(check_all) all_types=() ;;
    # Its steps build upon each other, but a thread with several devices puts all of them into one group.
    hypercube) two_each=(-t 4 -g 1) one_thread=(-t 4 -g 1) ;;
  esac
  "${every_type[@]}" "$run" "${two_each[@]}" "${small[@]}" "${all_types[@]}"
  check "$run" -t 4 -g 1 -b 1M -e 1M -w 1 -n 2 -c 1 -d bfloat16 -o sum
  check "$run" "${one_thread[@]}" "${small[@]}" -G 2  # captured into a graph
  check "$run" -t 1 -g 2 "${small[@]}" -z 1 -R 1     # blocking, registered buffers
  check "$run" -t 1 -g 2 "${small[@]}" -R 2          # windows
  [ "$mpiexec" = none ] || "${every_type[@]}" "$mpiexec" -n 4 "$run" -t 1 -g 1 "${small[@]}" "${all_types[@]}"
done
# Their checker finds what is wrong.
refuse 'Out of bounds values : [1-9].* FAILED' env LD_PRELOAD="$wrong" "$folder/all_reduce_perf" -t 1 -g 2 "${small[@]}" -d float -o sum
# The device API, of which Weft's communicators have none.
refuse 'P2P connectivity' "$folder/all_reduce_perf" -t 1 -g 2 "${small[@]}" -R 2 -D 1
[ $failures = 0 ] && echo "${#programs[@]} programs: all values are right"
exit $((failures > 0))
