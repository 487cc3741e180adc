# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the scripts share. Source it first: it goes to the project's root, and makes what scripts/setup
# put into .deps/ known to CMake.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit

export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(($(nproc) + 1))}  # a third of their time they wait

has_command() { command -v "$1" >/dev/null 2>&1; }
say() { printf '\n== %s\n' "$*"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# An empty word comes from a variable that is not set, and would be taken for one that is left out. What
# scripts/profile runs may take one.
refuse_empty_words() {
  local word
  for word in "$@"; do [[ -n $word ]] || fail "one of the arguments is empty: is a variable not set?"; done
}
if [[ ${0##*/} != profile ]]; then refuse_empty_words "$@"; fi

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
    export CCACHE_DEPEND=${CCACHE_DEPEND:-1}  # A source that is new to it is not preprocessed twice.
  fi
}
use_dependencies

# ---- Steps: run, timed, counted, and listed at the end ---------------------------------------------

steps=()
passed=0
failed=0
skipped=0
skips_fail=  # not empty: a run with a skipped step or test fails
began=$(date +%s)
builds=()   # folders that this run has built in,
reports=()  # and what ctest wrote about the tests

# Seconds of the CPU that all commands have taken that this shell has waited for; 0 where there is no /proc.
cpu_seconds() {
  local line fields
  line=$(cat "/proc/$$/stat" 2>/dev/null) || line=') - 0 0 0 0 0 0 0 0 0 0 0 0 0 0'
  read -r -a fields <<<"${line##*) }"
  echo $(((fields[13] + fields[14]) / $(getconf CLK_TCK)))
}

# step NAME COMMAND...: runs it, with no standard input, and notes how it ended. Exit status 77 is CTest's for
# a test that is skipped, and ours for a step.
step() {
  local name=$1 result=passed start=$SECONDS cpu status=0
  cpu=$(cpu_seconds)
  shift
  say "$name"
  "$@" </dev/null || status=$?
  case $status in
    0) passed=$((passed + 1)) ;;
    77) result=skipped skipped=$((skipped + 1)) ;;
    *) result=FAILED failed=$((failed + 1)) ;;
  esac
  cpu=$(($(cpu_seconds) - cpu))
  steps+=("$(printf '%-7s %5d s %6d s of CPU  %s' "$result" $((SECONDS - start)) "$cpu" "$name")")
}

# Several sources are compiled at a time: that takes a third off a build from scratch, as these mostly
# are. clang-tidy still sees that each source includes what it needs.
unity=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=16)

# A warning is an error in CI alone: .ci/run, and what has CI in its environment, as CI services set it. A user's
# compiler may be newer than those that were tried.
warnings=(-DPENSTOCK_WARNINGS_AS_ERRORS=OFF)
warnings_are_errors() { warnings=(-DPENSTOCK_WARNINGS_AS_ERRORS=ON); }
if [[ -n ${CI:-} ]]; then warnings_are_errors; fi

# build_preset PRESET [CMAKE_OPTION...]: goes on after a failure, to show all there are.
build_preset() {
  builds+=("build/$1")
  cmake --preset "$1" "${unity[@]}" "${warnings[@]}" "${@:2}" && cmake --build --preset "$1" -- -k 0
}

# test_preset PRESET REPORT [CTEST_OPTION...]
test_preset() { ctest --preset "$1" --output-junit "$2" "${@:3}"; }

# build_and_test PRESET [CMAKE_OPTION...]: two steps, for all that there is; adds the tests to the counts.
build_and_test() {
  local preset=$1
  step "build: $preset" build_preset "$@"
  test_and_count "$preset" "tests: $preset" tests.xml
}

# ---- The tests by their labels: tests/shares.cmake says which are left to the shares ------------------

# Not empty (.ci/run, with share 5): the emulated preset compiles all there is, source by source, as each has to
# include what it needs, and each rung of a ladder as a program of its own; and symbols are hidden, as some projects
# that penstock is a part of compile it.
apart=

