# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# Steps of scripts/gpu-check, which sources this: tests, and benchmarks of the primitives.

gpu_tests() {
  limited 400 ctest --test-dir "$build" --label-regex '^gpu$' --label-exclude '^package$' --output-on-failure \
    --no-tests=error --timeout 380 --output-junit "$folder/tests.xml"
}

package_tests() {
  limited 200 ctest --test-dir "$build" --label-regex '^package$' --output-on-failure --no-tests=error \
    --output-junit "$folder/tests.xml"
}

# It needs Python's torch, which is where a GPU is, but no GPU.
exchange() {
  limited 60 ctest --test-dir "$build" --tests-regex '^(examples\.resnet\.pytorch|scripts\.pytorch_peers)$' --output-on-failure \
    --no-tests=error --output-junit "$folder/tests.xml"
}

# Each source of benchmarks/ has a program: over the real runtime, or over the emulated one where only that makes
# sense. Each has its share of the time that is left, or half a minute; the results are by its name.
benchmarks() {
  local source name program left share result=0 sources=(benchmarks/*_benchmark.{cpp,cu})
  left=${#sources[@]}
  for source in "${sources[@]}"; do
    name=$(basename "${source%.*}")
    program=$build/benchmarks/$name
    if [[ ! -x $program ]]; then program+=_emulated; fi
    if [[ ! -x $program ]]; then
      echo "FAILED: $name was not built" && result=1
    else
      share=$(($(time_left) / left))
      if [[ $share -lt 30 ]]; then share=30; fi
      benchmark "$name" "$program" "$share" || { echo "FAILED: $name" && result=1; }
    fi
    left=$((left - 1))
  done
  return "$result"
}

# benchmark NAME PROGRAM SECONDS: a tenth of a second for each case, three times; what sleeps known times needs no
# repetition.
benchmark() {
  local into=$folder/$1.json options=(--benchmark_min_time="$(scaled 0.1 0.001)")
  case $1 in
    trace_overhead_benchmark) limited "$3" "$2" 1 | tee "$folder/$1.txt" && return ;;
    batch_norm_benchmark) limited "$3" "$2" | tee "$folder/$1.csv" && return ;;
    overlap_benchmark | per_sample_benchmark) ;;
    *) options+=(--benchmark_repetitions="$(scaled 3 1)") ;;
  esac
  limited "$3" "$2" "${options[@]}" --benchmark_out="$into" && return
  rm -f "$into"
  return 1
}
