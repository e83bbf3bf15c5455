#!/bin/bash
# Two nodes, whose ranks meet at the first one's name. That node has been told, as Debian tells its hosts, to call itself
# 127.0.1.1: own_name_test.sh SOURCE BIN. Skipped (77) where namespaces cannot be made.
set -euo pipefail
source=$1 bin=$2
[ "$(id -u)" -eq 0 ] || { echo "skipped: making network namespaces needs root"; exit 77; }
export CLUSTER=wn$((($$ + RANDOM) % 10000))
export WEFT_NET=tcp WEFT_RECORDER_DIR=none WEFT_TUNE=off
clean_up() {
  "$source/scripts/cluster.sh" down
  rm -rf "/etc/netns/$CLUSTER-0" "/etc/netns/$CLUSTER-1"
  rmdir --ignore-fail-on-non-empty /etc/netns 2> /dev/null || true
}
trap clean_up EXIT
code=0
"$source/scripts/cluster.sh" up 2 || code=$?
[ $code -eq 0 ] || { echo "skipped: a cluster of namespaces cannot be made here"; exit $code; }

address=$("$source/scripts/cluster.sh" exec 0 ip -4 -o address show dev eth0 | awk '{ sub("/.*", "", $4); print $4 }')
mkdir -p "/etc/netns/$CLUSTER-0" "/etc/netns/$CLUSTER-1" # what `ip netns exec` shows as /etc/hosts
printf '127.0.0.1 localhost\n127.0.1.1 first-node\n' > "/etc/netns/$CLUSTER-0/hosts"
printf '127.0.0.1 localhost\n%s first-node\n' "$address" > "/etc/netns/$CLUSTER-1/hosts"

export WEFT_WORLD_SIZE=2 WEFT_ROOT=first-node:$((20000 + RANDOM % 10000)) WEFT_INIT_TIMEOUT_S=20
WEFT_JOB_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export WEFT_JOB_SECRET
pids=()
for rank in 0 1; do
  WEFT_RANK=$rank timeout 60 "$source/scripts/cluster.sh" exec $rank "$bin/all_reduce_perf" -b 8 -e 64K -f 16 -n 3 -w 1 &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
