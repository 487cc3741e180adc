#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# wheel.sh PROJECT OUTPUT: the wheel is installed into a fresh virtual environment. A consumer is built with its CMake package,
# and scikit-build-core finds it too.
set -euo pipefail
source "$(dirname "$0")/common.sh" "$@"

[[ -d $tools/scikit_build_core ]] || skip "there is no scikit-build-core: scripts/setup full brings it"
python3 -m pip --version || skip "python3 has no pip (Debian: python3-pip)"
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1

PYTHONPATH=$tools python3 -m pip wheel --verbose --no-build-isolation --no-deps --wheel-dir "$output" "$project/packaging/wheel" \
  --config-settings=cmake.define.PENSTOCK_WITH_CUDA="$HAS_CUDA" --config-settings=build-dir="$output/build"
python3 -m venv --without-pip "$output/venv"
python=$output/venv/bin/python
python3 -m pip --python "$python" install "$output"/libpenstock-*-py3-none-linux_*.whl
version=$("$python" -m libpenstock --version)
grep --quiet "^set(PACKAGE_VERSION \"$version\")" "$("$python" -m libpenstock --cmake-dir)/penstock-config-version.cmake"

build_consumer emulated "$output/venv" -Dpenstock_DIR="$("$python" -m libpenstock --cmake-dir)"

# A project of its own: its CMakeLists.txt names no folder of penstock.
mkdir "$output/project"
cat >"$output/project/pyproject.toml" <<END
[build-system]
requires = ["scikit-build-core", "libpenstock"]
build-backend = "scikit_build_core.build"
[project]
name = "consumer"
version = "1"
[tool.scikit-build]
wheel.cmake = true
END
cat >"$output/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(penstock 1.0 REQUIRED COMPONENTS emulated)
message(STATUS "found \${penstock_DIR}")
END
PYTHONPATH=$tools python3 -m pip --python "$python" wheel --verbose --no-build-isolation --no-deps --wheel-dir "$output" \
  "$output/project" 2>&1 | tee "$output/log"
grep --quiet "found $output/venv/" "$output/log"
