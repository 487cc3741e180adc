#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check_compiler.sh COMPILER FILE... -- FLAG...
# Checks that COMPILER accepts every FILE without a warning. Exit status 77 (skipped): there is no
# such compiler here.
set -euo pipefail

compiler=$1
shift
files=()
while [[ $1 != -- ]]; do
  files+=("$1")
  shift
done
shift

if ! command -v "$compiler" >/dev/null; then
  echo "skipped: $compiler is not installed"
  exit 77
fi
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic \
    -Wshadow -Wconversion -Wsign-conversion -Werror "$@"
echo "$compiler accepts ${#files[@]} files"
