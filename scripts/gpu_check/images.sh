# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its step measures training from JPEG files beside PyTorch and DALI.

images_targets="make_images penstock-pack image_loader 15_images 16_hardware_decoder"

# make_jpegs NAME COUNT WIDTH HEIGHT: once, in the build folder.
make_jpegs() {
  if [[ -d $build/$1 ]]; then return; fi
  limited 120 "$build/examples/data/make_images" --out "$build/$1" --train "$2" --val 0 --plain --width "$3" --height "$4"
}

# What `scripts/setup dali` has packed for this Python, if it was carried along.
use_packed_dali() {
  local packed folder=$build/dali
  packed=.deps/dali/dali-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])').tar.xz
  if [[ ! -f $packed ]]; then return; fi
  if [[ ! -d $folder ]]; then
    rm -rf "$folder.partial"
    limited 60 python3 scripts/gpu_check/pack_dali.py --unpack "$packed" --out "$folder.partial" && mv "$folder.partial" "$folder" ||
      return
  fi
  export PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH}
  export LD_LIBRARY_PATH=$root/.deps/nvjpeg/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}  # libnvjpeg, unless the machine has it
}

# Files of 500 x 375; and smaller ones, as FFCV's users make them, in a packed file.
images() {
  has_resnet 15_images && use_packed_dali || return
  make_jpegs jpegs "$(scaled 20000 64)" "$(scaled 500 100)" "$(scaled 375 75)" &&
    make_jpegs small-jpegs "$(scaled 20000 64)" "$(scaled 341 68)" "$(scaled 256 51)" || return
  if [[ ! -f $build/small-jpegs/train.pack ]]; then
    limited 60 "$build/src/pack/penstock-pack" "$build/small-jpegs/train" -o "$build/small-jpegs/train.pack" || return
  fi
  limited 500 python3 scripts/gpu_check/images_measure.py --programs "$build/examples/resnet/train" \
    --images "$build/jpegs" --small "$build/small-jpegs" --plans "$build" --json "$folder/images.json" \
    --seconds "$(($(time_left) - 10))" ${dry_run:+--dry-run}
}