# What tells how the tests of a preset are built: a ladder is one program, and under a sanitizer there are
# no examples in the quick run. With nvcc the kernels are optimised, and what the host runs is not: without a
# GPU nothing of it runs for long.
quick_options() {
  case $1 in
    asan | tsan) printf '%s\n' -DPENSTOCK_LADDER_IN_ONE=ON -DPENSTOCK_BUILD_EXAMPLES=OFF ;;
    *) share_options "$1" ;;
  esac
}
share_options() {
  echo -DPENSTOCK_BUILD_EXAMPLES=ON
  if [[ $1 == emulated && -n $apart ]]; then
    printf '%s\n' -DPENSTOCK_LADDER_IN_ONE=OFF -DCMAKE_UNITY_BUILD=OFF \
      -DCMAKE_CXX_VISIBILITY_PRESET=hidden -DCMAKE_VISIBILITY_INLINES_HIDDEN=ON
  else
    echo -DPENSTOCK_LADDER_IN_ONE=ON
  fi
  if [[ $1 == cuda ]]; then echo '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 -DNDEBUG'; fi
}

# build_for_tests PRESET OPTIONS CTEST_OPTION...: what these tests run. OPTIONS: a function that prints
# CMake's.
build_for_tests() {
  local preset=$1 options programs
  mapfile -t options < <("$2" "$preset")
  builds+=("build/$preset")
  cmake --preset "$preset" "${unity[@]}" "${warnings[@]}" "${options[@]}" &&
    programs=$(python3 -B scripts/test_tools.py programs "build/$preset" "${@:3}") || return
  if [[ -z $programs ]]; then return; fi  # They are scripts.
  mapfile -t programs <<<"$programs"
  cmake --build --preset "$preset" --target "${programs[@]}" -- -k 0
}

# test_and_count PRESET NAME REPORT [CTEST_OPTION...]: a step; adds the tests to the counts.
test_and_count() {
  local report=build/$1/$3
  rm -f "$report"
  step "$2" test_preset "$1" "$3" "${@:4}"
  reports+=("$report")
  count_tests "$report"
}

# test_quickly PRESET...
test_quickly() {
  local preset
  for preset in "$@"; do
    step "build: $preset" build_for_tests "$preset" quick_options --label-regex '^quick$'
    test_and_count "$preset" "tests: $preset" tests.xml --label-regex '^quick$'
  done
}

share_count() { sed -nE 's/^set\(penstock_share_count ([0-9]+)\)$/\1/p' tests/shares.cmake; }

