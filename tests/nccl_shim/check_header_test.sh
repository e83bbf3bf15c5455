#!/bin/bash
# What check_header.sh makes of headers that are older, newer and wrong: check_header_test.sh libnccl.so.2 symbols.txt
set -uo pipefail
here=$(dirname "$0") shim=$1 names=$2
folder=$(mktemp -d)
mkdir "$folder/include" "$folder/lib"
trap 'rm -rf "$folder"' EXIT

# header VERSION NAME...: a header of that version which declares these functions.
header() {
  local numbers=(${1//./ }) name
  printf '#define NCCL_MAJOR %s\n#define NCCL_MINOR %s\n#define NCCL_PATCH %s\n' "${numbers[@]}" > "$folder/include/nccl.h"
  shift
  for name in "$@"; do echo "ncclResult_t pnccl$name(void);" >> "$folder/include/nccl.h"; done
}
# expect CODE PART [accept-newer]: how the check ends with that header, and a part of what it prints.
expect() {
  local code=$1 part=$2 output got
  shift 2
  output=$("$here/check_header.sh" "$shim" "$names" "$folder/include/nccl.h" "$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] && grep -q -- "$part" <<< "$output" && return
  echo "the check ended with $got, must be $code with \"$part\", and printed: $output"
  exit 1
}

# library NAME...: an NCCL beside it that exports these.
library() {
  printf 'void pnccl%s(void) {}\n' "$@" | cc -shared -fPIC -x c - -o "$folder/lib/libnccl.so.2"
}

all=$(sed -n 's/^\([A-Z][A-Za-z0-9]*\) [0-9.]* nccl.h .*/\1/p' "$names")
before_2_29=$(awk '$3 == "nccl.h" && $2 !~ /^2\.(29|3.)\./ { print $1 }' "$names")
header 2.32.3 $all && expect 0 ""
header 2.28.9 $before_2_29 && expect 0 ""
header 2.28.9 $all && expect 1 "^> pncclPutSignal"
header 2.32.3 $before_2_29 && expect 1 "^< pncclPutSignal"
header 2.32.3 $all Tomorrow && expect 1 "lacks: pncclTomorrow"
header 2.99.0 $all && expect 0 ""
header 2.99.0 $all Tomorrow && expect 1 "lacks: pncclTomorrow"
expect 77 "lacks of that version: pncclTomorrow" accept-newer
header 2.32.3 && expect 1 "cannot find the declarations"

all_of_both=$(sed -n 's/^\([A-Z][A-Za-z0-9]*\) .*/\1/p' "$names")
header 2.32.3 $all && library $all_of_both && expect 0 ""
header 2.32.3 $all && library $all_of_both Tomorrow && expect 1 "lacks: pncclTomorrow"
header 2.32.3 $all && library $all && expect 1 "does not export .*: .*pncclTeamCft"
