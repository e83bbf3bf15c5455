#!/bin/bash
# Installs what is missing to build and test Weft, with apt-get. Does nothing, at once, when nothing is missing. What apt-get
# says goes to deps.log in the build directory (BUILD, else build), or to a file in /tmp where that cannot be written; its last
# lines are shown if it fails.
# deps.sh --peers installs the libraries that perf/compare.py measures Weft against instead; Weft needs none of them.
# deps.sh --interop installs what `make interop` makes a Python of its own with, instead.
# deps.sh --torch installs what `make test-torch` makes a Python of its own with, and builds the backend with, instead.
# deps.sh --tests installs what a few tests need, and are skipped without, instead: Slurm, what makes a fresh
# Debian, clang, and a parser of YAML. No service is started.
# deps.sh --fuzz installs clang with its fuzzer, sanitizers and OpenMP, instead.
set -euo pipefail

required=(
  gcc g++ cmake ninja-build pkg-config dpkg-dev file iproute2 python3
  libfabric-dev libhwloc-dev libfmt-dev libcli11-dev nlohmann-json3-dev libpmix-dev libgtest-dev libbenchmark-dev
  libicu-dev libdnnl-dev ocl-icd-opencl-dev  # oneDNN's CMake files look for OpenCL, which its package only recommends
)

if [ "${1:-}" = --peers ]; then
  required=(g++ openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev)
elif [ "${1:-}" = --interop ]; then
  required=(python3 python3-venv)
elif [ "${1:-}" = --torch ]; then
  required=(g++ python3 python3-venv python3-dev)
elif [ "${1:-}" = --fuzz ]; then
  required=(clang libclang-rt-dev libomp-dev)
elif [ "${1:-}" = --tests ]; then
  required=(slurm-wlm libpmix-dev debootstrap lintian clang python3-yaml)  # srun --mpi=pmix asks for libpmix.so, which libpmix-dev has
fi

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "deps: this is not Debian or Ubuntu; make sure that you have what these packages hold: ${required[*]}"
  exit 0
fi

# A name may be provided by another package (pkg-config by pkgconf), so ask apt only about what dpkg does not have.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package} ${Provides}\n' | sed -n 's/^installed //p' | tr ' ,' '\n\n')
missing=()
for package in "${required[@]}"; do
  grep -qxF -- "$package" <<< "$installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

build=${BUILD:-$(dirname "$0")/../build}
log=$build/deps.log
if ! mkdir -p "$build" 2> /dev/null || [ ! -w "$build" ]; then log=$(mktemp --tmpdir deps.XXXXXX.log); fi
[ ${#missing[@]} -eq 1 ] && packages=package || packages=packages
echo "deps: installing ${#missing[@]} $packages (log: $log): ${missing[*]}"
become_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "deps: not root and no sudo; as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  become_root=(sudo)
fi
apt() { "${become_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"; }

# Packages ask this program, where there is one, whether to start their services.
policy=/usr/sbin/policy-rc.d
if [ "${1:-}" = --tests ] && [ ! -e $policy ]; then
  trap '"${become_root[@]}" rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${become_root[@]}" tee $policy > /dev/null
  "${become_root[@]}" chmod 755 $policy
fi
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; } > "$log" 2>&1; then
  echo "deps: apt-get failed; the end of $log:" >&2
  tail -n 15 "$log" >&2
  exit 1
fi
