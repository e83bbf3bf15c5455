#!/bin/sh
# Makes one object of many, in which every symbol but an interface's is local; so programs may have names like ours, and what
# the interface does not show cannot be linked to: merge_objects.sh LD OBJCOPY NM OUT PATTERN... -- OBJECT...
#
# Constants inside inline functions are "unique" symbols, of which objcopy makes none local unless they are weak; left as they
# are, they would meet those of a program in C++.
set -eu
ld=$1 objcopy=$2 nm=$3 out=$4
shift 4
keep=
while [ "$1" != -- ]; do
  keep="$keep --keep-global-symbol=$1"
  shift
done
shift
"$ld" -r --force-group-allocation -o "$out" "$@"
"$nm" --defined-only "$out" | awk '$2 == "u" { print $3 }' > "$out.unique"
"$objcopy" --weaken-symbols="$out.unique" "$out"
set -f # the patterns are objcopy's
# shellcheck disable=SC2086
"$objcopy" --localize-hidden --wildcard $keep "$out"
