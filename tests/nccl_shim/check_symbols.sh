#!/bin/bash
# The shim exports what NCCL exports, under both spellings, under NCCL's name, and nothing else:
# check_symbols.sh libnccl.so.2 symbols.txt nccl.h|none
set -euo pipefail
shim=$1 names=$2 header=$3

# symbols.txt holds the functions of NCCL 2.28.9, without a prefix.
expected=$(sed -n 's/^\([A-Z].*\)/nccl\1\npnccl\1/p' "$names" | sort)
exported=$(nm -D --defined-only "$shim" | awk '{ print $3 }' | grep -v '^weftNcclShim$' | sort)
diff <(echo "$expected") <(echo "$exported") || { echo "NCCL (<) and $shim (>) differ"; exit 1; }

# A profiler puts its own nccl… in front: those are weak, as NCCL's are, and pnccl… are not.
nm -D --defined-only "$shim" |
  awk '$3 ~ /^nccl/ && $2 != "W" || $3 ~ /^pnccl/ && $2 != "T" { print; wrong = 1 } END { exit wrong }' ||
  { echo "these are not weak, or not strong"; exit 1; }
readelf -d "$shim" | grep -q 'SONAME.*\[libnccl.so.2\]' || { echo "$shim is not called libnccl.so.2"; exit 1; }

if [ "$header" = none ]; then
  echo "no nccl.h here: compared with the stored list only"
  exit 0
fi
version=$(awk '/^#define NCCL_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' "$header")
declared=$(grep -oE '\bpnccl[A-Z][A-Za-z0-9]*\(' "$header" | tr -d '(' | sort -u)
[ -n "$declared" ] || { echo "cannot find the declarations in $header"; exit 1; }
missing=$(comm -23 <(echo "$declared") <(echo "$exported"))
if [ -n "$missing" ]; then
  echo "NCCL $version declares what $shim lacks:" "$missing"
  [ "$version" != 2.28.9 ] || exit 1
fi
