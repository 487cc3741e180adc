#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# penstock-trace --last, from outside: service_test.sh <case> <penstock-trace> <service>. A case is one of
# the functions below. Works in a temporary directory of its own.

set -euo pipefail
trace=$2 service=$3
work=$(mktemp -d)
pid=
trap '[[ -z $pid ]] || kill -KILL "$pid" 2> /dev/null || true; rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

says() {  # says <text> <file>
  grep --quiet --fixed-strings -- "$1" "$2" || fail "no '$1' in $2: $(cat "$2")"
}

# Starts penstock-trace with these words, the service's behind them, and waits until the service works.
start() {
  : > out.txt
  "$trace" --out out "$@" > out.txt 2> err.txt &
  pid=$!
  wait_for 'the service' grep --quiet ready out.txt
}

# wait_for <what> <words>: until the words succeed.
wait_for() {
  local tries
  for tries in {1..600}; do
    if "${@:2}"; then return; fi
    kill -0 "$pid" || break
    sleep 0.05
  done
  fail "no $1, after $tries tries: $(cat out.txt err.txt; ls -R out)"
}

there_are() {  # there_are <n>: so many dumps with a page
  local pages
  pages=$(compgen -G "out/dump-*/trace.html" | wc --lines)
  [[ $pages == "$1" ]]
}

service_pid() {  # service_pid [<its output>]
  sed --quiet 's/^ready //p' "${1:-out.txt}"
}

# stop <exit code>: ends the service.
stop() {
  local exit_code=0
  kill -TERM "$pid"
  wait "$pid" || exit_code=$?
  pid=
  [[ $exit_code == "$1" ]] || fail "exit code $exit_code, not $1: $(cat out.txt err.txt)"
}

has_results() {  # has_results <directory>
  local file
  for file in trace.recording trace.json trace.html report.txt report.json findings.json; do
    [[ -s $1/$file ]] || fail "no $1/$file: $(ls -R .)"
  done
}

# The steps of a trace are consecutive, each with the copy and the range that only it has, and all of
# them lie within the time that is kept. Prints the first and the last.
steps_of() {  # steps_of <directory> <seconds that are kept>
  python3 - "$1/trace.json" "$2" << 'END'
import json, sys
trace = json.load(open(sys.argv[1]))
assert trace["otherData"]["dropped_events"] == 0
events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
steps = sorted((e for e in events if e["name"] == "step"), key=lambda e: e["ts"])
numbers = [e["args"]["payload"] for e in steps]
assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers
copied = [e["args"]["bytes"] - 1000 for e in events if e["name"] == "copy host to device"]
requests = [e["name"] for e in events if e["name"].startswith("request ")]
whole = [e["args"]["payload"] for e in steps[1:-1]]  # the others may be cut
for number in whole:
    assert copied.count(number) == 1, (number, copied)
    assert requests.count(f"request {number}") == 1, (number, requests)
assert set(copied) <= set(numbers), (copied, numbers)
names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
assert {f"request {number}" for number in whole} <= names, names
first, last = min(e["ts"] for e in events), max(e["ts"] + e["dur"] for e in events)
assert last - first <= float(sys.argv[2]) * 1e6 + 1, (first, last)
assert all(e["ts"] == first for e in events if e["args"].get("cut")), "cut elsewhere"
print(numbers[0], numbers[-1])
END
}

