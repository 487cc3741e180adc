#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check_language.sh COMPILER FILE... -- FLAG...
# Checks that each FILE, read as C++17, is an error that says that penstock needs C++20.
set -euo pipefail

compiler=$1
shift
count=0
while [[ $1 != -- ]]; do
  files[count++]=$1
  shift
done
shift

for file in "${files[@]}"; do
  first=$("$compiler" -std=c++17 -E "$@" "$file" 2>&1 >/dev/null | grep -m 1 'error:' || true)
  if [[ $first != *"penstock needs C++20"* ]]; then
    echo "FAILED: ${file##*/}: ${first:-no error}"
    exit 1
  fi
done
echo "$count headers ask for C++20"
