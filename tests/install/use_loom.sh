#!/bin/bash
# The example, built by its users: with CMake against the shared and the static library, and with pkg-config; trained alone
# and on two ranks. use_loom.sh PREFIX EXAMPLES PROJECT WORK
set -euo pipefail
prefix=$1 examples=$2 project=$3 work=$4
rm -rf "$work"
mkdir -p "$work"
for i in $(seq 400); do echo "$((i % 13)) times $((i % 7)) is $((i % 13 * (i % 7)))."; done > "$work/text.txt"

cmake -S "$project" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF \
  -DEXAMPLES="$examples" > /dev/null
cmake --build "$work/cmake"
"$work/cmake/train" "$work/text.txt" "$work/one"
"$work/cmake/train_static" "$work/text.txt" "$work/static"
"$prefix/bin/weft_run" -n 2 --no-label --timeout 120 "$work/cmake/train" "$work/text.txt" "$work/two"
if ldd "$work/cmake/train_static" | grep -E 'lib(loom|weft)'; then echo "train_static needs our shared libraries"; exit 1; fi
cmp "$work/one/run/model/model.safetensors" "$work/static/run/model/model.safetensors"

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name loom.pc)")
export PKG_CONFIG_PATH
read -ra flags <<< "$(pkg-config --cflags --libs loom)"
c++ -std=c++20 -O1 -Wall -Wextra -Werror "$examples/train.cc" "${flags[@]}" \
  -Wl,-rpath,"$(pkg-config --variable=libdir loom)" -o "$work/with_pkg_config"
"$work/with_pkg_config" 2> "$work/usage" && exit 1
grep -q usage "$work/usage"
