#!/bin/bash
# The Debian package on a Debian that has nothing of ours: it is installed there, and the first tutorial's program is
# compiled and run on two ranks. fresh_debian.sh TUTORIAL PACKAGES CACHE
# That Debian is made once by debootstrap, if MAKE_FRESH_DEBIAN=1, which takes minutes and the network. It stays in CACHE, with
# the packages that ours depends on, and the test writes to memory above it. Skipped (77), with the reason, where it cannot be made.
set -euo pipefail
skip() {
  echo "skipped: $1"
  exit 77
}
if [ "$1" != --inside ]; then
  packages=$2 cache=$3
  [ "$(id -u)" -eq 0 ] || skip "making a root directory needs root"
  # shellcheck source=/dev/null
  source /etc/os-release
  [ "${ID:-}" = debian ] || skip "the package is for the Debian that it was built on, and this is ${ID:-no Debian}"
  unshare --mount --pid --fork true 2> /dev/null || skip "namespaces cannot be made here"
  if [ ! -e "$cache/made" ]; then
    [ "${MAKE_FRESH_DEBIAN:-}" = 1 ] || skip "no $cache; MAKE_FRESH_DEBIAN=1 has it made"
    command -v debootstrap > /dev/null || skip "no debootstrap"
    mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null || true; } |
      sed -nE 's/^(URIs:|deb( \[[^]]*\])?) *(https?:[^ ]*debian)\/?( .*)?$/\3/p' | head -1)
    rm -rf "$cache"
    mkdir -p "$cache"
    debootstrap --variant=minbase --include=ca-certificates,gcc,libc6-dev,pkg-config "$VERSION_CODENAME" "$cache/root" \
      "${mirror:-http://deb.debian.org/debian}" > "$cache/log" 2>&1 || { tail -n 3 "$cache/log"; skip "debootstrap failed ($cache/log)"; }
    cp "$packages"/weft_*.deb "$cache/root/tmp/"
    chroot "$cache/root" sh -c "apt-get -q update && apt-get -q install -y --no-install-recommends --download-only /tmp/weft_*.deb" \
      >> "$cache/log" 2>&1 || { tail -n 3 "$cache/log"; skip "apt-get failed there ($cache/log)"; }
    rm "$cache"/root/tmp/weft_*.deb
    touch "$cache/made"
  fi
  exec unshare --mount --pid --fork --kill-child "$0" --inside "$@"
fi
tutorial=$2 packages=$3 cache=$4
package=$(find "$packages" -maxdepth 1 -name 'weft_*.deb')

top=$(mktemp -d)
mount --make-rprivate /
mount -t tmpfs tmpfs "$top"
mkdir "$top/written" "$top/work" "$top/root"
mount -t overlay overlay -o "lowerdir=$cache/root,upperdir=$top/written,workdir=$top/work" "$top/root" || skip "no overlay file system here"
mount -t proc proc "$top/root/proc"
mount --rbind /dev "$top/root/dev"
mount --rbind /sys "$top/root/sys"
cp /etc/resolv.conf "$top/root/etc/"
cp "$package" "$top/root/tmp/"
# The block of C in the tutorial.
sed -n '/^```c$/,/^```$/ { /^```/d; p }; /^```$/q' <(sed -n '/^```c$/,$p' "$tutorial") > "$top/root/tmp/first.c"
env --ignore-environment PATH="$PATH" DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$top/root" bash -euc '
  cd /tmp
  install="apt-get -q install -y --no-install-recommends ./$(echo weft_*.deb)"
  $install > apt.log 2>&1 || { apt-get -q update && $install; } > apt.log 2>&1 || { cat apt.log; exit 1; }
  dpkg --status weft | grep -x "Status: install ok installed"
  cc first.c $(pkg-config --cflags --libs weft) -o first
  weft_run -n 2 ./first > said
  sort said
  printf "[0] rank 0 of 2: 1 3 5 7\n[1] rank 1 of 2: 1 3 5 7\n" | cmp - <(sort said)
  test "$(all_reduce_perf --version)" = "$(weft_run --version | sed s/weft_run/all_reduce_perf/)"
  if command -v loom > /dev/null; then loom --version; fi
  dpkg --remove weft > /dev/null
  ! ldconfig -p | grep libweft
'
