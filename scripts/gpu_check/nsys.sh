# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# A step of scripts/gpu-check, which sources this: what Nsight Systems does here.

nsys_targets="make_cifar10 01_baseline 12_prefetcher"

# nsys_tries: what was tried with each nsys is in results.json, and the outputs beside it. What nsys left is in $OUT.
nsys_tries() {
  local found arguments status=0
  mapfile -t found < <(every_nsys)
  if [[ ${#found[@]} -eq 0 ]]; then echo "no nsys" && return 77; fi
  make_data || return
  arguments="--model $(scaled resnet18 resnet8) --image-size $image_size --steps $(scaled 10 3) --data '$data' --plans '$build/plans-of-nsys'"
  limited 150 python3 scripts/gpu_check/nsys_measure.py --nsys "${found[@]}" --out "$folder" ${OUT:+--keep "$OUT"} \
    --baseline "'$build/examples/resnet/train/01_baseline$suffix' $arguments --batch $(scaled 32 8)" \
    --prefetcher "'$build/examples/resnet/train/12_prefetcher$suffix' $arguments --batch $(scaled 128 8)" \
    ${dry_run:+--emulated} || status=$?
  return "$status"
}
