#!/bin/bash
# A user who has a compiler and pkg-config: use_pkg_config.sh PREFIX PROJECT WORK
set -euo pipefail
prefix=$1 project=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weft.pc)")
export PKG_CONFIG_PATH
read -ra flags <<< "$(pkg-config --cflags --libs weft)"
read -ra rpath <<< "-Wl,-rpath,$(pkg-config --variable=libdir weft)"
cc -std=c99 -Wall -Wextra -Werror "$project/program.c" "${flags[@]}" "${rpath[@]}" -o "$work/in_c"
c++ -std=c++11 -Wall -Wextra -Werror "$project/program.cc" "${flags[@]}" "${rpath[@]}" -o "$work/in_cxx"
for program in in_c in_cxx; do
  echo "== $program, alone and as 2 ranks"
  "$work/$program"
  "$prefix/bin/weft_run" -n 2 --timeout 60 "$work/$program"
done

echo "== against the archive"
read -ra private <<< "$(pkg-config --static --libs-only-l weft | sed 's/-lweft //')"
cc -std=c99 "$project/program.c" -I"$(pkg-config --variable=includedir weft)" \
  "$(pkg-config --variable=libdir weft)/libweft.a" "${private[@]}" -o "$work/in_c_static"
"$work/in_c_static"
