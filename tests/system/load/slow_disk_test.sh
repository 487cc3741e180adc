#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# An example over a bad disk: slow_disk_test.sh <case> <slow disk> <quickstart> <make_cifar10>. A case is
# one of the functions below. Works in a temporary directory of its own.

set -euo pipefail
disk=$2 quickstart=$3 make_cifar10=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# on_disk OPTIONS COMMAND...
on_disk() {
  PENSTOCK_SLOW_DISK=match=_batch_,seed=5,$1 PENSTOCK_SLOW_DISK_REPORT=$work/report.txt LD_PRELOAD=$disk "${@:2}"
}

# did WHAT: the disk did so.
did() { grep --quiet --extended-regexp "^$1 [1-9]" report.txt || fail "the disk was a good one: $(cat report.txt)"; }

"$make_cifar10" --out data --train 3000 --test 10 --seed 3 2>/dev/null

# The same result as on a good disk; --verify reads by std::ifstream too.
slow() {
  local workers
  for workers in 1 4; do
    on_disk short=0.3,interrupted=0.2,slow=0.02,delay_us=200 \
      "$quickstart" --data data --batch 64 --epochs 2 --shuffle --verify --workers "$workers" >out.txt 2>err.txt ||
      fail "$(cat out.txt err.txt)"
    grep --quiet '^6000 samples$' out.txt || fail "not 6000 samples: $(cat out.txt)"
    grep --quiet '^verify: equal to' out.txt || fail "not verified: $(cat out.txt)"
    did short
    did interrupted
    did slow
  done
}

# What cannot be read ends it, and is named with its file.
damaged() {
  local exit_code=0
  on_disk short=0.3,interrupted=0.2,damaged=0.002 "$quickstart" --data data --batch 64 >out.txt 2>err.txt || exit_code=$?
  [[ $exit_code != 0 ]] || fail "no error: $(cat out.txt err.txt)"
  grep --quiet --extended-regexp 'data_batch_[1-5]\.bin.*Input/output error' err.txt || fail "$(cat err.txt)"
  did failed
}

"$1"
