# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# Steps of scripts/gpu-check, which sources this: tests, sanitizers, the training ladder, benchmarks.

gpu_tests() {
  limited 400 ctest --test-dir "$build" --label-regex gpu --output-on-failure --no-tests=error \
    --timeout 380 --output-junit "$folder/tests.xml"
}

# sanitize TOOL [OPTION...]: the test programs, and the kernels of the examples, under a tool of
# compute-sanitizer.
sanitize() {
  local options=(--tool "$@" --error-exitcode 9 --target-processes all) result=0
  local rules=('~[not-under-compute-sanitizer]') tests=()
  case $1 in
    racecheck) tests=('~[traffic]') ;;                      # it adds a millisecond to each kernel
    initcheck) rules=() tests=('[kernel]') ;;  # it waits for every kernel: no gates
  esac
  if [[ ${#rules[@]} -gt 0 ]]; then
    sanitized "$build/tests/emulation/penstock_runtime_rules_gpu" "${rules[@]}"
  fi
  sanitized "$build/tests/gpu/penstock_gpu_tests" "${tests[@]}"
  sanitized tests/examples/minimal_test.sh "$build"/examples/{minimal/minimal,data/make_cifar10} python3
  sanitized tests/examples/quickstart_test.sh batch_sizes \
    "$build"/examples/{quickstart/quickstart,data/make_cifar10}
  return "$result"
}

sanitized() {
  limited 100 compute-sanitizer "${options[@]}" "$@" || { echo "FAILED: $*" && result=1; }
}

# All of them, into one file: the results by the name of the program.
benchmarks() {
  local program file result=0
  for program in "$build"/benchmarks/*_benchmark*; do
    if [[ ! -x $program || -d $program ]]; then continue; fi
    file=$folder/$(basename "$program").json
    limited 120 "$program" --benchmark_repetitions=3 --benchmark_out="$file" ||
      { echo "FAILED: $(basename "$program")" && rm -f "$file" && result=1; }
  done
  return "$result"
}

# train_ladder OPTION...: of the ladder's and, behind --, of its rungs.
train_ladder() {
  if [[ ! -x $build/examples/resnet/train/train$suffix ]]; then
    echo "the ResNet was not built: no cuDNN, or no headers of its front end"
    return 1
  fi
  limited 200 examples/resnet/train/ladder "${quick[@]}" --programs "$build/examples/resnet/train" --repeat 1 \
    --out "$folder" "$@" --data "$data"
}

# Every rung once, briefly: do they run, and what is each worth?
ladder() { make_data && train_ladder -- --steps "$(scaled 20 2)"; }

# On the same data, one after the other.
pytorch() {
  make_data &&
    limited 270 python3 benchmarks/peers/pytorch_ladder.py --data "$data" --limit 45 --device "$device" \
      --image-size "$image_size" --batch "$(scaled 32 4)" --large-batch "$(scaled 512 8)" \
      --json "$folder/pytorch.json" &&
    train_ladder --peer "$folder/pytorch.json" -- --steps "$(scaled 15 2)"
}