# share_of_commit: which share CI runs with the commit at hand, and by what: the commit's number, counted from the
# first one, modulo the number of shares. A shallow clone does not know that number, so there the commit's hash
# is taken for it.
share_of_commit() {
  local number reason
  if [[ ! -e .git ]] || ! number=$(git rev-list --count HEAD 2>/dev/null); then
    number=0 reason="git knows no commit here"
  elif [[ $(git rev-parse --is-shallow-repository) == true ]]; then
    number=$((16#$(git rev-parse HEAD | cut -c 1-12)))
    reason="the clone is shallow, so this is by the commit's hash; in a whole clone its number may name another share"
  else
    reason="the commit's number is $number"
  fi
  echo $((number % $(share_count))) "$reason"
}

# test_share NUMBER: of each preset what has the label.
test_share() {
  local share=$1 preset options label="^share_$1\$"
  for preset in emulated asan tsan cuda; do
    if ! has_tests "$preset" "$label"; then continue; fi
    if [[ $preset == emulated && -n $apart ]]; then
      mapfile -t options < <(share_options "$preset")
      step "build: $preset, all" build_preset "$preset" "${options[@]}"
    else
      step "build: $preset, share $share" build_for_tests "$preset" share_options --label-regex "$label"
    fi
    if [[ $preset == cuda ]] && only_gpu_tests "$label"; then continue; fi
    test_and_count "$preset" "tests: $preset, share $share" share.xml --label-regex "$label"
  done
}

# only_gpu_tests LABEL: they are compiled, and there is nothing to run. The preset leaves them out.
only_gpu_tests() { [[ $(ctest --preset cuda -N --no-tests=ignore --label-regex "$1") == *"Total Tests: 0"* ]]; }

# build_rest PRESET: what no test needs, of a preset that is configured already.
build_rest() {
  local rest
  rest=$(python3 -B scripts/test_tools.py rest "build/$1") || return
  mapfile -t rest <<<"$rest"
  cmake --build --preset "$1" --target "${rest[@]}" -- -k 0
}

# build_headers PRESET SIXTH: a sixth of the sources that include one header alone (0 to 5), and all that
# include penstock.hpp, which includes the others.
build_headers() {
  local sources
  mapfile -t sources < <(ninja -C "build/$1" -t targets all |
    sed -nE 's/^(.*header_(tests|options)[a-z_]*\.dir\/.*\.o): .*/\1/p' | sort |
    awk -v sixth="$2" '/\/penstock_(alone|poisoned)/ || NR % 6 == sixth')
  [[ ${#sources[@]} -gt 0 ]] && cmake --build --preset "$1" --target "${sources[@]}" -- -k 0
}

# has_tests PRESET LABEL: configures the preset with everything.
has_tests() {
  local options
  mapfile -t options < <(share_options "$1")
  cmake --preset "$1" "${unity[@]}" "${warnings[@]}" "${options[@]}" >/dev/null || return 0  # It will be seen.
  [[ $(ctest --test-dir "build/$1" -N --label-regex "$2") != *"Total Tests: 0"* ]]
}

# check_shares: each test of --full, and of the cuda preset, is quick or of a share.
check_shares() {
  local preset quick options pairs=()
  for preset in emulated asan tsan cuda; do
    quick=full
    mapfile -t options < <(share_options "$preset")
    cmake --preset "$preset" -B "build/shares/full/$preset" "${options[@]}" >/dev/null || return
    if [[ $(quick_options "$preset") != $(share_options "$preset") ]]; then
      quick=quick
      mapfile -t options < <(quick_options "$preset")
      cmake --preset "$preset" -B "build/shares/quick/$preset" "${options[@]}" >/dev/null || return
    fi
    pairs+=("build/shares/$quick/$preset=build/shares/full/$preset")
  done
  python3 -B scripts/test_tools.py shares "$(share_count)" "${pairs[@]}"
}

# ---- Counts, and where the time went -----------------------------------------------------------------

# count_tests REPORT: adds what ctest counted.
count_tests() {
  local counts
  if [[ ! -f $1 ]]; then return; fi
  # tests, failures, disabled and skipped, in this order: attributes of the <testsuite>
  mapfile -t counts < <(sed -nE 's/^\s+(tests|failures|disabled|skipped)="([0-9]+)".*/\2/p' "$1" | head -n 4)
  passed=$((passed + counts[0] - counts[1] - counts[2] - counts[3]))
  failed=$((failed + counts[1]))
  skipped=$((skipped + counts[2] + counts[3]))
}

# Lists the steps, what was slow, what failed and what was skipped, counts tests and steps, and is the exit status: 0 when
# nothing failed and, with skips_fail, nothing was skipped.
finish() {
  if [[ ${#reports[@]} -gt 0 ]]; then
    python3 -B scripts/test_tools.py slowest "$began" "${builds[@]}" -- "${reports[@]}" || true
  fi
  say "Result"
  printf '%s\n' "${steps[@]}"
  printf '        %5d s %6d s of CPU  together\n' $(($(date +%s) - began)) "$(cpu_seconds)"
  if [[ ${#reports[@]} -gt 0 ]]; then
    echo
    python3 -B scripts/test_tools.py failed "${reports[@]}" || true
    python3 -B scripts/test_tools.py skipped "${reports[@]}" || true
  fi
  if [[ -n $skips_fail && $skipped -gt 0 ]]; then
    printf '\nNothing may be skipped here: %d skipped count as failed.\n' "$skipped"
    failed=$((failed + skipped)) skipped=0
  fi
  printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [[ $failed -eq 0 ]]
}
