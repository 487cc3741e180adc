#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# release_test.sh ROOT: `scripts/release --check` accepts the version numbers of the project, and names each that is another one.
set -euo pipefail
root=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$root"
scripts/release --check

mkdir -p "$scratch/tests/system"
cp -r README.md CHANGELOG.md CITATION.cff cmake docs include scripts "$scratch"
cp -r tests/system/package "$scratch/tests/system"
cd "$scratch"

# refused FILE SED TEXT: after that change of the file the check fails, and prints the text.
refused() {
  local output
  cp "$1" kept
  sed -i -E "$2" "$1"
  if cmp -s kept "$1"; then echo "FAILED: $2 changes nothing in $1" && exit 1; fi
  if output=$(scripts/release --check 2>&1); then echo "FAILED: accepted after $2 in $1" && exit 1; fi
  if [[ $output != *"$3"* ]]; then echo "FAILED: no \"$3\" after $2 in $1:"$'\n'"$output" && exit 1; fi
  cp kept "$1"
}
refused include/penstock/version.hpp 's/(VERSION_MINOR) .*/\1 7/' "CITATION.cff: no line has"
refused include/penstock/version.hpp 's/(PENSTOCK_ABI v)[0-9]+_[0-9]+$/\19_9/' "version.hpp: no line has"
refused CITATION.cff 's/^version: .*/version: 9.9.9/' "CITATION.cff: no line has: ^version"
refused CHANGELOG.md '0,/^## [0-9].*/s//## 9.9.9 (2026-01-01)/' "CHANGELOG.md: no line has"
refused CHANGELOG.md '0,/^(## [0-9.]+) .*/s//\1 (soon)/' "CHANGELOG.md: no line has"
refused README.md 's/^Version [0-9.]+/Version 9.9.9/' "README.md: no line has"
refused README.md 's/find_package\(penstock [0-9.]+/find_package(penstock 9.9/' "README.md: is for another version"
scripts/release --check
