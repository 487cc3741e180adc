#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a recipe, which checks its own result, in an empty folder: recipe_test.sh <program>.

set -euo pipefail
if [[ -n ${NEEDS_GPU-} ]] && ! nvidia-smi -L 2> /dev/null | grep --quiet GPU; then
  echo "skipped: no GPU"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
timeout 120 "$1"
