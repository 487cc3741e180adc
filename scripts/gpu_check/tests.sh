# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# scripts/gpu-check sources this. Its steps run tests, and benchmarks of the primitives.

# gpu_tests [REGEX]: runs the tests whose names match, by default all.
gpu_tests() {
  limited 400 ctest --test-dir "$build" --label-regex '^gpu$' --label-exclude '^package$' ${1:+--tests-regex "$1"} --output-on-failure \
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
# sense. Each has its share of the time that is left, or half a minute; the results are by its name. A dry run takes the
# program over the emulated runtime where there are both, and tells which benchmarks need a GPU.
benchmarks() {
  local source name program left share result=0 sources=(benchmarks/*_benchmark.{cpp,cu})
  left=${#sources[@]}
  for source in "${sources[@]}"; do
    name=$(basename "${source%.*}")
    program=$build/benchmarks/$name
    if [[ ! -x $program || -n $dry_run && -x ${program}_emulated ]]; then program+=_emulated; fi
    if [[ -n $dry_run && $source == *.cu ]] && ! has_gpu; then
      echo "$name needs a GPU: not tried"
    elif [[ $name == gds_benchmark ]]; then
      echo "$name: the step gds runs it"
    elif [[ $name == remote_benchmark && ! -x $program && ! -x /usr/sbin/nginx ]]; then
      echo "$name needs an nginx: not tried"
    elif [[ ! -x $program ]]; then
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

# benchmark NAME PROGRAM SECONDS. Some have options of their own. The others are Google Benchmark's: a tenth of a second
# for each case, three times; what sleeps known times needs no repetition.
benchmark() {
  local into=$folder/$1 times=3 words=()
  case $1 in
    trace_overhead_benchmark) words=(1) ;;
    batch_norm_benchmark) ;;
    remote_benchmark) words=(5) && if [[ -n $dry_run ]]; then words=(1 parts objects); fi ;;
    read_queue_benchmark) words=("$build" "$(scaled 500 16)" 1 1) ;;  # docs/measured has longer runs
    video_benchmark) words=(--benchmark_filter="first_frame|clips/engine:1/workers:(1|14)/") ;;  # all of it: the step video
    store_benchmark) words=("$build" "$(scaled 1000 64)" "$(scaled 3 1)") ;;
    tune_benchmark) words=(--decisions) && if [[ -n $dry_run ]]; then words+=(source); fi ;;
    *)
      if [[ -n $dry_run || $1 =~ ^(overlap|per_sample|record_file)_ ]]; then times=1; fi
      words=(--benchmark_min_time="$(scaled 0.1 0.001)" --benchmark_repetitions="$times" --benchmark_out="$into.json")
      ;;
  esac
  limited "$3" "$2" "${words[@]}" | tee "$into.txt" && return
  rm -f "$into".*
  return 1
}
