#!/bin/bash
# The "ssh" of Open MPI's launcher inside a cluster of scripts/cluster.sh: namespace_agent.sh [options] HOST COMMAND …
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
node=$((${host##*.} - 1))
exec ip netns exec "${CLUSTER:-weft}-$node" unshare --uts -- sh -c "hostname node$node; $*"
