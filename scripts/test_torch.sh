#!/bin/sh
# Installs torch and the backend weft_torch into a virtual environment in the build folder, and runs the backend's tests.
#   test_torch.sh BUILD [PYTEST ARGUMENTS ...]
# TORCH_VERSION chooses torch's version; the CPU wheels are enough. TORCH_FRAMEWORKS lists what is installed on top of it, for
# the examples that need it; set it to nothing for the others alone. TORCH_INSTALL_SECONDS limits the time of pip.
# Exit code 77: pip could not install torch.
set -eu
build=$1
shift
version=${TORCH_VERSION:-2.13.0}
frameworks=${TORCH_FRAMEWORKS-accelerate==1.15.0 deepspeed==0.19.8 lightning==2.6.6 transformers==5.24.0}
venv=$(realpath "$build")/torch-venv
wanted="torch==$version numpy pytest setuptools>=70.1 ninja expecttest"
if [ "$(cat "$venv/wanted" 2> /dev/null)" != "$wanted $frameworks" ]; then
  echo "Installing $wanted $frameworks with pip into $venv; output in $build/torch-venv.log"
  # DeepSpeed's setup looks at the torch that is installed.
  install="timeout ${TORCH_INSTALL_SECONDS:-3600} $venv/bin/pip install"
  { python3 -m venv "$venv" && $install $wanted && { [ -z "$frameworks" ] || $install --no-build-isolation $frameworks; }; } \
    > "$build/torch-venv.log" 2>&1 || { tail -20 "$build/torch-venv.log"; exit 77; }
  echo "$wanted $frameworks" > "$venv/wanted"
fi
echo "Building weft_torch for torch $version and Weft in $build/lib, and installing it into $venv"
TORCH_WEFT_HOME=$(realpath "$build/..") "$venv/bin/pip" install --no-build-isolation --no-deps --force-reinstall ./plugins/torch \
  > "$build/torch-plugin.log" 2>&1 || { tail -20 "$build/torch-plugin.log"; exit 1; }
cd "$build"  # away from the sources, so that the installed package is tested
exec "$venv/bin/python" -m pytest -q -o cache_dir="$venv/pytest-cache" "$@" "$OLDPWD/plugins/torch/tests"
