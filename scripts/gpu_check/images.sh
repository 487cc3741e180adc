# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# A step of scripts/gpu-check, which sources this: training from JPEG files, and PyTorch beside it.

images_targets="make_images penstock-pack 15_images 16_hardware_decoder"

# make_jpegs NAME COUNT WIDTH HEIGHT: once, in the build folder.
make_jpegs() {
  if [[ -d $build/$1 ]]; then return; fi
  limited 120 "$build/examples/data/make_images" --out "$build/$1" --train "$2" --val 0 --plain --width "$3" --height "$4"
}

# Files of 500 x 375; and smaller ones, as FFCV's users make them, in a packed file.
images() {
  has_resnet 15_images || return
  make_jpegs jpegs "$(scaled 20000 64)" "$(scaled 500 100)" "$(scaled 375 75)" &&
    make_jpegs small-jpegs "$(scaled 20000 64)" "$(scaled 341 68)" "$(scaled 256 51)" || return
  if [[ ! -f $build/small-jpegs/train.pack ]]; then
    limited 60 "$build/src/pack/penstock-pack" "$build/small-jpegs/train" -o "$build/small-jpegs/train.pack" || return
  fi
  limited 500 python3 scripts/gpu_check/images_measure.py --programs "$build/examples/resnet/train" \
    --images "$build/jpegs" --small "$build/small-jpegs" --plans "$build" --json "$folder/images.json" \
    --seconds "$(($(time_left) - 10))" ${dry_run:+--dry-run}
}
