# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the scripts share. Source it first: it goes to the project's root, and makes what scripts/setup
# put into .deps/ known to CMake.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit

export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}

has_command() { command -v "$1" >/dev/null 2>&1; }
say() { printf '\n== %s\n' "$*"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# The comment at the top of a script is its help.
print_help() { sed -n '3,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

has_gpu() { has_command nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q GPU; }

# Folder of the CUDA toolkit, the machine's own or the one of scripts/setup; nothing without one.
cuda_toolkit() {
  local folder
  for folder in "${CUDAToolkit_ROOT:-}" "${CUDA_PATH:-}" /usr/local/cuda "$root/.deps/nvidia/cu13"; do
    if [[ -n $folder && -x $folder/bin/nvcc ]]; then
      echo "$folder"
      return
    fi
  done
  if has_command nvcc; then dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")"; fi
}

# Call it again after something was installed.
use_dependencies() {
  local toolkit bundle=$root/.deps/debian/usr
  toolkit=$(cuda_toolkit)
  if [[ -n $toolkit ]]; then export CUDAToolkit_ROOT=$toolkit; fi
  if [[ -d $bundle ]]; then export CMAKE_PREFIX_PATH=$bundle; fi
  if has_command ccache; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  fi
}
use_dependencies

# ---- Steps: run, timed, counted, and listed at the end ---------------------------------------------

steps=()
passed=0
failed=0

# step NAME COMMAND...: runs it, with no standard input, and notes how it ended.
step() {
  local name=$1 result=passed start=$SECONDS
  shift
  say "$name"
  "$@" </dev/null || result=FAILED
  if [[ $result == passed ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  steps+=("$(printf '%-6s %5d s  %s' "$result" $((SECONDS - start)) "$name")")
}

# build_preset PRESET [CMAKE_OPTION...]: goes on after a failure, to show all there are. Several sources
# are compiled at a time: that takes a third off a build from scratch, as these mostly are. clang-tidy
# still sees that each source includes what it needs.
build_preset() {
  cmake --preset "$1" -DCMAKE_UNITY_BUILD=ON "${@:2}" && cmake --build --preset "$1" -- -k 0
}
test_preset() { ctest --preset "$1" --output-junit tests.xml; }

# build_and_test PRESET [CMAKE_OPTION...]: two steps; adds the tests to the counts.
build_and_test() {
  local preset=$1 report=build/$1/tests.xml
  rm -f "$report"
  step "build: $preset" build_preset "$@"
  step "tests: $preset" test_preset "$preset"
  count_tests "$preset"
}

# count_tests PRESET...: adds what ctest counted in the last run of their tests.
count_tests() {
  local preset counts
  for preset in "$@"; do
    if [[ ! -f build/$preset/tests.xml ]]; then continue; fi
    # tests, failures, disabled and skipped, in this order: attributes of the <testsuite>
    mapfile -t counts < <(sed -nE 's/^\s+(tests|failures|disabled|skipped)="([0-9]+)".*/\2/p' \
      "build/$preset/tests.xml" | head -n 4)
    passed=$((passed + counts[0] - counts[1] - counts[2] - counts[3]))
    failed=$((failed + counts[1]))
  done
}

# Lists the steps, counts tests and steps, and is the exit status.
finish() {
  say "Result"
  printf '%s\n' "${steps[@]}"
  printf '\n%d passed, %d failed\n' "$passed" "$failed"
  [[ $failed -eq 0 ]]
}
