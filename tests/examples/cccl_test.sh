#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs examples/cccl, which checks its own results: cccl_test.sh <cccl>.

set -euo pipefail
if [[ -n ${NEEDS_GPU-} ]] && ! nvidia-smi -L 2> /dev/null | grep --quiet GPU; then
  echo "skipped: no GPU"
  exit 77
fi
out=$("$1")
echo "$out"
grep --quiet "^20000 windows, 16 sensors, 0 wrong$" <<< "$out"
