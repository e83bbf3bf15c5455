#!/bin/bash
# What with_gpu makes of machines with and without a device: check_gate.sh with_gpu fake_cuda.so fake_nccl.so
set -uo pipefail
gate=$1 fake_cuda=$2 fake_nccl=$3

# expect CODE PART COMMAND...: the exit code, and a part of what is printed.
expect() {
  local code=$1 part=$2 output got
  shift 2
  output=$("$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] && grep -q -- "$part" <<< "$output" && return
  echo "$* ended with $got, must be $code, and printed: $output"
  exit 1
}

none=WEFT_CUDA_LIBRARY=/nowhere/libcuda.so.1
fake="WEFT_CUDA_LIBRARY=$fake_cuda"
expect 77 "skipped: CUDA's driver cannot be loaded" env "$none" "$gate" echo it runs
expect 77 "skipped: .*finds no CUDA device" env "$fake" FAKE_CUDA_DEVICES=0 "$gate" echo it runs
expect 0 "it runs" env "$fake" "$gate" echo it runs
# A failure is one, whatever it says.
expect 1 "driver cannot be loaded" env "$fake" "$gate" sh -c "echo the driver cannot be loaded; exit 1"
expect 77 "skipped: .*nowhere/libnccl" env "$fake" WEFT_NCCL_LIBRARY=/nowhere/libnccl.so.2 "$gate" --nccl echo it runs
expect 0 "it runs" env "$fake" "WEFT_NCCL_LIBRARY=$fake_nccl" "$gate" --nccl echo it runs
expect 77 "skipped: .*remote writes of GPU memory" env "$fake" "$gate" --gpu-direct echo it runs
expect 126 "cannot run /nowhere/program: No such file" env "$fake" "$gate" /nowhere/program
expect 126 "usage: with_gpu" "$gate" --nccl
expect 126 "usage: with_gpu" "$gate" --gpu-direct
