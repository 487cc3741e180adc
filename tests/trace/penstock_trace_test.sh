#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# penstock-trace from outside: penstock_trace_test.sh <case> <penstock-trace> <traced> <program>. A
# case is one of the functions below. Works in a temporary directory of its own.

set -euo pipefail
trace=$2 traced=$3 program=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Runs the words behind it, which must exit with $1; keeps what is printed in out.txt and err.txt.
exits_with() {
  local exit_code=0
  "${@:2}" > out.txt 2> err.txt || exit_code=$?
  [[ $exit_code == "$1" ]] || fail "exit code $exit_code, not $1: ${*:2}: $(cat out.txt err.txt)"
}

says() {  # says <text> <file>
  grep --quiet --fixed-strings -- "$1" "$2" || fail "no '$1' in $2: $(cat "$2")"
}

count() {  # count <text> <file>: in how many lines
  grep --count --fixed-strings -- "$1" "$2" || true
}

has_results() {  # has_results <directory>
  local file
  for file in trace.recording trace.json trace.html report.txt report.json findings.json; do
    [[ -s $1/$file ]] || fail "no $1/$file: $(ls -R .)"
  done
}

# An example as it is: what it prints comes first and whole, then the report.
example() {
  local arguments=(--cache . --records 500 --batch 16 --verify)
  "$program" "${arguments[@]}" > /dev/null 2>&1  # makes the data
  "$program" "${arguments[@]}" 2> /dev/null | grep -A 99 samples$ > alone.txt
  exits_with 0 "$trace" --out out -- "$program" "${arguments[@]}"
  grep -A 99 samples$ out.txt > rest.txt
  head --lines="$(wc --lines < alone.txt)" rest.txt | diff - alone.txt || fail "its output is changed"
  has_results out
  says 'recorded by emulated CUDA runtime' out/report.txt
  says 'step: mean' out/report.txt
  [[ $(count '"ph":"X"' out/trace.json) != 0 ]] || fail "an empty trace"
}

# Another one, whose kernel is a function of its own.
minimal() {
  head --bytes=$((3073 * 512)) /dev/zero | tee data_batch_1.bin > data_batch_2.bin
  exits_with 0 "$trace" --out out -- "$program"
  has_results out
  says 'fill (penstock)' out/report.txt
  says 'train_step' out/trace.json
  says 'host to device, pinned' out/report.txt
}

files() {
  exits_with 0 "$trace" --out out -- "$traced" clean
  has_results out
  says 'measured: 19 steps ("step")' out/report.txt
  says 'Scale' out/report.txt
  says 'host to device, pinned' out/report.txt
  diff <(tail --lines=+1 out.txt) out/report.txt || fail "the report is not what was printed"
  exits_with 0 "$trace" --quiet --out out -- "$traced" clean
  [[ ! -s out.txt && ! -s err.txt ]] || fail "printed: $(cat out.txt err.txt)"
}

again() {
  exits_with 0 "$trace" --out out -- "$traced" clean
  exits_with 0 "$trace" report out/trace.recording --out again
  diff out/report.txt again/report.txt || fail "another report of the same recording"
  diff out/trace.json again/trace.json || fail "another trace of the same recording"
  exits_with 0 "$trace" report out/trace.recording --step nothing
  exits_with 3 "$trace" report out/trace.recording --fail-on any --step nothing
  exits_with 0 "$trace" report out/trace.recording --host-to-device 1000000
  grep --quiet 'host to device, pinned .* 0\.0 %$' out.txt || fail "copies at full speed: $(cat out.txt)"
  exits_with 0 "$trace" report out/trace.recording --fail-on gap --gap 1000000
  local value
  for value in nan inf -1; do
    exits_with 2 "$trace" report out/trace.recording --gap "$value"
    exits_with 2 "$trace" report out/trace.recording --samples-per-step "$value"
  done
  says 'finite' err.txt
  exits_with 1 sh -c "'$trace' report out/trace.recording > /dev/full"
  says 'output cannot be written' err.txt
  mkfifo pipe.recording
  exits_with 1 timeout 60 "$trace" report pipe.recording
  says 'pipe.recording: no recording of penstock::trace: it is no regular file' err.txt
  truncate --size=-1 out/trace.recording
  exits_with 1 "$trace" report out/trace.recording
  says 'out/trace.recording: a damaged recording' err.txt
  exits_with 1 "$trace" report nowhere
  says 'nowhere: No such file' err.txt
}

