#!/bin/bash
# Installs a build into a fresh prefix, and moves it, since nothing may depend on where it was: install_tree.sh BUILD PREFIX
set -euo pipefail
build=$1 prefix=$2
rm -rf "$prefix" "$prefix.before"
cmake --install "$build" --prefix "$prefix.before" > /dev/null
mv "$prefix.before" "$prefix"
if grep -rlF -e "$prefix.before" -e "$build" "$prefix" --include='*.cmake' --include='*.pc' --include='*.h'; then
  echo "these installed files name the directory they came from"
  exit 1
fi
