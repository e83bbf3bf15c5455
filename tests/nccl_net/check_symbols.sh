#!/bin/bash
# The plugin exports the tables of versions 8 to 12 of NCCL's interface, each as long as NCCL reads it, and nothing else:
# check_symbols.sh libnccl-net-weft.so
set -euo pipefail
plugin=$1

# 19 pointers in version 8; 20 in 9 and 10, 22 in 11 and 12. Constants, in memory that is not written after loading.
expected='ncclNetPlugin_v8 152 object
ncclNetPlugin_v9 160 object
ncclNetPlugin_v10 160 object
ncclNetPlugin_v11 176 object
ncclNetPlugin_v12 176 object'
exported=$(nm -D --defined-only --print-size --radix=d "$plugin" |
           awk '{ print $4, $2 + 0, $3 ~ /^[RD]$/ ? "object" : $3 }' | sort -V)
diff <(echo "$expected") <(echo "$exported") || { echo "NCCL's tables (<) and $plugin (>) differ"; exit 1; }

# libfabric does not survive being unloaded.
readelf -d "$plugin" | grep -q 'FLAGS_1.*NODELETE' || { echo "$plugin may be unloaded"; exit 1; }
# NCCL, CUDA and libfabric are found at run time, or are not there.
needed=$(readelf -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
! grep -E '^lib(nccl|cuda|fabric)' <<< "$needed" || { echo "$plugin cannot be loaded without these"; exit 1; }
