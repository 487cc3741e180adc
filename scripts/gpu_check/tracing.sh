# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# scripts/gpu-check sources this. Its steps record programs by penstock-trace and by other profilers.

trace=src/trace/penstock-trace  # in the build folder

# traces [RUNG,RUNG...]: reports of the measured steps; pages and recordings are too large to keep.
traces() {
  local wanted=,${1:-}, program rung ladder status=0
  make_data || return
  for program in "$build"/examples/resnet/{train,infer/rungs}/[0-9]*; do
    if [[ ! -x $program || $program != *[a-z]"$suffix" || (-z $suffix && $program == *_emulated) ]]; then continue; fi
    ladder=T
    if [[ $program == */rungs/* ]]; then ladder=I; fi
    rung=$(basename "$program")
    rung=${rung%%_*}
    rung=$ladder${rung#0}
    if [[ $rung == T7b && -z $dry_run ]]; then continue; fi  # It times every plan that cuDNN has, for minutes.
    if [[ $wanted != ,, && $wanted != *",$rung,"* ]]; then continue; fi
    trace_rung "$rung" "$program" || { echo "FAILED: $rung" && tail -n 5 "$folder/$rung/output.txt" && status=1; }
  done
  echo
  python3 scripts/gpu_check/trace_table.py "$folder" || status=1
  return "$status"
}

# trace_rung RUNG PROGRAM
trace_rung() {
  local into=$folder/$1 sizes status=0
  mkdir -p "$into"
  read -ra sizes <<<"$(sizes_of "$1")"
  limited 60 "$build/$trace" --capture-range --quiet --out "$into" -- "$2" --model resnet18 \
    --image-size "$image_size" --data "$data" --plans "$(plans_of "$1")" --workers "$(scaled 14 2)" \
    "${sizes[@]}" >"$into/output.txt" 2>&1 || status=$?
  rm -f "$into"/trace.*
  return "$status"
}

# Rungs that take the first plan there is, and those that time them; both ladders have different ones.
plans_of() {
  case $1 in
    T[0-5] | T[0-5][a-z] | I[1-3] | I3b | I4[a-c]) echo "$build/plans-of-${1:0:1}-guessed" ;;
    *) echo "$build/plans-of-${1:0:1}" ;;
  esac
}

# sizes_of RUNG [STEPS [REQUESTS]]: some tenths of a second, without the first steps.
sizes_of() {
  case $1 in
    T*) scaled "--steps ${2:-20} --warmup 5" "--steps 3 --warmup 1 --batch 8" ;;
    I9) scaled "--steps ${3:-100} --warmup 24" "--steps 4 --warmup 4 --batches 2,4" ;;
    I*) scaled "--steps ${3:-100} --warmup 24" "--steps 4 --warmup 4 --batches 4" ;;
  esac
}

# program_of RUNG: of T12, I5a ...; nothing, where it was not built.
program_of() {
  local number found
  number=$(file_number "$1")
  case $1 in
    T*) found=("$build/examples/resnet/train/${number}"_*"$suffix") ;;
    *) found=("$build/examples/resnet/infer/rungs/${number}"_*"$suffix") ;;
  esac
  if [[ -z $suffix ]]; then mapfile -t found < <(printf '%s\n' "${found[@]}" | grep -v '_emulated$'); fi
  if [[ -x ${found[0]:-} ]]; then echo "${found[0]}"; fi
}

# agreement [LOOP,LOOP...]: each loop has its share of the time.
agreement() {
  local loops loop left status=0
  IFS=, read -ra loops <<<"${1:-memory,products,short}"
  left=${#loops[@]}
  for loop in "${loops[@]}"; do
    limited 500 python3 benchmarks/peers/profiler_agreement.py --trace "$build/$trace" --loop "$loop" \
      --limit "$(($(time_left) / left - 20))" --json "$folder/$loop.json" || status=1
    left=$((left - 1))
  done
  return "$status"
}
