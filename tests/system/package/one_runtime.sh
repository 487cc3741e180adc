#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# one_runtime.sh PROGRAM static|shared
# Checks that the program has the CUDA runtime once: in itself, or as a shared library.
set -euo pipefail

shared=$(readelf --dynamic --wide "$1" | grep -c 'NEEDED.*libcudart\.so') || true
static=$(readelf --symbols --wide "$1" | grep -cE ' (FUNC) .* [0-9]+ cudaMalloc$') || true
echo "$1: shared libraries of the runtime: $shared; in the program: $static"
case $2 in
  static) [[ $shared -eq 0 && $static -ge 1 ]] ;;
  shared) [[ $shared -eq 1 && $static -eq 0 ]] ;;
  *) exit 2 ;;
esac
