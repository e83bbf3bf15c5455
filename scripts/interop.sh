#!/bin/bash
# Hands what Loom saves to the libraries of Hugging Face: interop.sh BUILD, whose test_loom_interop is built. The libraries
# come from PyPI, and torch's build for CPUs from PyTorch's own index (or the one that TORCH_INDEX names), in these
# versions, into a Python of their own in BUILD/interop, once. Fails if a test fails, or is skipped.
set -euo pipefail
build=$1
index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
versions=(numpy==2.4.6 safetensors==0.8.0 tokenizers==0.23.3 torch==2.13.0 transformers==5.23.0)

home=$build/interop
if [ "$(cat "$home/versions" 2> /dev/null)" != "${versions[*]}" ]; then
  rm -rf "$home"
  python3 -m venv "$home"
  "$home/bin/pip" install --quiet --extra-index-url "$index" "${versions[@]}"
  echo "${versions[*]}" > "$home/versions"
fi

results=$build/interop.log
LOOM_PYTHON=$(realpath -s "$home")/bin/python WEFT_TUNE=off WEFT_RECORDER_DIR=none \
  "$build/bin/test_loom_interop" --gtest_color=no | tee "$results"
if grep -q '^\[  SKIPPED \]' "$results"; then
  echo "interop: a test was skipped, although the libraries are there: ${versions[*]}" >&2
  exit 1
fi
echo "interop: $(sed -n 's/^\[  PASSED  \] //p' "$results") with ${versions[*]}"
