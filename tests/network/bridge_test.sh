#!/bin/bash
# Two nodes whose ranks meet over eth0, and which a bridge joins, too. libfabric lists the bridge before eth0. A job over libfabric's
# tcp uses eth0: it goes on when the bridge is removed, which no TCP connection over the bridge would notice. bridge_test.sh SOURCE BIN.
# Skipped (77) where namespaces cannot be made.
set -euo pipefail
source=$1 bin=$2
[ "$(id -u)" -eq 0 ] || { echo "skipped: making network namespaces needs root"; exit 77; }
export CLUSTER=wb$((($$ + RANDOM) % 10000))
export WEFT_NET=ofi WEFT_PROVIDER=tcp WEFT_RECORDER_DIR=none WEFT_TUNE=off
cluster=$source/scripts/cluster.sh
log=$(mktemp)
trap '"$cluster" down; rm -f "$log"' EXIT
code=0
"$cluster" up 2 || code=$?
[ $code -eq 0 ] || { echo "skipped: a cluster of namespaces cannot be made here"; exit $code; }

ip -n "$CLUSTER-0" link add port0 type veth peer name port0 netns "$CLUSTER-1"
for node in 0 1; do
  ip -n "$CLUSTER-$node" link add bridge0 type bridge
  ip -n "$CLUSTER-$node" link set port0 master bridge0 # libfabric asks for speeds, and a bridge has its port's
  ip -n "$CLUSTER-$node" address add "172.17.0.$((node + 1))/24" dev bridge0
  for interface in port0 bridge0; do ip -n "$CLUSTER-$node" link set "$interface" up; done
done

timeout 240 "$cluster" run 2 "$bin/all_reduce_perf" -T 20 -b 1K -e 4K -f 2 -n 1000 -w 1 > "$log" 2>&1 &
run=$!
for ((attempt = 0; attempt < 300; attempt++)); do
  grep -qE "^ +1024 " "$log" && break # the ranks are connected
  kill -0 $run 2> /dev/null || break
  sleep 0.1
done
for node in 0 1; do ip -n "$CLUSTER-$node" link delete bridge0; done
wait $run || code=$?
cat "$log"
[ $code -eq 0 ] && grep -q "Out of bounds values : 0 OK" "$log" && grep -q "over eth0" "$log"
