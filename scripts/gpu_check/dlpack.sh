# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its step tests leases as PyTorch's tensors, and measures DataLoader beside them.

dlpack_targets="penstock_loader libtorch make_images"

dlpack() {
  local module=$build/examples/pytorch/cuda small=() epochs=2
  if [[ -n $dry_run ]]; then
    module=$build/examples/pytorch/emulated epochs=1
    small=(--batch 8 --size 32 --steps 2 --warmup 1 --rounds 1 --workers 2 --no-compile)
  elif ! compgen -G "$module/penstock_loader.*" >/dev/null; then
    echo "the Python module was not built: no nanobind, or no Python.h; see log of configure" && return 1
  else
    limited 120 ctest --test-dir "$build" --tests-regex '^examples\.(pytorch|libtorch)\.gpu$' --output-on-failure --no-tests=error \
      --output-junit "$folder/tests.xml" || return
  fi
  make_jpegs jpegs "$(scaled 20000 64)" "$(scaled 500 100)" "$(scaled 375 75)" || return
  limited 120 env PYTHONPATH="$module" python3 examples/pytorch/train.py "$build/jpegs/train" "$epochs" &&
    limited 400 python3 examples/pytorch/benchmark.py "$build/jpegs/train" --module "$module" --device "$device" \
      --json "$folder/dlpack.json" "${small[@]}"
}
