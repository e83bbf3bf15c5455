#!/bin/bash
# A user's CMake project, in C and in C++, shared and static: use_find_package.sh PREFIX PROJECT WORK
set -euo pipefail
prefix=$1 project=$2 work=$3
rm -rf "$work"
cmake -S "$project" -B "$work" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF > /dev/null
cmake --build "$work"
for program in in_c in_cxx in_c_static; do
  echo "== $program, alone and as 2 ranks"
  "$work/$program"
  "$prefix/bin/weft_run" -n 2 --timeout 60 "$work/$program"
done
if ldd "$work/in_c_static" | grep libweft; then echo "in_c_static needs libweft.so"; exit 1; fi
