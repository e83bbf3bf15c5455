#!/bin/bash
# A cluster on one machine: nodes are network namespaces behind a bridge, each with its own link. Needs root and iproute2.
#   cluster.sh up NODES [RATE [LATENCY]]   links shaped to RATE in both directions (500mbit); without it they are not shaped.
#                                     LATENCY (1ms, 250us) is added one way, by build/bin/delay_switch (DELAY_SWITCH)
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

pid_file=/tmp/$prefix.delay_switch

# Nodes joined by delay_switch instead of a bridge: kernels often come without netem. Port NODE becomes the node's eth0.
plug_delayed() {
  local count=$1 rate=$2 latency=$3 node ports=() delay_us rate_mbit
  local program=${DELAY_SWITCH:-$(dirname "$0")/../build/bin/delay_switch}
  case $latency in
    *us) delay_us=${latency%us} ;;
    *ms) delay_us=$(awk "BEGIN { print 1000 * ${latency%ms} }") ;;
    *) echo "latency is $latency, must be a time such as 1ms or 250us" >&2; exit 2 ;;
  esac
  case $rate in
    *mbit) rate_mbit=${rate%mbit} ;;
    *gbit) rate_mbit=$(awk "BEGIN { print 1000 * ${rate%gbit} }") ;;
    *) echo "rate is $rate, must be one such as 500mbit or 1gbit where there is latency" >&2; exit 2 ;;
  esac
  [ -x "$program" ] || { echo "latency needs $program, which is not there: make builds it" >&2; exit 2; }
  for ((node = 0; node < count; node++)); do ports+=("$prefix-p$node"); done
  setsid "$program" --delay_us "$delay_us" --rate_mbit "$rate_mbit" "$prefix-sw" "${ports[@]}" \
    < /dev/null > "$pid_file.log" 2>&1 &
  echo $! > "$pid_file"
  for ((node = 0; node < 100; node++)); do
    grep -q ready "$pid_file.log" && break
    kill -0 "$(< "$pid_file")" 2> /dev/null || break
    sleep 0.05
  done
  grep -q ready "$pid_file.log" || { cat "$pid_file.log" >&2; exit 2; }
  grep -v ready "$pid_file.log" >&2 || true
  for ((node = 0; node < count; node++)); do
    ip link set "$prefix-p$node" netns "$prefix-$node"
    ip -n "$prefix-$node" link set "$prefix-p$node" name eth0
    ip -n "$prefix-$node" link set eth0 txqueuelen 1000
    ip netns exec "$prefix-$node" tc qdisc add dev eth0 root tbf rate "$rate" burst $burst latency 20ms
  done
}

# Nodes on a bridge, each by a pair of interfaces; both ends are shaped.
plug() {
  local count=$1 rate=$2 node
  for ((node = 0; node < count; node++)); do
    ip link add "$prefix-p$node" type veth peer name eth0 netns "$prefix-$node"
    ip link set "$prefix-p$node" master "$prefix-sw"
    ip link set "$prefix-p$node" up
    if [ -n "$rate" ]; then
      tc qdisc add dev "$prefix-p$node" root tbf rate "$rate" burst $burst latency 20ms
      ip netns exec "$prefix-$node" tc qdisc add dev eth0 root tbf rate "$rate" burst $burst latency 20ms
    fi
  done
}

up() {
  local count=$1 rate=${2:-} latency=${3:-} node
  if ! ip netns add "$prefix-0" 2> /tmp/cluster.$$; then
    echo "no network namespaces here: $(cat /tmp/cluster.$$)" >&2
    rm -f /tmp/cluster.$$
    exit 77
  fi
  rm -f /tmp/cluster.$$
  for ((node = 1; node < count; node++)); do ip netns add "$prefix-$node"; done
  if [ -n "$latency" ]; then
    plug_delayed "$count" "$rate" "$latency"
  else
    ip link add "$prefix-sw" type bridge
    plug "$count" "$rate"
  fi
  ip address add "$subnet.254/24" dev "$prefix-sw"  # the machine itself, for launchers that start from here
  ip link set "$prefix-sw" up
  for ((node = 0; node < count; node++)); do
    ip -n "$prefix-$node" address add "$subnet.$((node + 1))/24" dev eth0
    ip -n "$prefix-$node" link set lo up
    ip -n "$prefix-$node" link set eth0 up
  done
}

down() {
  local name
  if [ -f "$pid_file" ]; then
    local attempt
    for ((attempt = 0; attempt < 100; attempt++)); do  # its interfaces go with it
      kill "$(< "$pid_file")" 2> /dev/null || break
      sleep 0.05
    done
    rm -f "$pid_file" "$pid_file.log"
  fi
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
  *) sed -n '2,9p' "$0"; exit 2 ;;
esac
