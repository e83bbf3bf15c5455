#!/bin/bash
# demo_text.sh FILE: gathers real English text to train on, of a free licence, from Debian's packages.
#
# First choice is the King James Bible of 1611, 4.1 MB in the public domain: from the packages bible-kjv and bible-kjv-text if
# they are installed, else downloaded by apt-get (2.5 MB) and unpacked beside, with nothing installed and no root. Where that
# fails, the texts that every Debian has: its licences and the copyright files of its packages, which repeat themselves much.
# A FILE that is there already is left as it is.
set -euo pipefail
if [ $# -ne 1 ]; then
  echo "usage: demo_text.sh FILE" >&2
  exit 2
fi
file=$1
if [ -s "$file" ]; then
  echo "demo text: $file is there ($(wc -c < "$file") bytes)"
  exit 0
fi
mkdir -p "$(dirname "$file")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# bible PROGRAM FOLDER: every verse on a line of its own, without "Ge1:1 " in front.
bible() {
  "$1" -p "$2" -f Ge1:1-Rev22:21 < /dev/null 2> /dev/null | sed -E 's/^[0-9A-Za-z]+:[0-9]+ //' > "$work/text" || true
  [ "$(wc -c < "$work/text")" -gt 4000000 ]
}

download() (
  cd "$work"
  apt-get -q -o APT::Sandbox::User=root download bible-kjv bible-kjv-text > apt.log 2>&1 || exit 1
  for package in *.deb; do dpkg-deb -x "$package" unpacked || exit 1; done
)

# What of them is UTF-8 without NUL, up to 8 MB.
licences() {
  local path
  for path in /usr/share/common-licenses/* /usr/share/doc/*/copyright; do
    if [ -f "$path" ]; then cat "$path"; fi
  done | iconv -c -f utf-8 -t utf-8 | tr -d '\000' | head -c 8000000 | iconv -c -f utf-8 -t utf-8 > "$work/text" || true
  [ "$(wc -c < "$work/text")" -gt 100000 ]
}

if command -v bible > /dev/null && bible bible /usr/lib; then
  source="the King James Bible of the installed package bible-kjv-text"
elif command -v apt-get > /dev/null && download && bible "$work/unpacked/usr/bin/bible" "$work/unpacked/usr/lib"; then
  source="the King James Bible of the package bible-kjv-text"
elif licences; then
  source="licences and copyright files of this system, since bible-kjv-text cannot be had"
else
  echo "demo text: neither the package bible-kjv-text nor texts under /usr/share are to be had; give a text of your own" >&2
  exit 1
fi
mv "$work/text" "$file"
echo "demo text: $file, $(wc -c < "$file") bytes: $source"
