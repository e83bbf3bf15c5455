#!/bin/sh
# Makes a wheel of weft_torch for a Python and its torch, with libweft.so in it, and an sdist that builds all of it.
#   torch_wheel.sh FOLDER [BUILD]   into FOLDER, with the Weft of the build folder BUILD (build)
# PYTHON names the Python; without it that of `make test-torch` is taken where it exists, else python3.
set -eu
mkdir -p "$1"
folder=$(realpath "$1")
cd "$(dirname "$0")/.."
build=${2:-build}
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  [ ! -x "$build/torch-venv/bin/python" ] || PYTHON=$(realpath -s "$build/torch-venv/bin/python")
fi
"$PYTHON" -c "import torch, setuptools" || {
  echo "$PYTHON lacks torch or setuptools, for which the wheel would be; name another by PYTHON=, or type: make test-torch"
  exit 1
}
TORCH_WEFT_BUNDLE=1 TORCH_WEFT_HOME=${TORCH_WEFT_HOME:-$(realpath "$build/..")} "$PYTHON" -m pip wheel -q --no-build-isolation --no-deps -w "$folder" ./plugins/torch
(cd plugins/torch && "$PYTHON" setup.py -q sdist -d "$folder" > /dev/null 2>&1)
ls "$folder"/*.whl "$folder"/*.tar.gz
