#!/bin/bash
# Runs the tests of a build directory: test.sh BUILD [ctest arguments]. Ends with ctest's summary, the names of skipped
# tests, parts of what failed, and a line "N passed, N failed" (TEST_LABEL, if set, and a colon in front). The exit code is ctest's.
# There are two slots a core, and two more. A test that computes takes two slots, a test that mostly waits takes one: ctest's
# property PROCESSORS says so.
set -uo pipefail
build=$1
shift

results=$(mktemp)
trap 'rm -f "$results"' EXIT
# libfabric's verbs provider reads the names of all symbols of the kernel, twice in each process that opens libfabric, which
# takes 0.1 s. Where root may mount, the tests see none.
alone=()
hide='mount --bind /dev/null /proc/kallsyms'
unshare --mount sh -c "$hide" 2> /dev/null && alone=(unshare --mount sh -c "$hide && exec \"\$@\"" sh)
"${alone[@]}" ctest --test-dir "$build" --output-on-failure --parallel "$((2 * $(nproc) + 2))" --timeout 300 \
  --no-tests=error --output-junit "$results" ${CTEST_ARGUMENTS:-} "$@"
code=$?
[ -s "$results" ] || { echo "${TEST_LABEL:+$TEST_LABEL: }ctest did not end: it left no report (exit code $code)"; exit $((code ? code : 1)); }

# The first element of the report holds the totals: tests="…" failures="…" disabled="…" skipped="…".
total() { sed -n "s/^[[:space:]]*$1=\"\([0-9]*\)\".*/\1/p" <(tr ' ' '\n' < "$results") | head -1; }
tests=$(total tests) failures=$(total failures)
not_run=$(($(total disabled) + $(total skipped)))
# How the first tests that failed begin and end, once more: whoever keeps only the end of a long log needs it.
[ "$failures" -gt 0 ] && python3 - "$results" << 'END'
import sys
import xml.etree.ElementTree as tree

failed = [case for case in tree.parse(sys.argv[1]).iter("testcase") if case.get("status") == "fail"]
for case in failed[:4]:
    text = (case.findtext("system-out") or "").strip()
    print(f"{case.get('name')}:\n{text if len(text) < 2000 else text[:1000] + ' […] ' + text[-1000:]}\n")
END
[ "$not_run" -gt 0 ] && echo "$not_run skipped, for the reasons given in $build/Testing/Temporary/LastTest.log"
echo "$((tests - failures - not_run)) passed, $failures failed" > "$build/test-summary"
echo "${TEST_LABEL:+$TEST_LABEL: }$(< "$build/test-summary")"
exit $code
