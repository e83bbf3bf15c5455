#!/bin/bash
# The Debian package: what it needs, and that it holds what it should. The package stays in WORK. check_debian.sh BUILD WORK
set -euo pipefail
build=$1 work=$2
rm -rf "$work"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work" > "$work.log" 2>&1 || { cat "$work.log"; exit 1; }
rm -rf "$work/_CPack_Packages"
package=$(find "$work" -maxdepth 1 -name 'weft_*.deb')
fail() {
  echo "$package $1"
  exit 1
}

loom_needs=() loom_files=()
if [ -e "$build/lib/libloom.so" ]; then
  loom_needs=(libdnnl libicu)
  loom_files=(include/loom/loom.h bin/loom libloom.so.0 libloom.a loom.pc loom-config.cmake)
fi
depends=$(dpkg-deb --field "$package" Depends)
for library in libc6 libstdc++6 libhwloc15 "${loom_needs[@]}"; do
  grep -q "$library" <<< "$depends" || fail "does not depend on $library, only on $depends"
done
for library in libfabric1 libpmix2; do
  grep -q "$library" <<< "$(dpkg-deb --field "$package" Recommends)" || fail "does not recommend $library"
done
contents=$(dpkg-deb --contents "$package" | awk '{ print $6 }')
for file in include/weft/weft.h include/weft/weft_cuda.h include/weft/weft_mpi.h bin/weft_run bin/all_reduce_perf libweft.so.0 libweft.a libnccl-net-weft.so weft-nccl/libnccl.so.2 weft.pc \
  weft-config.cmake doc/weft/{changelog.gz,copyright,README.md,docs/reference/c-api.md,examples/train.cc} "${loom_files[@]}"; do
  grep -q "/usr/.*$file\$" <<< "$contents" || fail "does not hold $file"
done

dpkg-deb --raw-extract "$package" "$work/tree"
grep -q '^libweft 0 weft (>= ' "$work/tree/DEBIAN/shlibs" || fail "does not offer libweft to other packages"
! grep nccl "$work/tree/DEBIAN/shlibs" || fail "offers a private library to other packages"
grep -qx 'activate-noawait ldconfig' "$work/tree/DEBIAN/triggers" || fail "has no trigger for ldconfig"
plugin=$(find "$work/tree" -name libnccl-net-weft.so)
readelf -d "$plugin" | grep -q 'SONAME.*\[libnccl-net-weft.so\]' || fail "has a plugin without a soname"
for program in "$work/tree/usr/bin"/*; do
  name=$(basename "$program")
  zcat "$work/tree/usr/share/man/man1/$name.1.gz" | grep '^\.SH OPTIONS' > /dev/null || fail "has no manual page of $name"
  ! readelf -d "$program" | grep -E 'R(UN)?PATH' || fail "has a $name that looks for libraries by itself"
done
rm -rf "$work/tree"
echo "$package: $depends"
