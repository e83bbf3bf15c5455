#!/bin/bash
# Builds Weft and Loom with a sanitizer and runs the tests that it can cover:
#   test_sanitized.sh SANITIZERS BUILD [ctest arguments]
# Tests labelled `unsanitized` (those that judge a build as users get it) are left out, and what a sanitizer has nothing
# to say of: the thread sanitizer runs the layers that have threads (libfabric is not built for it), the others all but the
# largest layouts of plans. SANITIZED_LAYERS="api loom_text" builds and runs less.
set -euo pipefail
sanitizers=$1 build=$2
shift 2

layers=${SANITIZED_LAYERS:-}
# A process that is forked beside threads has the locks of a sanitizer's allocator as they were then, maybe held: it cannot go on.
excluded="OfAForkedChildAreItsOwn|AForkedChildsCallsAreRefused|AGroupThatIsOpenStaysTheParents|WithManyThreadsMayExit"
if [ "$sanitizers" = thread ]; then
  layers=${layers:-api bootstrap engine transport loom_engine loom_train}
  excluded+="|over_libfabric|FreedInUse"  # nor can the thread sanitizer follow memory that is replaced at a fault
else
  excluded+="|IsRightOnASampleUpTo16NodesOf8Ranks"
fi
targets=() gpu_kernels=ON selected=(--exclude-regex "$excluded")
if [ -n "$layers" ]; then
  targets=(--target)
  for layer in $layers; do targets+=("test_$layer"); done
  [[ " $layers " == *" cuda "* ]] || gpu_kernels=OFF  # nvcc would work half a minute for nobody
  selected+=(--label-regex "^(${layers// /|})\$")
fi

# Older thread sanitizers cannot cope with much randomization of addresses; run without it where that is allowed.
prefix=(env)
if [ "$sanitizers" = thread ] && setarch -R true 2> /dev/null; then prefix=(setarch -R); fi

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DWEFT_SANITIZE="$sanitizers" \
  -DWEFT_CUDA=$gpu_kernels > "$build.log" 2>&1 || { cat "$build.log"; exit 1; }
mv "$build.log" "$build/configure.log"
"${prefix[@]}" cmake --build "$build" ${targets[@]+"${targets[@]}"}

# A request for more memory than there is fails, as it does without a sanitizer. Up to GCC 13 and LLVM 16 the runtime guesses the
# bounds of a thread's dynamic storage, and the leak check faults where it guesses wrong; it finds those blocks without, too.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0:allocator_may_return_null=1:intercept_tls_get_addr=0}
# libfabric keeps a few allocations for every connection. What NCCL has opened stays open.
suppressions=$(mktemp)
trap 'rm -f "$suppressions"' EXIT
printf 'leak:%s\n' libfabric.so weft::nccl::Library::open > "$suppressions"
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$suppressions:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
# A thread that has ended may be left to the end of its process.
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0}
TEST_LABEL=$sanitizers "${prefix[@]}" scripts/test.sh "$build" --label-exclude unsanitized "${selected[@]}" "$@"
