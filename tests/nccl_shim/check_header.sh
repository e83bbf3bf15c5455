#!/bin/bash
# The shim exports every function that NCCL's header declares, and symbols.txt is right about the header's version. Where NCCL
# is installed with the header (include/nccl.h, lib/libnccl.so.2), the shim also exports what that exports:
# check_header.sh libnccl.so.2 symbols.txt nccl.h|none [accept-newer]
# Exit code 77, with the reason, where there is no header; and with accept-newer, where one that is newer than what the shim
# knows declares functions that it lacks.
set -euo pipefail
shim=$1 names=$2 header=$3 accept=${4:-}
newest=2.32.3

if [ "$header" = none ]; then
  echo "skipped: no nccl.h here (-DNCCL_INCLUDE_DIR=… names its folder)"
  exit 77
fi
version=$(awk '/^#define NCCL_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' "$header")
declared=$(grep -oE '\bpnccl[A-Z][A-Za-z0-9]*\(' "$header" | tr -d '(' | sort -u) || true
[ -n "$declared" ] || { echo "cannot find the declarations in $header"; exit 1; }
exported=$(nm -D --defined-only "$shim" | awk '{ print $3 }' | sort)
library=$(dirname "$header")/../lib/libnccl.so.2 offered=$declared
if [ -e "$library" ]; then
  offered=$(nm -D --defined-only "$library" | awk '$3 ~ /^pnccl/ { print $3 }' | cat - <(echo "$declared") | sort -u)
fi
missing=$(comm -23 <(echo "$offered") <(echo "$exported"))

# not_after A B: whether version A is B or older.
not_after() { [ "$(printf '%s\n' "$1" "$2" | sort -V | tail -1)" = "$2" ]; }

if ! not_after "$version" "$newest" && [ -n "$missing" ] && [ "$accept" = accept-newer ]; then
  echo "skipped: $header is of NCCL $version, and the shim knows NCCL up to $newest; it lacks of that version:" $missing
  exit 77
fi
if [ -n "$missing" ]; then
  echo "NCCL $version ($header) has what $shim lacks:" $missing
  not_after "$version" "$newest" || echo "(it knows NCCL up to $newest; -DWEFT_ACCEPT_NEWER_NCCL=ON takes that as it is)"
  exit 1
fi
# listed HEADER-PATTERN: the functions of such headers that symbols.txt knows of this version.
listed() {
  local name since file
  while read -r name since file _; do
    [[ $file != $1 ]] || ! not_after "$since" "$version" || echo "pnccl$name"
  done < <(grep '^[A-Z]' "$names") | sort
}
diff <(listed nccl.h) <(echo "$declared") || { echo "$names (<) and NCCL $version (>) differ"; exit 1; }
[ -e "$library" ] || exit 0
unknown=$(comm -23 <(listed '*') <(echo "$offered"))
[ -z "$unknown" ] || { echo "$library does not export what $names lists of NCCL $version:" $unknown; exit 1; }
