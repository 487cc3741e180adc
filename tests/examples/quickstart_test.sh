#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the quickstart program from outside: quickstart_test.sh <case> <quickstart> <make_cifar10>.
# A case is one of the functions below. Works in a temporary directory of its own.

set -euo pipefail
if [[ -n ${NEEDS_GPU-} ]] && ! nvidia-smi -L 2> /dev/null | grep --quiet GPU; then
  echo "skipped: no GPU"
  exit 77
fi
quickstart=$2 make_cifar10=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

make_data() {  # make_data <directory> <training records>
  "$make_cifar10" --out "$1" --train "$2" --test 10 --seed 3 2> /dev/null
}

# Runs the quickstart, which must exit with $1 and write $2, a fixed string, to its error output.
expect_error() {
  local exit_code=0
  "$quickstart" "${@:3}" > out.txt 2> err.txt || exit_code=$?
  [[ $exit_code == "$1" ]] || fail "exit code $exit_code, not $1: ${*:3}: $(cat err.txt)"
  grep --quiet --fixed-strings -- "$2" err.txt || fail "no '$2' in: $(cat err.txt)"
}

# The result is the serial loop's, whatever carries the batches.
results() {
  make_data data 503
  local workers depths way
  for workers in 0 1 3; do
    for depths in "--device-depth 1" "--device-depth 3 --host-depth 7"; do
      for way in "" "--unordered" "--shuffle --seed 5" "--shuffle --unordered"; do
        # shellcheck disable=SC2086  # words on purpose
        "$quickstart" --data data --batch 64 --epochs 2 --verify --workers "$workers" $depths $way \
          > out.txt 2> err.txt || fail "workers $workers $depths $way: $(cat out.txt err.txt)"
        grep --quiet '^1006 samples$' out.txt || fail "not 1006 samples: $(cat out.txt)"
        grep --quiet '^verify: equal to' out.txt || fail "not verified: $(cat out.txt)"
      done
    done
  done
}

# One batch, batches of one, and a batch size that divides the set.
batch_sizes() {
  make_data data 60
  local batch
  for batch in 1 20 59 60; do
    "$quickstart" --data data --batch "$batch" --epochs 2 --verify > out.txt 2> err.txt ||
      fail "batch $batch: $(cat out.txt err.txt)"
    grep --quiet '^120 samples$' out.txt || fail "not 120 samples: $(cat out.txt)"
  done
}

# What is wrong is said, with exit code 2.
bad_input() {
  make_data good 60
  expect_error 2 "no such directory: nowhere" --data nowhere
  expect_error 2 "not a directory: good/test_batch.bin" --data good/test_batch.bin
  expect_error 2 "a batch of 61 samples is larger than the data set of 60" --data good --batch 61
  expect_error 2 "--batch" --data good --batch 0
  expect_error 2 "--workers" --data good --workers -1
  expect_error 2 "--host-depth" --data good --host-depth -1
  expect_error 2 "--device-depth" --data good --device-depth 0
  expect_error 2 "--epochs" --data good --epochs 0
  expect_error 2 "--no-such-option" --data good --no-such-option
  expect_error 2 "--batch" --data good --batch many

  cp -r good bad && rm bad/data_batch_4.bin
  expect_error 2 "no such file: bad/data_batch_4.bin" --data bad
  rm -r bad && cp -r good bad && truncate --size=-1 bad/data_batch_2.bin
  expect_error 2 "bad/data_batch_2.bin: 36875 bytes, in records of 3073 bytes: 3072 bytes are left over" --data bad
  : > bad/data_batch_2.bin
  expect_error 2 "bad/data_batch_2.bin: 0 bytes" --data bad
  rm -r bad && cp -r good bad && head --lines=9 good/batches.meta.txt > bad/batches.meta.txt
  expect_error 2 "bad/batches.meta.txt has 9 class names, not 10" --data bad
  if [[ $EUID != 0 ]]; then  # root reads everything
    rm -r bad && cp -r good bad && chmod a-r bad/data_batch_1.bin
    expect_error 2 "bad/data_batch_1.bin" --data bad --batch 10
    chmod a-rx bad
    expect_error 2 "bad" --data bad --batch 10
    chmod u+rwx bad
  fi
}

# What is printed, and is lost, is an error.
lost_output() {
  make_data data 60
  local exit_code=0
  "$quickstart" --data data --batch 10 > /dev/full 2> err.txt || exit_code=$?
  [[ $exit_code == 1 ]] || fail "exit code $exit_code: $(cat err.txt)"
  grep --quiet 'output cannot be written' err.txt || fail "$(cat err.txt)"
}

