#!/bin/bash
# The shim exports what NCCL exports, under both spellings, under NCCL's name, and nothing else:
# check_symbols.sh libnccl.so.2 symbols.txt nccl-shim.md
# The page's table has a row for each of these functions, and says of each who does it.
set -euo pipefail
shim=$1 names=$2 page=$3

# symbols.txt holds the functions of NCCL 2.32.3, without a prefix.
expected=$(sed -n 's/^\([A-Z][A-Za-z0-9]*\) .*/nccl\1\npnccl\1/p' "$names" | sort)
exported=$(nm -D --defined-only "$shim" | awk '{ print $3 }' | grep -v '^weftNcclShim$' | sort)
diff <(echo "$expected") <(echo "$exported") || { echo "NCCL (<) and $shim (>) differ"; exit 1; }

rows=$(awk '/^[A-Z]/ { print "| `nccl" $1 "` | " $2 " | `" $3 "` | " ($4 == "weft" ? "Weft" : "refused") " |" }' "$names")
diff <(echo "$rows") <(grep -E '^\| `nccl[A-Za-z0-9]+` \| [0-9.]+ \|' "$page") ||
  { echo "$names (<) and the table of $page (>) differ"; exit 1; }

# A profiler puts its own nccl… in front: those are weak, as NCCL's are, and pnccl… are not.
nm -D --defined-only "$shim" |
  awk '$3 ~ /^nccl/ && $2 != "W" || $3 ~ /^pnccl/ && $2 != "T" { print; wrong = 1 } END { exit wrong }' ||
  { echo "these are not weak, or not strong"; exit 1; }
readelf -d "$shim" | grep -q 'SONAME.*\[libnccl.so.2\]' || { echo "$shim is not called libnccl.so.2"; exit 1; }

# NCCL, CUDA and libfabric are found at run time, or are not there.
needed=$(readelf -d "$shim" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
! grep -E '^lib(nccl|cuda|fabric)' <<< "$needed" || { echo "$shim cannot be loaded without these"; exit 1; }
