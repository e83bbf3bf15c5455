#!/bin/sh
# Installs torch and the backend weft_torch into a virtual environment in the build folder, and runs the backend's tests.
#   test_torch.sh BUILD [PYTEST ARGUMENTS ...]
# TORCH_VERSION chooses torch's version; the CPU wheels are enough.
set -eu
build=$1
shift
version=${TORCH_VERSION:-2.13.0}
venv=$(realpath "$build")/torch-venv
if ! "$venv/bin/python" -c "import torch, pytest; raise SystemExit(torch.__version__.split('+')[0] != '$version')" 2> /dev/null; then
  echo "Installing torch $version, numpy, pytest and setuptools with pip into $venv; output in $build/torch-venv.log"
  python3 -m venv "$venv"
  "$venv/bin/pip" install "torch==$version" numpy pytest setuptools > "$build/torch-venv.log" 2>&1 || { tail -20 "$build/torch-venv.log"; exit 1; }
fi
echo "Building weft_torch for torch $version and Weft in $build/lib, and installing it into $venv"
TORCH_WEFT_HOME=$(realpath "$build/..") "$venv/bin/pip" install --no-build-isolation --no-deps --force-reinstall ./plugins/torch \
  > "$build/torch-plugin.log" 2>&1 || { tail -20 "$build/torch-plugin.log"; exit 1; }
cd "$build"  # away from the sources, so that the installed package is tested
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@" "$OLDPWD/plugins/torch/tests"
