#!/bin/bash
# What lintian has to say of the Debian package: no error, and no warning but those that our overrides explain. lintian.sh PACKAGES
set -euo pipefail
command -v lintian > /dev/null || { echo "skipped: no lintian"; exit 77; }
package=$(find "$1" -maxdepth 1 -name 'weft_*.deb')
lintian --allow-root --fail-on error,warning "$package"
