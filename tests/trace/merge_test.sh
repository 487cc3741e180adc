#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# penstock-trace merge on what scripts/launch and scripts/profile leave of three ranks and of eight, one of which waits
# for its batches: merge_test.sh <scripts> <penstock-trace> <traced program>.

set -euo pipefail
scripts=$1 trace=$2 traced=$3
export PENSTOCK_TRACE=$trace
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
  "${@:2}" >out.txt 2>err.txt || exit_code=$?
  [[ $exit_code == "$1" ]] || fail "exit code $exit_code, not $1: ${*:2}: $(cat out.txt err.txt)"
}

says() {  # says <text> <file>
  grep --quiet --fixed-strings -- "$1" "$2" || fail "no '$1' in $2: $(cat "$2")"
}

cat >rank.sh <<'END'
[[ $RANK == "$1" ]] && batch=$3 || batch=100
exec "$2" input "$batch"
END

# A job of so many ranks, of which one is slow, in a directory. Its batches take so many microseconds: longer than
# the steps of all, which share two cores, and under ThreadSanitizer take ten times as long.
job_of() {  # job_of <ranks> <slow rank> <directory> <microseconds>
  local rank
  # Each rank has a report of its own, whatever launches it.
  exits_with 0 "$scripts/launch" -n "$1" -- "$scripts/profile" --whole --out "$3" --tool trace -- bash rank.sh "$2" "$traced" "$4"
  for ((rank = 0; rank < $1; ++rank)); do
    says "[$rank] measured: 19 steps" out.txt
    [[ -s $(echo "$3"/*.rank$rank/trace.html) ]] || fail "no report of rank $rank: $(ls -R "$3")"
    says "(rank $rank, process" "$(echo "$3"/*.rank$rank/report.txt)"
  done

  exits_with 0 "$trace" merge "$3"
  diff out.txt "$3/ranks.txt" || fail "the report is not what was printed"
  says "penstock trace of $1 ranks of" out.txt
  for ((rank = 0; rank < $1; ++rank)); do
    grep --quiet "^ *$rank  *[0-9][0-9]*  *[0-9.]* " out.txt || fail "no line of rank $rank: $(cat out.txt)"
    says "\"title\":\"rank $rank: " "$3/ranks.html"
  done
  says "The slowest: rank $2 takes " out.txt
  says "it waits for its batches: source-bound (in 'load'); its 'load' takes " out.txt
  says 'Its dearest finding: gap: ' out.txt
  says "\"slowest\":{\"rank\":$2," "$3/ranks.json"
  says '"part":"waits for input"' "$3/ranks.json"
  if grep NOTE out.txt; then fail "a note"; fi
}

job_of 8 5 eight 100000
job_of 3 1 job 20000
says '"track":1,"evidence":"Rank 1: Device 0 did nothing' job/ranks.html

# The same, of recordings by name, in any order.
exits_with 0 "$trace" merge --quiet --out named job/*.rank{2,0,1}/trace.recording
[[ ! -s out.txt && ! -s err.txt ]] || fail "printed: $(cat out.txt err.txt)"
diff named/ranks.txt job/ranks.txt || fail "another report of the same recordings"

# What is missing, damaged or there twice.
rank_1=$(echo job/*.rank1)
mv "$rank_1" away
exits_with 0 "$trace" merge job
says 'NOTE: of 3 ranks 1 left no recording: 1' out.txt
says 'of 3 ranks 1 left no recording: 1' err.txt
cp -r away "$rank_1"
truncate --size=-1 "$rank_1/trace.recording"
exits_with 0 "$trace" merge job
says "NOTE: left out: $rank_1/trace.recording: a damaged recording" out.txt
cp -r away/. "$rank_1"
cp -r away job/again
exits_with 1 "$trace" merge job
says "rank 1 has two recordings, job/again/trace.recording (started 20" err.txt
rm -r job/again
exits_with 1 "$trace" merge away
says 'away: the recording of one rank alone' err.txt
mkdir nothing
exits_with 1 "$trace" merge nothing
says 'nothing: no recording is in it' err.txt
exits_with 1 "$trace" merge nowhere --out named
says 'nowhere: No such file' err.txt
exits_with 2 "$trace" merge away/trace.recording job
says '--out says where to write to' err.txt
exits_with 2 "$trace" merge
says 'places is required' err.txt

# Jobs of two sizes; and a rank that only the directory's name says.
exits_with 0 env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "$trace" --out two/x -- "$traced" clean
exits_with 1 "$trace" merge --out named two job/*.rank0
says 'recordings of two jobs: ' err.txt
says 'of one of 2' err.txt
exits_with 0 "$trace" --out alone/host.17.rank7 -- "$traced" clean
exits_with 0 "$trace" --out alone/host.18 -- "$traced" clean
exits_with 0 env RANK=2147483647 "$trace" --out last -- "$traced" clean
exits_with 0 "$trace" merge --out named last alone
says 'of 2147483648 ranks 2147483646 left no recording: 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16 ...' out.txt
exits_with 0 "$trace" merge --out named alone job/*.rank0
says 'of 8 ranks 6 left no recording: 1, 2, 3, 4, 5, 6' out.txt
says 'alone/host.18/trace.recording: left out, as neither it nor its directory (*.rankN) says a rank' out.txt
