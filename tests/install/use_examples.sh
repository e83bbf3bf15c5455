#!/bin/bash
# Builds and runs the examples of Weft against an installed tree, and the program of the first tutorial, which is the first
# example: use_examples.sh PREFIX EXAMPLES TUTORIAL WORK
# The example of CUDA is built where there is a toolkit; it runs where there is a GPU, and else must say why not.
set -euo pipefail
prefix=$1 examples=$2 tutorial=$3 work=$4
rm -rf "$work"
mkdir -p "$work"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weft.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir weft)
read -ra flags <<< "-Wall -Wextra -Werror $(pkg-config --cflags --libs weft) -Wl,-rpath,$libdir"
run=("$prefix/bin/weft_run" --timeout 60 --no-label)

# same WHAT WANTED FILE: the file's lines, in any order, are these.
same() {
  diff <(sort <<< "$2") <(sort "$3") || { echo "$1 does not print what it should"; exit 1; }
}

cc -std=c99 "$examples/01_all_reduce.c" "${flags[@]}" -o "$work/01"
"${run[@]}" -n 4 --nodes 2 "$work/01" > "$work/01.out"
same 01_all_reduce "$(printf 'rank %d of 4: 6 10 14 18\n' 0 1 2 3)" "$work/01.out"
# The page shows the program without the comment at its top, and what it prints.
sed -n '/^```c$/,/^```$/ { /^```/d; p }' "$tutorial" > "$work/tutorial.c"
diff <(sed '1,/^ \*\//d' "$examples/01_all_reduce.c") "$work/tutorial.c" || { echo "$tutorial shows another program"; exit 1; }
while read -r line; do
  grep -qxF "$line" <(sed 's/^\[[0-9]\] //' "$tutorial") || { echo "$tutorial does not show \"$line\""; exit 1; }
done < "$work/01.out"

c++ -std=c++17 "$examples/02_overlap.cc" "${flags[@]}" -o "$work/02"
"${run[@]}" -n 2 "$work/02" > "$work/02.out"
same 02_overlap "$(printf 'rank %d: computed 14.392727, gathered right\n' 0 1)" "$work/02.out"

cc -std=c99 "$examples/03_go_on_without_a_rank.c" "${flags[@]}" -o "$work/03"
code=0
"${run[@]}" -n 3 --keep-going "$work/03" > "$work/03.out" 2> "$work/03.err" || code=$?
[ "$code" -eq 7 ] || { echo "03_go_on_without_a_rank ended with $code"; cat "$work/03.out" "$work/03.err"; exit 1; }
same 03_go_on_without_a_rank "$(printf 'rank %d: the others have 3\n' 0 1)" <(grep 'the others have' "$work/03.out")

if command -v mpicc > /dev/null; then
  mpicc "$examples/04_mpi.c" "${flags[@]}" -o "$work/04"
  "$work/04" > "$work/04.out" # MPI starts a single rank without its launcher
  same 04_mpi "rank 0: Weft 1, MPI 1" "$work/04.out"
else
  echo "04_mpi: no mpicc"
fi

cuda=${CUDA_HOME:-/usr/local/cuda}
if [ -e "$cuda/include/cuda_runtime_api.h" ]; then
  cc -std=c99 "$examples/05_cuda.c" "${flags[@]}" -isystem "$cuda/include" -L"$cuda/lib64" -lcudart -Wl,-rpath,"$cuda/lib64" -o "$work/05"
  code=0
  "$work/05" > "$work/05.out" 2>&1 || code=$?
  case $code in
    0) same 05_cuda "rank 0 of 1: 0 1 2 3" "$work/05.out" ;;
    77) grep -q '^weftDeviceQuery: ' "$work/05.out" || { echo "05_cuda does not say why not"; cat "$work/05.out"; exit 1; } ;;
    *) echo "05_cuda ended with $code"; cat "$work/05.out"; exit 1 ;;
  esac
else
  echo "05_cuda: no CUDA toolkit"
fi

"${run[@]}" -n 2 python3 "$examples/06_python.py" "$libdir/libweft.so" > "$work/06.out"
same 06_python "$(printf 'rank %d: [%d.0, %d.0, %d.0, %d.0]\n' 0 1 3 5 7 1 1 3 5 7)" "$work/06.out"