# A damaged label is found on a worker; the error names the file and the record (12 in each file).
bad_label() {
  make_data bad 60
  printf '\x0a' | dd of=bad/data_batch_2.bin bs=1 seek=$((3073 * 5)) conv=notrunc status=none
  local workers
  for workers in 0 1 3; do
    expect_error 2 "epoch 0, batch 1: bad/data_batch_2.bin, record 5: label 10 is not in 0..9" \
      --data bad --batch 10 --workers "$workers"
  done
}

# The verdict names the stage that was made slow.
verdicts() {
  make_data data 640
  "$quickstart" --data data --batch 16 --workers 1 --slow-source 20 > out.txt 2> /dev/null
  grep --quiet '^bottleneck: source' out.txt || fail "slow source: $(cat out.txt)"
  "$quickstart" --data data --batch 16 --workers 1 --slow-compute 10 > out.txt 2> /dev/null
  grep --quiet '^bottleneck: consumer' out.txt || fail "slow compute: $(cat out.txt)"
  [[ ${PENSTOCK_EMULATION-} == *schedule=eager* ]] || return 0  # 49 kB at 5 MB/s: 10 ms
  PENSTOCK_EMULATION=schedule=eager,host_to_device=5e6 \
    "$quickstart" --data data --batch 16 --workers 1 > out.txt 2> /dev/null
  grep --quiet '^bottleneck: copy' out.txt || fail "slow copy: $(cat out.txt)"
  grep --quiet 'verdict: the copy cannot keep up, .* ms a batch of 4[0-9.]* KiB' out.txt || fail "no times: $(cat out.txt)"
  # Its pixels are uint8 already.
  if grep --quiet 'in place of float' out.txt; then fail "advice for another program: $(cat out.txt)"; fi
}

# Ctrl-C ends it within the batch, with the exit code of an interrupted program, and nothing on stdout.
interrupt() {
  make_data data 60
  mkfifo err
  local signal exit_code pid line
  for signal in INT TERM; do
    "$quickstart" --data data --batch 1 --epochs 1000000 --slow-source 1 > out.txt 2> err &
    pid=$! exit_code=0
    exec 3< err
    read -r line <&3  # the pipeline starts
    [[ $line == "data: data" ]] || fail "the first line is: $line"
    kill -"$signal" "$pid"
    wait "$pid" || exit_code=$?
    exec 3<&-
    [[ $exit_code == $((128 + $(kill -l "$signal"))) ]] || fail "SIG$signal: exit code $exit_code"
    [[ ! -s out.txt ]] || fail "printed: $(cat out.txt)"
  done
}

# An interrupted run goes on where it stopped, with other workers too, and adds up each sample of each epoch once.
resume() {
  make_data data 60
  local words=(--data data --batch 1 --epochs 3 --shuffle) exit_code=0 runs=0 line pid
  "$quickstart" "${words[@]}" > expected.txt 2> err.txt || fail "$(cat err.txt)"
  mkfifo err
  while true; do
    exit_code=0
    "$quickstart" "${words[@]}" --resume run.txt --slow-source 2 --workers "$((runs % 3))" > out.txt 2> err &
    pid=$!
    exec 3< err
    for line in 1 2 3; do read -r _ <&3 || true; done  # the pipeline runs
    kill -INT "$pid" 2> /dev/null || true
    cat <&3 > /dev/null
    wait "$pid" || exit_code=$?
    exec 3<&-
    runs=$((runs + 1))
    if [[ $exit_code == 0 ]]; then break; fi
    [[ $exit_code == 130 ]] || fail "exit code $exit_code"
    [[ -f run.txt && ! -s out.txt ]] || fail "no run.txt, or printed: $(cat out.txt)"
    [[ $runs -lt 200 ]] || fail "it does not come on: $(cat run.txt)"
  done
  ((runs > 1)) || fail "it was never interrupted"
  [[ ! -e run.txt ]] || fail "run.txt is still there"
  diff <(grep -A 99 samples$ expected.txt) <(grep -A 99 samples$ out.txt)

  echo nonsense > run.txt
  expect_error 2 "run.txt is no saved run: it has no checksum" "${words[@]}" --resume run.txt
  expect_error 2 "--unordered" "${words[@]}" --resume other.txt --unordered
  expect_error 1 "cannot write nowhere/run.txt" "${words[@]}" --resume nowhere/run.txt
}

