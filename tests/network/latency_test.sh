#!/bin/bash
# A cluster with 2 ms of latency: an AllReduce of 8 bytes takes at least one way, and long ones come out right:
# latency_test.sh SOURCE BIN. Skipped (77) where such a cluster cannot be made.
set -euo pipefail
source=$1 bin=$2
[ "$(id -u)" -eq 0 ] || { echo "skipped: making network namespaces needs root"; exit 77; }
command -v tc > /dev/null || { echo "skipped: no tc (iproute2)"; exit 77; }
[ -c /dev/net/tun ] || { echo "skipped: no /dev/net/tun"; exit 77; }
export CLUSTER=wl$((($$ + RANDOM) % 10000)) WEFT_RECORDER_DIR=none DELAY_SWITCH=$bin/delay_switch
cluster=$source/scripts/cluster.sh
trap '"$cluster" down' EXIT

for words in "500mbit 2" "fast 2ms"; do  # mistakes are told
  # shellcheck disable=SC2086
  if "$cluster" up 2 $words 2> /dev/null; then echo "cluster.sh up 2 $words: should have failed"; exit 1; fi
  "$cluster" down
done
code=0
"$cluster" up 3 500mbit 2ms || code=$?
[ $code -eq 0 ] || { echo "skipped: a cluster of namespaces cannot be made here"; exit 77; }

output=$(timeout 60 "$cluster" run 3 "$bin/all_reduce_perf" --sizes 8,256K -n 5 -w 2)
echo "$output"
grep -q "Out of bounds values : 0 OK" <<< "$output"
awk '$1 == 8 { found = 1; if ($6 < 2000) { print "an AllReduce took " $6 " us, less than the latency"; exit 1 } }
     END { exit !found }' <<< "$output"
"$cluster" down
if pgrep -f "delay_switch.*$CLUSTER-sw" > /dev/null; then echo "delay_switch is still there"; exit 1; fi
