#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# steps_test.sh SCRIPTS: what lib.sh counts of steps and of tests, skipped ones above all.
set -euo pipefail
scripts=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A report as ctest writes it: one test of each kind.
cat >"$scratch/tests.xml" <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)"
	tests="4"
	failures="1"
	disabled="1"
	skipped="1"
	hostname=""
	>
	<testcase name="good" classname="good" time="0.1" status="run"/>
	<testcase name="no_gpu" classname="no_gpu" time="0.1" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
	<testcase name="switched_off" classname="switched_off" time="0" status="disabled"/>
	<testcase name="bad" classname="bad" time="0.1" status="fail"><failure message=""/>
		<system-out>Filters: "good","bad"
right.cpp:7: FAILED</system-out>
	</testcase>
</testsuite>
END
sed '/bad/,/\/testcase/d; s/failures="1"/failures="0"/; s/tests="4"/tests="3"/' "$scratch/tests.xml" >"$scratch/skipped.xml"

# ends STATUS TEXT... -- COMMAND: what a script of this command ends with, and texts that it prints.
ends() {
  local wanted=$1 texts=() status=0 output text
  shift
  while [[ $1 != -- ]]; do texts+=("$1") && shift; done
  output=$(bash -euo pipefail -c "source '$scripts/lib.sh'; $2"$'\nfinish' "$scripts/test" 2>&1) || status=$?
  if [[ $status -ne $wanted ]]; then echo "FAILED: exit status $status, not $wanted: $2"$'\n'"$output" && exit 1; fi
  for text in "${texts[@]}"; do
    if [[ $output != *"$text"* ]]; then echo "FAILED: no \"$text\": $2"$'\n'"$output" && exit 1; fi
  done
}

# An argument that is empty comes from a variable that is not set.
for script in demo docs fuzz gpu-check setup soak test; do
  if output=$("$scripts/$script" "" 2>&1); then echo "FAILED: $script takes an empty argument" && exit 1; fi
  if [[ $output != "$script: one of the arguments is empty: is a variable not set?" ]]; then
    echo "FAILED: $script: $output" && exit 1
  fi
done

ends 0 "1 passed, 0 failed, 0 skipped" -- 'step one true'
ends 1 "FAILED" "0 passed, 1 failed, 0 skipped" -- 'step one false'
ends 0 "skipped" "1 passed, 0 failed, 1 skipped" -- 'step one true; step two sh -c "exit 77"'
ends 1 "1 passed, 1 failed, 2 skipped" "2 tests skipped" ": no_gpu" ": switched_off" ": bad" "  right.cpp:7: FAILED" -- \
  "reports+=('$scratch/tests.xml'); count_tests '$scratch/tests.xml'"
ends 0 "1 passed, 0 failed, 2 skipped" -- "reports+=('$scratch/skipped.xml'); count_tests '$scratch/skipped.xml'"
# Where nothing may be skipped.
ends 1 "Nothing may be skipped here" "1 passed, 2 failed, 0 skipped" ": no_gpu" -- \
  "skips_fail=yes; reports+=('$scratch/skipped.xml'); count_tests '$scratch/skipped.xml'"
ends 1 "1 passed, 1 failed, 0 skipped" -- 'skips_fail=yes; step one true; step two sh -c "exit 77"'
ends 0 "1 passed, 0 failed, 0 skipped" -- 'skips_fail=yes; step one true'
