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

# nsys is a program that prints its arguments here, and leaves what $LEAVES says in place of a report.
mkdir tools
cat >tools/nsys <<'END'
#!/bin/bash
printf '%s\n' "$@"
for argument; do
  if [[ $argument == --output=* && -n ${LEAVES:-} ]]; then echo recorded >"${argument#*=}.$LEAVES"; fi
done
exit 6
END
chmod +x tools/nsys

has_arguments() {
  local argument
  for argument; do
    grep --quiet --extended-regexp --line-regexp -- "$argument" out.txt || fail "no $argument: $(cat out.txt)"
  done
}

RANK=3 PATH=$PWD/tools:$PATH exits_with 6 "profile" --out mine --tool nsys -- "$traced" clean
has_arguments --capture-range=cudaProfilerApi --capture-range-end=stop --trace=cuda,nvtx,osrt "--output=mine/$(hostname)\.[0-9]+\.rank3" \
  "$traced" clean
grep --quiet 'no report: .* use --whole' out.txt || fail "nothing is said of the report that is missing: $(cat out.txt)"
PATH=$PWD/tools:$PATH exits_with 6 "--output=mine/$(hostname)." --whole --out mine --tool nsys -- "$traced"
if grep --quiet capture-range out.txt; then fail "a capture range, though --whole: $(cat out.txt)"; fi
# Of an emulated program there is no work of the driver, and no cudaProfilerStart.
ln -s "$traced" traced_emulated
PATH=$PWD/tools:$PATH exits_with 6 "nsys sees no CUDA call" --out mine --tool nsys -- ./traced_emulated
has_arguments --trace=nvtx,osrt
if grep --quiet capture-range out.txt; then fail "a capture range: $(cat out.txt)"; fi

# In a project of its own there is what scripts/setup nsys brings, or not.
mkdir -p project/scripts
cp "$profile" "$(dirname "$profile")/lib.sh" project/scripts
nsight=project/.deps/nsight/usr
if ! command -v nsys >/dev/null; then
  exits_with 0 "nsys is not installed (" --whole --out mine -- "$traced" clean
  profile=project/scripts/profile exits_with 1 "scripts/setup nsys has not brought it" --tool nsys -- "$traced" clean
  mkdir -p $nsight/bin && cp tools/nsys $nsight/bin
  profile=project/scripts/profile exits_with 6 "--trace=cuda,nvtx,osrt" --tool nsys -- "$traced" clean
fi
# An importer makes a report of what nsys leaves; without one, it is said what can be done.
LEAVES=qdstrm PATH=$PWD/tools:$PATH profile=project/scripts/profile exits_with 6 "is no report yet" --out left --tool nsys -- "$traced"
[[ -s $(echo left/*.qdstrm) ]] || fail "it is gone: $(ls -R left)"
mkdir -p $nsight/lib/nsight-systems/host-linux-x64
cat >$nsight/lib/nsight-systems/host-linux-x64/QdstrmImporter <<'END'
#!/bin/bash
cp "$2" "$4"
END
chmod +x $nsight/lib/nsight-systems/host-linux-x64/QdstrmImporter
LEAVES=qdstrm PATH=$PWD/tools:$PATH profile=project/scripts/profile exits_with 6 "profile" --out imported --tool nsys -- "$traced"
[[ $(ls imported) == *.nsys-rep ]] || fail "not a report alone: $(ls -R imported)"

# A launcher's signal reaches nsys, and what nsys leaves then is taken care of.
cat >tools/nsys <<'END'
#!/bin/bash
trap 'touch told; echo recorded >"${output#*=}.nsys-rep"; exit 143' TERM
for output; do [[ $output != --output=* ]] || break; done
touch begun
while sleep 0.05; do :; done
END
PATH=$PWD/tools:$PATH "$profile" --out signalled --tool nsys -- "$traced" >out.txt 2>&1 &
until [[ -e begun ]]; do sleep 0.02; done
kill -TERM $!
exit_code=0
wait $! || exit_code=$?
[[ $exit_code == 143 && -e told && -s $(echo signalled/*.nsys-rep) ]] || fail "exit status $exit_code: $(ls -R signalled) $(cat out.txt)"

exits_with 1 "no program" --tool trace
exits_with 1 "no program no_such_program" no_such_program
exits_with 1 "no program ./no_such_file" ./no_such_file
# Programs of a build are found by the end of their path, which has to be that of one program.
mkdir -p project/build/{old,new}/examples/{train,infer}
for folder in old/examples/train new/examples/train new/examples/infer; do
  cp /bin/true "project/build/$folder/baseline"
done
profile=project/scripts/profile exits_with 1 "are called baseline; name one of them: examples/infer/baseline, examples/train/baseline" baseline
profile=project/scripts/profile exits_with 1 "nothing was recorded" --whole --tool trace train/baseline
exits_with 1 "--tool gdb" --tool gdb "$traced"
exits_with 1 "no option --nonsense" --nonsense
exits_with 0 "--whole" --help
