#!/bin/bash
# A cluster on one machine: nodes are network namespaces behind a bridge, each with its own link. Needs root and iproute2.
#   cluster.sh up NODES [RATE]        links shaped to RATE in both directions (500mbit); without it they are not shaped
#   cluster.sh run RANKS PROGRAM …    starts RANKS ranks, in blocks over the nodes; the exit code of the first that fails
#   cluster.sh exec NODE COMMAND …    runs a command on a node
#   cluster.sh down
# CLUSTER (weft) prefixes all names, so that several clusters can stand side by side. Exit code 77 from `up`: this machine
# does not allow network namespaces.
set -euo pipefail
prefix=${CLUSTER:-weft}
subnet=10.$((100 + $(cksum <<< "$prefix" | cut -d' ' -f1) % 100)).0
# A burst below one segment of 64 KiB would make the kernel cut every segment, which costs more than the network.
burst=128k

nodes() { ip netns list | awk '{print $1}' | grep -cE "^$prefix-[0-9]+$" || true; }

up() {
  local count=$1 rate=${2:-} node
  if ! ip netns add "$prefix-0" 2> /tmp/cluster.$$; then
    echo "no network namespaces here: $(cat /tmp/cluster.$$)" >&2
    rm -f /tmp/cluster.$$
    exit 77
  fi
  rm -f /tmp/cluster.$$
  ip link add "$prefix-sw" type bridge
  ip address add "$subnet.254/24" dev "$prefix-sw"  # the machine itself, for launchers that start from here
  ip link set "$prefix-sw" up
  for ((node = 0; node < count; node++)); do
    [ "$node" -eq 0 ] || ip netns add "$prefix-$node"
    ip link add "$prefix-p$node" type veth peer name eth0 netns "$prefix-$node"
    ip link set "$prefix-p$node" master "$prefix-sw"
    ip link set "$prefix-p$node" up
    ip -n "$prefix-$node" address add "$subnet.$((node + 1))/24" dev eth0
    ip -n "$prefix-$node" link set lo up
    ip -n "$prefix-$node" link set eth0 up
    if [ -n "$rate" ]; then
      tc qdisc add dev "$prefix-p$node" root tbf rate "$rate" burst $burst latency 20ms
      ip netns exec "$prefix-$node" tc qdisc add dev eth0 root tbf rate "$rate" burst $burst latency 20ms
    fi
  done
}

down() {
  local name
  for name in $(ip netns list | awk '{print $1}' | grep -E "^$prefix-[0-9]+$" || true); do
    ip netns pids "$name" 2> /dev/null | xargs -r kill -9 2> /dev/null || true
    ip link delete "$prefix-p${name##*-}" 2> /dev/null || true
    ip netns delete "$name"
  done
  ip link delete "$prefix-sw" 2> /dev/null || true
}

run() {
  local ranks=$1 count rank node pids=() code=0
  shift
  count=$(nodes)
  [ "$count" -gt 0 ] || { echo "no cluster is up: cluster.sh up NODES" >&2; exit 2; }
  local secret port=$((20000 + RANDOM % 10000))
  secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  for ((rank = 0; rank < ranks; rank++)); do
    node=$((rank * count / ranks))
    WEFT_RANK=$rank WEFT_WORLD_SIZE=$ranks WEFT_ROOT=$subnet.1:$port WEFT_JOB_SECRET=$secret \
      ip netns exec "$prefix-$node" "$@" &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do
    wait "${pids[$rank]}" || { [ "$code" -ne 0 ] || code=$?; }
  done
  return $code
}

command=${1:-}
shift || true
case $command in
  up | down | run) "$command" "$@" ;;
  exec) node=$1; shift; exec ip netns exec "$prefix-$node" "$@" ;;
  *) sed -n '2,8p' "$0"; exit 2 ;;
esac
