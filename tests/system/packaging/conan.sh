#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# conan.sh PROJECT OUTPUT: `conan create` of the core and the emulated runtime, with all remotes disabled. It runs the recipe's
# test_package.
set -euo pipefail
source "$(dirname "$0")/common.sh" "$@"

[[ -f $tools/bin/conan ]] || skip "there is no Conan: scripts/setup full brings it"
export PYTHONPATH=$tools CONAN_HOME=$output/home
conan() { python3 "$tools/bin/conan" "$@"; }

conan profile detect
conan remote disable '*'
options=(-o "&:with_cuda=$([[ $HAS_CUDA == ON ]] && echo True || echo False)")
conan create "$project/packaging/conan" "${options[@]}" -c tools.build:jobs=2 \
  -c tools.cmake.cmake_layout:test_folder="$output/test" 2>&1 | tee "$output/log"
grep --quiet '16 of 16 numbers arrived' "$output/log"
conan list --format=compact 'penstock/*'
