#!/bin/bash
# The functions that the public headers declare are exactly those that the libraries define for others:
# check_symbols.sh libweft.so libweft.a HEADER...
set -euo pipefail
shared=$1 static=$2
shift 2

declared=$(sed -n 's/^WEFT_API .*\(weft[A-Z][A-Za-z0-9]*\)(.*/\1/p' "$@" | sort)
[ "$(wc -l <<< "$declared")" -gt 30 ] || { echo "cannot find the declarations in $*"; exit 1; }

# WEFT_0 is the version that the symbols bear.
exported=$(nm -D --defined-only "$shared" | awk '{ print $3 }' | sed 's/@.*//' | grep -v '^WEFT_0$' | sort)
diff <(echo "$declared") <(echo "$exported") || { echo "The headers (<) and $shared (>) differ"; exit 1; }

# Templates of the standard library stay visible in the archive, as in anybody's; names of ours must not.
visible=$(nm --extern-only --defined-only "$static" 2> /dev/null | awk 'NF == 3 { print $2, $3 }')
ours=$(grep -E ' weft[A-Z]' <<< "$visible" | awk '{ print $2 }' | sort)
diff <(echo "$declared") <(echo "$ours") || { echo "The headers (<) and $static (>) differ"; exit 1; }
strong=$(grep -vE '^[VWu] | weft[A-Z]' <<< "$visible" || true)
[ -z "$strong" ] || { echo "$static shows internals:"; echo "$strong" | head; exit 1; }

# NCCL, CUDA and libfabric are found at run time, or are not there.
needed=$(readelf -d "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
! grep -E '^lib(nccl|cuda|fabric)' <<< "$needed" || { echo "$shared cannot be loaded without these"; exit 1; }
