# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# Steps of scripts/gpu-check, which sources this: what Nsight Systems does here, and its reports of the rungs.

nsys_targets="make_cifar10 01_baseline 12_prefetcher"
reported=T1,T2,T3,T5,T11,T12,T14,I1,I5a,I8  # the chapters of docs/profiling.md
reports_targets="make_cifar10 01_baseline 02_workers 03_pinned 05_readback 11_copy_stream 12_prefetcher 14_records_and_graph
  infer_01_baseline infer_05a_streams infer_08_contexts"

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

# reports [RUNG,RUNG...]: RUNG.nsys-rep of each, by scripts/profile; or RUNG.qdstrm, where nothing here imports it. All of them are in
# $OUT too: scripts/nsys_picture.py draws them.
reports() {
  local rung program sizes status=0 wanted=${1:-$reported}
  make_data || return
  for rung in ${wanted//,/ }; do
    program=$(program_of "$rung")
    if [[ -z $program ]]; then echo "$rung was not built" && status=1 && continue; fi
    read -ra sizes <<<"$(sizes_of "$rung" 12 30)"
    limited 90 scripts/profile --tool nsys -- --output="$folder/$rung" "$program" --model "$(scaled resnet18 resnet8)" --image-size "$image_size" \
      --data "$data" --plans "$(plans_of "$rung")" --workers "$(scaled 14 2)" "${sizes[@]}" || { echo "FAILED: $rung" && status=1; }
  done
  rm -f "$folder"/*.sqlite
  if [[ -n ${OUT:-} ]]; then tar -C "$folder" --exclude='*.txt' -cJf "$OUT/reports.tar.xz" . || status=1; fi
  return "$status"
}