# The same signal to both, and a file: each makes a dump, later ones of later steps, and the end of the
# run is the last one. The window is full long before the end.
dumps() {
  start --last 300ms --dump-when now -- "$service" steps
  sleep 0.8
  kill -USR2 "$pid"
  wait_for 'first dump' there_are 1
  kill -USR2 "$(service_pid)"
  wait_for 'second dump' there_are 2
  touch now
  wait_for 'third dump' there_are 3
  [[ ! -e now ]] || fail 'the file is still there'
  touch now
  wait_for 'fourth dump' there_are 4
  stop 0
  local directory range first last=-1
  for directory in out/dump-* out; do
    has_results "$directory"
    says 'EXCERPT: the last ' "$directory/report.txt"
    range=$(steps_of "$directory" 0.3) || fail "the steps of $directory"
    first=${range% *}
    ((first > 0)) || fail "the first step is kept: $directory: $range"
    ((${range#* } > last)) || fail "no later steps than before: $directory: $range"
    last=${range#* }
  done
  says "steps $((last + 1))" out.txt
  says 'asked for by SIGUSR2' <(cat out/dump-*-1/report.txt)
  says 'asked for by the file now' <(cat out/dump-*-3/report.txt)
  [[ $(compgen -G 'out/.dump*') == '' ]] || fail "left behind: $(ls -A out)"
}

# Before there is as much as would be kept; and two at once.
early() {
  touch now
  start --last 10min --dump-when now --dump-signal RTMIN+3 -- "$service" steps
  says 'now was there before the program: removed' err.txt
  kill -RTMIN+3 "$pid" "$(service_pid)"
  wait_for dump compgen -G 'out/dump-*-1/trace.html'  # and perhaps a second one, if both came apart
  sleep 0.3
  stop 0
  local directories=(out/dump-*)
  ((${#directories[@]} <= 2)) || fail "more than was asked for: $(ls out)"
  says 'since when it is recorded' "${directories[0]}/report.txt"
  [[ $(steps_of "${directories[0]}" 600) == '0 '* ]] || fail 'the first step is missing'
}

# What a service does with the signal is its own affair, and it is told.
own_handler() {
  local how
  for how in early late; do
    rm -rf out
    start --last 300ms -- "$service" "$how"
    wait_for refusal grep --quiet 'send it to penstock-trace' err.txt
    kill -USR2 "$(service_pid)"
    sleep 0.3
    kill -USR2 "$pid"
    wait_for dump there_are 1
    stop 0
    says 'own signals 1' out.txt
    there_are 1 || fail "the service's signal made a dump: $(ls out)"
  done
}

stall() {
  start --last 2s -- "$service" stall
  wait_for dump there_are 1
  stop 0
  says 'stalled: stalled for 100 ms' out.txt
  says 'asked for by a StallError' <(cat out/dump-*/report.txt)
  says '"name":"stall"' <(cat out/dump-*/trace.json)
  has_results out
}

# What cannot be written is told; recording goes on, and dumps can be written again.
unwritable() {
  start --last 300ms -- "$service" steps
  kill -USR2 "$pid"
  wait_for dump there_are 1
  mv out elsewhere
  touch out
  kill -USR2 "$(service_pid)"
  wait_for message grep --quiet 'no dump for SIGUSR2' err.txt
  rm out
  mv elsewhere out
  kill -USR2 "$(service_pid)"
  wait_for 'second dump' there_are 2
  stop 0
  has_results out
}

# A file that cannot be taken away asks for nothing, and is told once.
directory() {
  start --last 300ms --dump-when now -- "$service" steps
  mkdir now
  wait_for message grep --quiet 'now cannot be removed' err.txt
  stop 0
  if compgen -G 'out/dump-*'; then fail 'it made a dump'; fi
}

# What is no regular file is somebody else's, whether it is there before or comes later.
no_file() {
  local what
  for what in fifo link; do
    for when in before later; do
      rm -rf out now
      if [[ $when == before ]]; then make_"$what" now; fi
      start --last 300ms --dump-when now -- "$service" steps
      if [[ $when == later ]]; then make_"$what" now; fi
      wait_for message grep --quiet 'now cannot be removed (it is no regular file), so it asks for no dump' err.txt
      stop 0
      [[ -p now || -L now ]] || fail "$what, $when: it is gone"
      if compgen -G 'out/dump-*'; then fail 'it made a dump'; fi
    done
  done
}
make_fifo() { mkfifo "$1"; }
make_link() {
  touch target
  ln -s target "$1"
}

killed() {
  start --last 300ms -- "$service" steps
  kill -USR2 "$pid"
  wait_for dump there_are 1
  kill -KILL "$(service_pid)"
  local exit_code=0
  wait "$pid" || exit_code=$?
  pid=
  [[ $exit_code == 137 ]] || fail "exit code $exit_code"
  says 'ended by signal 9' err.txt
  says 'of before there is a dump' err.txt
  has_results "$(compgen -G 'out/dump-*')"
  [[ ! -e out/trace.recording ]] || fail 'a recording of the end'
}

# Each process of a job has dumps of its own.
processes() {
  start --last 300ms -- sh -c "'$service' steps & '$service' steps > other.txt & wait"
  wait_for 'other service' grep --quiet ready other.txt
  kill -USR2 "$pid"
  wait_for dumps there_are 2
  kill -TERM "$(service_pid)" "$(service_pid other.txt)"
  local exit_code=0
  wait "$pid" || exit_code=$?
  pid=
  [[ $exit_code == 0 ]] || fail "exit code $exit_code: $(cat err.txt)"
  local directories=(out/*/) one
  [[ ${#directories[@]} == 4 ]] || fail "not four: $(ls out)"
  for one in "${directories[@]}"; do has_results "${one%/}"; done
  has_results "out/$(service_pid other.txt)"
  has_results "out/dump-"*"-$(service_pid)-1"
}

# A long run does not take more memory than a short one.
memory() {
  # One arena: otherwise each of the service's short threads may get memory of its own from the allocator.
  MALLOC_ARENA_MAX=1 "$trace" --quiet --out out --last 100ms -- "$service" memory 64000 > out.txt
  python3 - << 'END'
sizes = [int(line.split()[1]) for line in open("out.txt") if line.startswith("memory ")]
print(sizes, "KiB")
assert len(sizes) == 9
# Measured: 6 to 12 MiB; without --last 45 MiB, and ever more.
assert sizes[-1] <= sizes[0] + 16 * 1024, "it grows"
END
}

wrong() {
  local exit_code words
  for words in '--last 30' '--last 0s' '--last 5x' '--last -3s' '--last 25h' '--last s' '--dump-when now' \
    '--dump-signal USR1' '--last 1s --dump-signal TERM' '--last 1s --dump-signal RTMIN+16'; do
    exit_code=0
    # shellcheck disable=SC2086
    "$trace" $words -- "$service" steps > out.txt 2> err.txt || exit_code=$?
    [[ $exit_code == 2 ]] || fail "$words: exit code $exit_code"
    [[ -s err.txt ]] || fail "$words: no word why"
  done
  says "'RTMIN+16' is none of USR1, USR2, HUP" err.txt
}

"$1"
