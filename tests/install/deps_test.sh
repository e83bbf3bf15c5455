#!/bin/bash
# scripts/deps.sh beside a dpkg and an apt-get of ours: it prints one line, and apt-get's eight hundred go to the log, whose end is
# shown when apt-get fails. deps_test.sh SOURCE WORK
set -euo pipefail
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/bin"
export BUILD=$work/build PATH=$work/bin:$PATH
program() {
  { echo '#!/bin/bash'; cat; } > "$work/bin/$1"
  chmod +x "$work/bin/$1"
}
program sudo <<< 'exec "$@"'
program dpkg-query <<< "cat $work/installed"
program apt-get << END
[[ " \$* " == *" install "* ]] || exit 0
seq --format='Unpacking %g' 800
[ ! -e $work/broken ] || { echo "E: Unable to locate package gcc" >&2; exit 100; }
END

touch "$work/installed"
output=$("$source/scripts/deps.sh" 2>&1)
echo "$output"
[ "$(wc -l <<< "$output")" -eq 1 ] || { echo "must print one line"; exit 1; }
grep -qE "^deps: installing [0-9]+ packages \(log: $BUILD/deps.log\): gcc g\+\+ " <<< "$output"
grep -q "Unpacking 800" "$BUILD/deps.log"

output=$(BUILD=/proc/read-only "$source/scripts/deps.sh" 2>&1) || { echo "must install from a read-only checkout, too"; exit 1; }
log=$(sed -n 's/.*(log: \(.*deps\.[^)]*\.log\)).*/\1/p' <<< "$output")
grep -q "Unpacking 800" "$log"
rm "$log"

touch "$work/broken"
code=0
output=$("$source/scripts/deps.sh" 2>&1) || code=$?
[ $code -eq 1 ] || { echo "must fail, but ended with $code"; exit 1; }
[ "$(wc -l <<< "$output")" -le 20 ] || { echo "must show no more than the end of the log"; exit 1; }
grep -q "E: Unable to locate package gcc" <<< "$output"

sed 's/.* packages (log: [^)]*): //; q' <<< "$output" | tr ' ' '\n' | sed 's/^/installed /' > "$work/installed"
[ -z "$("$source/scripts/deps.sh" 2>&1)" ] || { echo "must say nothing when nothing is missing"; exit 1; }
rm -rf "$work"