exit_codes() {
  exits_with 9 "$trace" --out out -- "$traced" fails
  has_results out
  exits_with 5 "$trace" --out quick -- "$traced" quick
  has_results quick
  exits_with 127 "$trace" --out none -- ./nowhere
  says 'cannot run ./nowhere: No such file' err.txt
  exits_with 1 "$trace" --out err.txt/none -- "$traced"
  says 'cannot make the directory err.txt/none: Not a directory' err.txt
  touch plain
  exits_with 126 "$trace" --out none -- ./plain
  exits_with 1 "$trace" --out none -- true
  says 'nothing was recorded: the program made no call of CUDA' err.txt
  exits_with 7 "$trace" --out none -- sh -c 'exit 7'
  exits_with 7 env --ignore-signal=CHLD "$trace" --out none -- sh -c 'exit 7'
  exits_with 137 "$trace" --out none -- sh -c 'kill -KILL $$'
  says 'ended by signal 9' err.txt
  [[ ! -e none ]] || fail "left behind: $(ls -R none)"
  exits_with 2 "$trace"
  says 'which program?' err.txt
  exits_with 2 "$trace" --no-such-option -- "$traced"
  says '--no-such-option' err.txt
  exits_with 2 "$trace" --max-events 0 -- "$traced"
  exits_with 0 "$trace" --help
  says '--fail-on' out.txt
}

fail_on() {
  exits_with 0 "$trace" --out out --fail-on synchronous-copy,pageable-copy -- "$traced" clean
  exits_with 3 "$trace" --out out --fail-on synchronous-copy -- "$traced" synchronous
  says 'synchronous-copy' out/report.txt
  says '"synchronous-copy"' out/findings.json
  exits_with 3 "$trace" --out out --fail-on gap,pageable-copy,allocation -- "$traced" pageable
  exits_with 3 "$trace" --out out --fail-on any -- "$traced" pageable
  exits_with 0 "$trace" --out out --fail-on synchronous-copy -- "$traced" pageable
  exits_with 2 "$trace" --out out --fail-on slow -- "$traced" clean
  says "no rule 'slow'" err.txt
  says 'launch-bound' err.txt
  exits_with 9 "$trace" --out out --fail-on any -- "$traced" fails  # its own code goes first
}

options() {
  exits_with 0 "$trace" --out out --capture-range -- "$traced" range
  says '4 steps ("step")' out/report.txt  # the fifth, apart, is the first one
  exits_with 1 "$trace" --out out --capture-range -- "$traced" clean  # which has none
  says 'the program called no cudaProfilerStart' err.txt
  exits_with 9 "$trace" --out out --capture-range -- "$traced" fails
  exits_with 0 "$trace" --out out --max-events 10 -- "$traced" clean
  says 'dropped' out/report.txt
  exits_with 0 "$trace" --out out --samples-per-step 32 -- "$traced" clean
  says 'samples/s' out/report.txt
  exits_with 0 "$trace" --out out "$traced" clean  # without the dashes
  has_results out
}

names() {
  exits_with 0 "$trace" -- "$traced" clean
  compgen -G "penstock-trace-$(hostname)-*" > directories.txt || fail "no directory: $(ls)"
  grep --quiet -- '-[0-9]*$' directories.txt || fail "$(cat directories.txt)"
  has_results "$(cat directories.txt)"
  RANK=3 exits_with 0 "$trace" --out 'run-%r-%h%%' -- "$traced" clean
  has_results "run-3-$(hostname)%"
  # Not all that a launcher sets, and the number of ranks is among it.
  local rank
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=4 exits_with 0 "$trace" --out "some/$rank" -- "$traced" clean
  done
  exits_with 0 "$trace" merge some
  says 'of 4 ranks 2 left no recording: 2, 3' out.txt
}