# A run that a closed terminal (SIGHUP) has interrupted, in a file that a link names. A digit or bit of it that is
# another is found, and the link stays.
saved_run() {
  make_data data 60
  mkdir elsewhere
  ln -s elsewhere/run.txt run.txt
  mkfifo err
  local words=(--data data --batch 1 --epochs 3) exit_code=0 line place size
  "$quickstart" "${words[@]}" > expected.txt 2> err.txt || fail "$(cat err.txt)"
  "$quickstart" "${words[@]}" --resume run.txt --slow-source 20 > out.txt 2> err &
  local pid=$!
  exec 3< err
  for line in 1 2; do read -r _ <&3 || true; done
  kill -HUP "$pid"
  cat <&3 > /dev/null
  wait "$pid" || exit_code=$?
  exec 3<&-
  [[ $exit_code == 129 && -L run.txt && -s elsewhere/run.txt ]] || fail "exit code $exit_code: $(ls -l . elsewhere)"
  cp elsewhere/run.txt good.txt
  size=$(wc --bytes < good.txt)
  for ((place = 0; place < size; place += 7)); do
    python3 - "$place" << 'END'
import sys
data, place = bytearray(open("good.txt", "rb").read()), int(sys.argv[1])
data[place] = ord("0") + (data[place] - ord("0") + 1) % 10 if chr(data[place]).isdigit() else data[place] ^ 1
open("elsewhere/run.txt", "wb").write(data)
END
    expect_error 2 "run.txt is no saved run: it " "${words[@]}" --resume run.txt
    [[ $(head -n -1 err.txt) != *'batches'* ]] || fail "byte $place: it ran: $(cat err.txt)"
  done
  head --lines=2 good.txt > elsewhere/run.txt
  expect_error 2 "run.txt is no saved run: it has no checksum: another version" "${words[@]}" --resume run.txt
  cp good.txt elsewhere/run.txt
  "$quickstart" "${words[@]}" --resume run.txt > out.txt 2> err.txt || fail "$(cat err.txt)"
  diff <(grep -A 99 samples$ expected.txt) <(grep -A 99 samples$ out.txt)
  [[ -L run.txt && ! -e elsewhere/run.txt ]] || fail "the link is gone, or its file is not: $(ls -l . elsewhere)"
}

# An empty value comes from a variable that is not set; a number of more than 64 bits is not another one.
words() {
  local option
  for option in --data --cache --resume --seed --records --epochs --workers; do
    expect_error 2 "$option: the value is empty" "$option" ""
    expect_error 2 "$option: the value is empty" "$option="
  done
  for option in --seed --epochs --batch --workers; do
    expect_error 2 "$option: Value 99999999999999999999999 is not a whole number" "$option" 99999999999999999999999
    [[ $(wc --bytes < err.txt) -lt 300 ]] || fail "long: $(cat err.txt)"
  done
}

# Without --data a synthetic set is made, once.
cache() {
  "$quickstart" --cache . --records 5000 --verify > out.txt 2> err.txt || fail "$(cat err.txt)"
  grep --quiet '^5000 samples$' out.txt || fail "$(cat out.txt)"
  grep --quiet '^star *500$' out.txt || fail "$(cat out.txt)"
  grep --quiet 'synthetic records' err.txt || fail "no progress: $(cat err.txt)"
  "$quickstart" --cache . --records 5000 > again.txt 2> err.txt || fail "$(cat err.txt)"
  ! grep --quiet 'synthetic records' err.txt || fail "made again: $(cat err.txt)"
  diff <(grep -A 99 samples$ out.txt | grep -v verify) <(grep -A 99 samples$ again.txt)
}

# --watch tells on the error output what the pipeline waits for, and changes nothing else. On a terminal it is
# one line, redrawn in place.
watch() {
  make_data data 640
  local line='[0-9.]+ batches/s, [0-9.]+ MB/s \| ready [0-9.]+ of 3, on the device [0-9.]+ of 2 \| GPU waits [0-9]+ % \| '
  "$quickstart" --data data --batch 16 --workers 1 --slow-source 5 --watch > out.txt 2> err.txt
  grep --quiet --extended-regexp "^watched: ${line}source: " err.txt || fail "no line: $(cat err.txt)"
  ! grep --quiet 'batches: \|40/40' err.txt || fail "the progress is there too: $(cat err.txt)"
  "$quickstart" --data data --batch 16 --workers 1 > plain.txt 2> err.txt
  diff <(grep -A 99 samples$ out.txt) <(grep -A 99 samples$ plain.txt)

  python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) != 0)' \
    "$quickstart" --data data --batch 16 --workers 1 --slow-source 40 --watch > terminal.txt < /dev/null
  tr '\r' '\n' < terminal.txt > lines.txt
  (($(grep --count --extended-regexp "^${line}" lines.txt) >= 2)) || fail "not redrawn: $(cat lines.txt)"
  grep --quiet --extended-regexp "^watched: ${line}" lines.txt || fail "no end: $(cat lines.txt)"
}

help() {
  "$quickstart" --help | grep --quiet -- --slow-source
}

"$1"
