#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the make_cifar10 program from outside: make_cifar10_test.sh <make_cifar10>.

set -euo pipefail
make_cifar10=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

expect_error() {  # expect_error <exit code> <text in the error output> <argument>...
  local exit_code=0
  "$make_cifar10" "${@:3}" > out.txt 2> err.txt || exit_code=$?
  [[ $exit_code == "$1" ]] || fail "exit code $exit_code, not $1: ${*:3}: $(cat err.txt)"
  grep --quiet --fixed-strings -- "$2" err.txt || fail "no '$2' in: $(cat err.txt)"
}

"$make_cifar10" --out set --seed 7 --train 2000 --test 30 2> err.txt
grep --quiet '^2030/2030 records$' err.txt || fail "no progress in plain lines: $(cat err.txt)"
[[ $(stat --format=%s set/data_batch_3.bin set/test_batch.bin | xargs) == "1229200 92190" ]] || fail "sizes"
[[ $(wc --lines < set/batches.meta.txt) == 10 ]] || fail "class names"

"$make_cifar10" --out again --seed 7 --train 2000 --test 30 2> err.txt
diff --recursive set again || fail "the same seed gave other bytes"
"$make_cifar10" --out other --seed 8 --train 2000 --test 30 2> err.txt
! cmp --quiet set/data_batch_1.bin other/data_batch_1.bin || fail "another seed gave the same bytes"

expect_error 2 "set has a data set already; --force replaces it" --out set --seed 8 --train 2000 --test 30
diff --recursive set again || fail "refused, and changed it all the same"
"$make_cifar10" --out set --seed 8 --train 2000 --test 30 --force 2> err.txt
diff --recursive set other || fail "--force did not replace the set"

"$make_cifar10" --picture sheet.ppm
[[ $(head --bytes=15 sheet.ppm | xargs) == "P6 544 340 255" ]] || fail "the picture's header"
[[ $(stat --format=%s sheet.ppm) == $((15 + 544 * 340 * 3)) ]] || fail "the picture's size"

expect_error 2 "give --out DIR, --picture FILE or both"
expect_error 2 "--train" --out new --train 4
expect_error 2 "--test" --out new --test 0
expect_error 2 "--seed" --out new --seed x
expect_error 2 "--surprise" --out new --surprise
[[ ! -e new ]] || fail "wrong arguments made a directory"
touch in_the_way
expect_error 1 "in_the_way" --out in_the_way/set --train 5 --test 1
