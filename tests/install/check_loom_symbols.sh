#!/bin/bash
# Loom's libraries show what include/loom declares and nothing else: check_loom_symbols.sh libloom.so libloom.a FOLDER
set -euo pipefail
shared=$1 static=$2 headers=$3

# Every name of the interface: classes and functions that bear LOOM_API.
declared=$(grep -hoE 'LOOM_API [^;{(]*' "$headers"/*.h | grep -v 'gnu::' | sed -E 's/[(].*//; s/ +$//' | awk '{ print $NF }' |
  sort -u)
[ "$(wc -l <<< "$declared")" -ge 7 ] || { echo "cannot find the declarations in $headers"; exit 1; }
allowed=$(paste -sd'|' <<< "$declared")

for library in "$shared" "$static"; do
  dynamic=()
  [[ $library != *.so* ]] || dynamic=(-D)
  visible=$(nm "${dynamic[@]}" --extern-only --defined-only "$library" 2> /dev/null | awk 'NF == 3 && $2 !~ /[VWuA]/ { print $3 }' | c++filt)
  other=$(grep -vE "^loom::($allowed)(\[|\(|::|@|\$)" <<< "$visible" || true)
  [ -z "$other" ] || { echo "$library shows internals:"; head <<< "$other"; exit 1; }
  while read -r name; do
    grep -qE "^loom::$name(\[|\(|::)" <<< "$visible" || { echo "$library lacks $name"; exit 1; }
  done <<< "$declared"
done
