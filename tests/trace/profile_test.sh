#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/profile from outside: profile_test.sh <scripts/profile> <penstock-trace> <traced program>.

set -euo pipefail
profile=$1 traced=$3
export PENSTOCK_TRACE=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Runs scripts/profile with the words behind it, which must exit with $1 and say $2.
exits_with() {
  local exit_code=0
  "$profile" "${@:3}" >out.txt 2>&1 || exit_code=$?
  [[ $exit_code == "$1" ]] || fail "exit status $exit_code, not $1: ${*:3}: $(cat out.txt)"
  grep --quiet --fixed-strings -- "$2" out.txt || fail "no '$2': ${*:3}: $(cat out.txt)"
}

exits_with 0 "measured: 19 steps" --whole --out mine --tool trace -- "$traced" clean
[[ -s $(echo mine/*/report.txt) ]] || fail "no report: $(ls -R)"
RANK=3 exits_with 0 "trace.html" --whole --out ranks --tool trace "$traced" clean
[[ -s $(echo ranks/*.rank3/trace.html) ]] || fail "no rank in the name: $(ls -R)"

# Every launcher's rank; of those within each other that of the inner one.
for setting in "OMPI_COMM_WORLD_RANK=4 SLURM_PROCID=0" PMIX_RANK=5 PMI_RANK=6 SLURM_PROCID=7 JOB_COMPLETION_INDEX=8; do
  rank=${setting%% *}
  read -r -a settings <<<"$setting"
  (export "${settings[@]}" && exits_with 0 "trace.html" --whole --out ranks --tool trace "$traced" clean)
  [[ -s $(echo ranks/*".rank${rank#*=}/trace.html") ]] || fail "$setting: $(ls -R)"
done

# nsys is a program that prints its arguments here.
mkdir tools
printf '#!/bin/sh\nprintf "%%s\\n" "$@"\nexit 6\n' >tools/nsys
chmod +x tools/nsys
RANK=3 PATH=$PWD/tools:$PATH exits_with 6 "profile" --out mine --tool nsys -- "$traced" clean
for argument in --capture-range=cudaProfilerApi --capture-range-end=stop --trace=cuda,nvtx,osrt \
  --output=mine/%h.%p.rank3 "$traced" clean; do
  grep --quiet --fixed-strings --line-regexp -- "$argument" out.txt || fail "no $argument: $(cat out.txt)"
done
PATH=$PWD/tools:$PATH exits_with 6 "--output=mine/%h.%p" --whole --out mine --tool nsys -- "$traced"
if grep --quiet capture-range out.txt; then fail "a capture range, though --whole: $(cat out.txt)"; fi
if ! command -v nsys >/dev/null; then
  exits_with 0 "nsys is not installed (" --whole --out mine -- "$traced" clean
  exits_with 1 "nsys is not installed; --tool trace" --tool nsys -- "$traced" clean
fi

exits_with 1 "no program" --tool trace
exits_with 1 "no program no_such_program" no_such_program
exits_with 1 "no program ./no_such_file" ./no_such_file
# Programs of a build are found by the end of their path, which has to be that of one program.
mkdir -p project/scripts project/build/{old,new}/examples/{train,infer}
cp "$profile" "$(dirname "$profile")/lib.sh" project/scripts
for folder in old/examples/train new/examples/train new/examples/infer; do
  cp /bin/true "project/build/$folder/baseline"
done
profile=project/scripts/profile exits_with 1 "are called baseline; name one of them: examples/infer/baseline, examples/train/baseline" baseline
profile=project/scripts/profile exits_with 1 "nothing was recorded" --whole --tool trace train/baseline
exits_with 1 "--tool gdb" --tool gdb "$traced"
exits_with 1 "no option --nonsense" --nonsense
exits_with 0 "--whole" --help
