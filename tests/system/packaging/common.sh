# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the tests share. Source it with the test's arguments, PROJECT and OUTPUT: OUTPUT becomes an empty folder.
# HAS_CUDA, HAS_IMAGES, HAS_REMOTE and HAS_VIDEO of the environment (ON or OFF) say what can be built.

project=$1 output=$2
# shellcheck disable=SC2034  # conan.sh and wheel.sh use it.
tools=$project/.deps/packaging
consumers=$project/tests/system/package
rm -rf "$output"
mkdir -p "$output"
export PYTHONDONTWRITEBYTECODE=1 CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=2

skip() {
  echo "skipped: $*"
  exit 77
}

# build_consumer NAME WHERE CMAKE_OPTION...: builds and runs the consumer of that name. Its penstock has to be in WHERE.
build_consumer() {
  local name=$1 where=$2 build=$output/consumer_$1
  cmake -S "$consumers/$name" -B "$build" "${@:3}"
  grep "^penstock_DIR:[A-Z]*=$where/" "$build/CMakeCache.txt"
  cmake --build "$build" --target consumer
  "$build/consumer"
}
