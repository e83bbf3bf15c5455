#!/bin/bash
# The shim exports every function that NCCL's header declares: check_header.sh libnccl.so.2 nccl.h|none
# Exit code 77, with the reason, where there is no header, or one that is newer than what the shim knows.
set -euo pipefail
shim=$1 header=$2
newest=2.30.7

if [ "$header" = none ]; then
  echo "skipped: no nccl.h here (-DNCCL_INCLUDE_DIR=… names its folder)"
  exit 77
fi
version=$(awk '/^#define NCCL_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' "$header")
declared=$(grep -oE '\bpnccl[A-Z][A-Za-z0-9]*\(' "$header" | tr -d '(' | sort -u)
[ -n "$declared" ] || { echo "cannot find the declarations in $header"; exit 1; }
exported=$(nm -D --defined-only "$shim" | awk '{ print $3 }' | sort)
missing=$(comm -23 <(echo "$declared") <(echo "$exported"))
if [ "$(printf '%s\n' "$version" "$newest" | sort -V | tail -1)" != "$newest" ]; then
  echo "skipped: $header is of NCCL $version, and the shim knows NCCL up to $newest; it lacks of that version:" ${missing:-nothing}
  exit 77
fi
[ -z "$missing" ] || { echo "NCCL $version declares what $shim lacks:" $missing; exit 1; }
