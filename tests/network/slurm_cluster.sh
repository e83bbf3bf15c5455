#!/bin/bash
# A Slurm cluster of two nodes on this machine, for as long as a command runs on its login node: slurm_cluster.sh COMMAND …
# Its daemons, processes, mounts, networks and host names have namespaces of their own, which end with the command. Files are
# the machine's, as on a shared file system; /run is the cluster's, and /dev/shm each node's. Exit code 77, with the reason, where
# Slurm is not installed or namespaces cannot be made. The command finds the /etc/hosts of all nodes at $SLURM_CLUSTER_HOSTS.
set -euo pipefail
subnet=10.77.0
etc=/run/slurm

skip() {
  echo "skipped: $1"
  exit 77
}

# Debian's Slurm; newer ones read the same.
write_configuration() {
  mkdir -p $etc/state $etc/log /run/pmix
  cat > $etc/slurm.conf << END
ClusterName=weft
SlurmctldHost=login($subnet.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
AuthInfo=cred_expire=1
CredType=cred/none
StateSaveLocation=$etc/state
SlurmdSpoolDir=$etc/spool.%n
SlurmctldPidFile=$etc/slurmctld.pid
SlurmdPidFile=$etc/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
KillWait=10
ReturnToService=2
NodeName=n1 NodeAddr=$subnet.1 CPUs=4
NodeName=n2 NodeAddr=$subnet.2 CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
END
  echo "PMIxCliTmpDirBase=/run/pmix" > $etc/mpi.conf
  echo "CgroupAutomount=no" > $etc/cgroup.conf
  printf '127.0.0.1 localhost\n%s login\n%s n1\n%s n2\n' $subnet.254 $subnet.1 $subnet.2 > $SLURM_CLUSTER_HOSTS
  mount --bind $SLURM_CLUSTER_HOSTS /etc/hosts
}

start_node() {
  local node=$1
  ip netns add "n$node"
  ip link add "port$node" type veth peer name eth0 netns "n$node"
  ip link set "port$node" master switch up
  ip -n "n$node" address add "$subnet.$node/24" dev eth0
  ip -n "n$node" link set lo up
  ip -n "n$node" link set eth0 up
  nsenter --net="/run/netns/n$node" unshare --mount --uts --ipc bash -c "
    hostname n$node
    mount -t tmpfs tmpfs /run/pmix
    mount -t tmpfs tmpfs /dev/shm
    exec slurmd -D -N n$node" > "$etc/log/slurmd.n$node" 2>&1 < /dev/null &
}

start_cluster() {
  mount --make-rprivate /
  mount -t tmpfs tmpfs /run
  mkdir /run/netns
  export SLURM_CONF=$etc/slurm.conf SLURM_CLUSTER_HOSTS=/run/hosts
  write_configuration
  hostname login
  ip link set lo up
  ip link add switch type bridge
  ip address add $subnet.254/24 dev switch
  ip link set switch up
  slurmctld -D -c > $etc/log/slurmctld 2>&1 < /dev/null &
  start_node 1
  start_node 2
  local attempt
  for ((attempt = 0; attempt < 400; attempt++)); do
    [ "$(sinfo -h -t idle -o %D 2> /dev/null)" = 2 ] && return
    sleep 0.05
  done
  echo "Slurm's nodes do not come up:"
  tail -n 5 $etc/log/*
  exit 1
}

if [ "${1:-}" = --inside ]; then
  shift
  start_cluster
  "$@"
  exit
fi
[ "$(id -u)" -eq 0 ] || skip "making namespaces needs root"
for program in slurmctld slurmd srun sbatch ip nsenter; do
  command -v $program > /dev/null || skip "no $program (Debian: slurm-wlm, iproute2)"
done
apart=(unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc)
"${apart[@]}" bash -c 'mount --make-rprivate / && mount -t tmpfs tmpfs /run && ip link add switch type bridge' 2> /dev/null ||
  skip "namespaces cannot be made here"
exec "${apart[@]}" "$0" --inside "$@"