# Each process of a program that starts others records what it does.
processes() {
  exits_with 0 "$trace" --out out -- sh -c "$traced clean & $traced clean; wait"
  local directories=(out/*/)
  [[ ${#directories[@]} == 2 ]] || fail "not two: $(ls -R out)"
  has_results "${directories[0]}"
  has_results "${directories[1]}"
}

# Programs that are killed or crash leave a recording as well.
killed() {
  exits_with 134 "$trace" --out aborted -- "$traced" abort
  has_results aborted
  local times
  for times in 1 2 3 4 5; do
    # In two threads at once. AddressSanitizer has a handler of its own, unless it is told not to.
    ASAN_OPTIONS=handle_segv=0 exits_with 139 "$trace" --out "crashed $times" -- "$traced" crash
    has_results "crashed $times"
  done
  mkfifo pipe
  local pid line exit_code=0
  "$trace" --out killed -- "$traced" wait > pipe 2> err.txt &  # heeds no signal
  pid=$!
  exec 3< pipe
  read -r line <&3
  [[ $line == ready ]] || fail "the first line is: $line"
  kill -TERM "$pid"
  cat <&3 > out.txt
  wait "$pid" || exit_code=$?
  [[ $exit_code == 143 ]] || fail "exit code $exit_code: $(cat err.txt)"
  has_results killed
  says '19 steps' out.txt
}

# Work that nobody waits for is waited for at the end of the program.
unfinished() {
  local schedule
  for schedule in eager lazy random,seed=1; do
    PENSTOCK_EMULATION=schedule=$schedule exits_with 0 "$trace" --out out -- "$traced" unfinished
    [[ $(count '"cat":"kernel"' out/trace.json) == 20 ]] || fail "$schedule: $(cat out.txt)"
    [[ $(count '"cat":"copy"' out/trace.json) == 20 ]] || fail "$schedule: $(cat out.txt)"
  done
}

# Ctrl-C, to a program that ends its work then.
interrupt() {
  mkfifo pipe
  local pid line exit_code=0
  "$program" --cache . --records 500 > /dev/null 2> /dev/null  # makes the data
  "$trace" --out out -- "$program" --cache . --records 500 --batch 1 --epochs 1000000 --slow-source 1 > out.txt 2> pipe &
  pid=$!
  exec 3< pipe
  read -r line <&3  # the pipeline starts
  kill -INT "$pid"
  cat <&3 > err.txt
  wait "$pid" || exit_code=$?
  [[ $exit_code == 130 ]] || fail "exit code $exit_code: $(cat err.txt)"
  has_results out
}

# A library that cannot be injected is told of, and the program runs all the same. The last is a tool for CUDA's driver.
injection() {
  CUDA_INJECTION64_PATH=./nowhere exits_with 0 "$traced" clean
  says 'penstock: CUDA_INJECTION64_PATH=./nowhere: ' err.txt
  CUDA_INJECTION64_PATH=libm.so.6 exits_with 0 "$traced" clean
  says 'it has no InitializeInjection' err.txt
  CUDA_INJECTION64_PATH=$program exits_with 0 "$traced" clean
  says 'the CUDA runtime is emulated: left alone' err.txt
  local library
  library=$(dirname "$trace")/libpenstock_trace_inject.so
  CUDA_INJECTION64_PATH=$library exits_with 0 "$traced" clean  # nobody asked for a recording
  [[ ! -s err.txt ]] || fail "$(cat err.txt)"
}

# Why a process could not record is told once, by the run that it belongs to.
errors() {
  mkdir out
  echo 'no device' > out/4711.error
  exits_with 1 "$trace" --out out -- true
  says 'nothing was recorded: no device' err.txt
  [[ -d out && -z $(ls -A out) ]] || fail "left behind: $(ls -R out)"
}

# What was there before stays: an empty directory; a link among the files, whose target is replaced.
own_files() {
  mkdir mine
  exits_with 1 "$trace" --out mine -- true
  exits_with 127 "$trace" --out mine -- ./nowhere
  [[ -d mine ]] || fail 'the directory is gone'
  echo old > elsewhere.txt
  ln -s ../elsewhere.txt mine/report.txt
  exits_with 0 "$trace" --out mine -- "$traced" clean
  [[ -L mine/report.txt ]] || fail 'the link is gone'
  diff elsewhere.txt out.txt || fail 'the report is not where the link leads to'
}

# A program that has become another user says itself why there is no recording.
other_user() {
  if [[ $(id -u) != 0 ]]; then
    echo 'skipped: only root can become another user'
    exit 77
  fi
  chmod 755 .
  exits_with 1 "$trace" --out out -- "$traced" drops_root
  grep --quiet --extended-regexp 'process [0-9]+: nothing is recorded, as user 65534: cannot write .*: Permission denied' \
    err.txt || fail "$(cat err.txt)"
  says 'or became a user that cannot write to out' err.txt
  [[ ! -e out ]] || fail "left behind: $(ls -R out)"
}

# A limit on file sizes is told, by whom it stops, and leaves no partial file. Of the program it stays as it is.
limits() {
  exits_with 1 bash -c "ulimit -f 1; exec '$trace' --out out -- '$traced' clean"
  says 'nothing was recorded: cannot write' err.txt
  says '(ulimit -f): File too large' err.txt
  [[ ! -e out ]] || fail "left behind: $(ls -R out)"
  exits_with 9 bash -c "ulimit -f 1; exec '$trace' --out out -- '$traced' fails"
  exits_with 153 "$trace" --out out -- bash -c 'ulimit -f 1; exec cat /dev/zero > large'
  exits_with 0 "$trace" --out out -- "$traced" clean
  exits_with 1 bash -c "ulimit -f 8; exec '$trace' report out/trace.recording --out again"
  says 'again/trace.json, since files may have 8192 bytes (ulimit -f): File too large' err.txt
  if compgen -G 'again/*'; then fail 'a partial file is left'; fi
}

# An empty value comes from a variable that is not set, and would turn off what was asked for.
words() {
  local option rules
  for option in --out --step --fail-on --gap --samples-per-step --max-events --last --dump-signal --dump-when; do
    exits_with 2 "$trace" "$option" "" -- "$traced" clean
    says "$option: the value is empty" err.txt
    exits_with 2 "$trace" "$option=" -- "$traced" clean
    says "$option: the value is empty" err.txt
  done
  exits_with 2 "$trace" report ""
  exits_with 2 "$trace" report out/trace.recording --fail-on ""
  exits_with 2 "$trace" merge --out "" runs
  for rules in any,slow slow,any 'gap,' ',gap' gap,,any ','; do
    exits_with 2 "$trace" --fail-on "$rules" -- "$traced" clean
    says "--fail-on: no rule '" err.txt
  done
  for option in 0 -1 1e6 99999999999999999999999 18446744073709551616; do
    exits_with 2 "$trace" --max-events "$option" -- "$traced" clean
    says "--max-events: Value $option is not a whole number from 1 to 9223372036854775807" err.txt
    [[ $(wc --bytes < err.txt) -lt 300 ]] || fail "long: $(cat err.txt)"
  done
  # shellcheck disable=SC2016
  exits_with 1 "$trace" --out none -- sh -c '[ $# = 2 ] && [ -z "$1" ] && [ -z "$2" ]' sh "" ""  # are the program's
  says 'nothing was recorded' err.txt
}

# A launcher sends a signal to the whole process group: the program gets it once, as from a terminal.
# Killed, penstock-trace takes the program with it.
signals() {
  local pid exit_code=0
  cat > counts.py <<'END'
import pathlib, signal, sys, time
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
pathlib.Path("started").write_text("yes")
while not came: time.sleep(0.01)
time.sleep(0.3)
sys.exit(10 + len(came))
END
  setsid "$trace" -- python3 counts.py 2> err.txt &
  pid=$!
  until [[ -s started ]]; do sleep 0.02; done
  kill -TERM -- "-$pid"
  wait "$pid" || exit_code=$?
  [[ $exit_code == 11 ]] || fail "exit code $exit_code: $(cat err.txt)"

  rm started
  # shellcheck disable=SC2016
  setsid "$trace" -- bash -c 'echo $$ > started; exec sleep 100' 2> err.txt &
  pid=$!
  until [[ -s started ]]; do sleep 0.02; done
  kill -KILL "$pid"
  wait "$pid" || true
  local tries
  for tries in {1..250}; do
    if ! kill -0 "$(cat started)" 2> /dev/null; then return; fi
    sleep 0.02
  done
  fail "the program is left behind, after $tries tries"
}

# One recorder at a time.
session() {
  exits_with 0 "$trace" --quiet --out out -- "$traced" session
  says 'observed already, by penstock-trace' out.txt
}

"$1"
