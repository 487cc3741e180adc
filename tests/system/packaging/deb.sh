#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# deb.sh PROJECT OUTPUT: CPack's Debian packages are installed into a root that has nothing else. Consumers are built with that
# penstock, and its programs run. Each source is compiled by itself, at -O3, and a warning is an error, as some packagers want.
set -euo pipefail
source "$(dirname "$0")/common.sh" "$@"

for tool in cpack dpkg dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || skip "there is no $tool (Debian: cmake, dpkg-dev)"
done

cmake -S "$project" -B "$output/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
  -DPENSTOCK_WITH_CUDA="$HAS_CUDA" -DPENSTOCK_WITH_EMULATION=ON -DPENSTOCK_WITH_NVTX=ON \
  -DPENSTOCK_BUILD_IMAGES="$HAS_IMAGES" -DPENSTOCK_BUILD_REMOTE="$HAS_REMOTE" -DPENSTOCK_BUILD_VIDEO="$HAS_VIDEO" \
  -DPENSTOCK_BUILD_TRACE=ON -DPENSTOCK_BUILD_TRACE_PROGRAM=ON -DPENSTOCK_BUILD_PACK_PROGRAM=ON \
  -DPENSTOCK_IMAGES_WITH_NVJPEG=AUTO -DPENSTOCK_VIDEO_WITH_NVDEC=AUTO -DPENSTOCK_TRACE_WITH_CUPTI=AUTO \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" \
  -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_EXAMPLES=OFF -DPENSTOCK_BUILD_BENCHMARKS=OFF
cmake --build "$output/build"
cpack -G DEB --config "$output/build/CPackConfig.cmake" -B "$output/packages"

packages=("$output"/packages/*.deb)
for package in "${packages[@]}"; do dpkg-deb --field "$package"; done
[[ ${#packages[@]} -eq 2 ]]
if command -v lintian >/dev/null; then  # Debian wants the address of the packager, and there is none here.
  lintian --allow-root --fail-on error --suppress-tags malformed-contact,root-in-contact "${packages[@]}"
fi

root=$output/root
mkdir -p "$root"/var/lib/dpkg/{info,updates}
touch "$root"/var/lib/dpkg/{status,available}
if [[ $(id -u) -eq 0 ]]; then  # That finds a file of two packages too.
  dpkg --root="$root" --force-depends --install "${packages[@]}"
else
  for package in "${packages[@]}"; do dpkg-deb --extract "$package" "$root"; done
fi
for name in libpenstock-dev penstock-tools; do [[ -s $root/usr/share/doc/$name/copyright ]]; done

build_consumer emulated "$root" -DCMAKE_PREFIX_PATH="$root/usr"
if [[ $HAS_IMAGES == ON ]]; then build_consumer images "$root" -DCMAKE_PREFIX_PATH="$root/usr"; fi
if [[ $HAS_REMOTE == ON ]]; then build_consumer remote "$root" -DCMAKE_PREFIX_PATH="$root/usr"; fi
if [[ $HAS_VIDEO == ON ]]; then build_consumer video "$root" -DCMAKE_PREFIX_PATH="$root/usr"; fi
"$root/usr/bin/penstock-pack" --help >/dev/null
"$root/usr/bin/penstock-trace" --out "$output/traced" -- "$output/consumer_emulated/consumer" | tee "$output/log"
grep --quiet 'recorded by emulated CUDA runtime' "$output/log"
