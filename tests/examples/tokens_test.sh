#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs examples/tokens, which checks its own results: tokens_test.sh <tokens>.

set -euo pipefail
if [[ -n ${NEEDS_GPU-} ]] && ! nvidia-smi -L 2> /dev/null | grep --quiet GPU; then
  echo "skipped: no GPU"
  exit 77
fi
out=$("$1")
echo "$out"
grep --quiet "^5000 texts, [0-9]* tokens, 0 wrong$" <<< "$out"
