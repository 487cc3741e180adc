#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pkg_config.sh PKG_CONFIG FOLDER CUDA COMPILER OUTPUT: compiles, links and runs the consumer with the flags of
# penstock-emulated.pc in FOLDER. CUDA has include/, with CUDA's headers.
set -euo pipefail
pkg_config=$1 folder=$2 cuda=$3 compiler=$4 output=$5

read -ra flags < <(PKG_CONFIG_PATH=$folder "$pkg_config" --define-variable=cuda="$cuda" --cflags --libs penstock-emulated)
printf '%s\n' "${flags[*]}"
here=$(dirname "$0")
"$compiler" "$here"/{main,check}.cpp "${flags[@]}" -o "$output/pkg_config_consumer"
"$output/pkg_config_consumer" | grep '16 of 16 numbers arrived'
