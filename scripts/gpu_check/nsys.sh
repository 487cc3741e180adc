# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its steps try Nsight Systems on this machine, and record reports of the rungs.

nsys_targets="make_cifar10 01_baseline 12_prefetcher"
# The rungs of the chapters of docs/profiling.md, then others of docs/measured/rungs.md. The sub-steps there (T3b, T7b, I4a ...) have to
# be named.
reported=T12,T14,I8,quickstart,T1,T2,T3,T5,T11,I1,I5a,T0,T4,T6,T7,T8,T9,T10,I2,I3,I4,I6,I7

# targets_of_reports [RUNG,RUNG...]: prints the targets of the programs.
targets_of_reports() {
  local rung number
  for rung in $(tr , ' ' <<<"${1:-$reported}"); do
    number=$(file_number "$rung")
    case $rung in
      T*) grep -oE "\b${number}_[a-z0-9_]+" <<<"$(rungs_in train)" ;;
      I*) grep -oE "\binfer_${number}_[a-z0-9_]+" <<<"$(rungs_in infer infer_)" ;;
      *) echo "$rung" ;;
    esac
  done
}

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

# reports [RUNG,RUNG...]: records RUNG.nsys-rep of each by scripts/profile, or RUNG.qdstrm if this machine cannot import it. T13 has two
# ranks, T13.rank0 and T13.rank1. All reports go to $OUT too, with the machine and the commit. scripts/nsys_picture.py draws them.
reports() {
  local rung status=0 wanted=${1:-$reported}
  make_data || return
  {
    machine
    echo "commit ${PENSTOCK_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || true)}"
  } >"$folder/made-on.txt" 2>&1
  for rung in ${wanted//,/ }; do
    report "$rung" || { echo "FAILED: $rung" && status=1; }
  done
  rm -f "$folder"/*.sqlite
  if [[ -n ${OUT:-} ]]; then pack_reports || status=1; fi
  return "$status"
}

# pack_reports: packs the reports into $OUT, eight to a file, since large files may not be fetched. Each file says where they were made.
pack_reports() {
  local files first
  mapfile -t files < <(cd "$folder" && compgen -G '*.qdstrm'; cd "$folder" && compgen -G '*.nsys-rep')
  for ((first = 0; first < ${#files[@]}; first += 8)); do
    tar -C "$folder" -cJf "$OUT/reports-$((first / 8 + 1)).tar.xz" made-on.txt "${files[@]:first:8}" || return
  done
}

report() {
  local program sizes options=()
  if [[ $1 == quickstart ]]; then
    program=$build/examples/quickstart/quickstart$suffix options=(--whole)
    sizes=(--cache "$folder" --records "$(scaled 20000 2000)")
  else
    program=$(program_of "$1")
    read -ra sizes <<<"$(sizes_of "$1" 12 30)"
    if [[ $1 == T0 && -z $dry_run ]]; then sizes+=(--batch 64); fi  # glibc keeps blocks of 32 images
    sizes+=(--model "$(scaled resnet18 resnet8)" --image-size "$image_size" --data "$data" --plans "$(plans_of "$1")" --workers "$(scaled 14 2)")
  fi
  if [[ ! -x $program ]]; then echo "$1 was not built" && return 1; fi
  if [[ $1 == T13 ]]; then
    # shellcheck disable=SC2016  # Each rank expands its own.
    limited 90 scripts/launch -n 2 -- bash -c 'exec scripts/profile --tool nsys -- --output="$0.rank$RANK" "$@"' "$folder/$1" "$program" "${sizes[@]}"
  else
    limited 90 scripts/profile --tool nsys "${options[@]}" -- --output="$folder/$1" "$program" "${sizes[@]}"
  fi
}
