# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# scripts/gpu-check sources this. Its steps measure inference.

# infer_ladder FOLDER OPTION...: runs the inference ladder. The options are the ladder's and, after --, those of its rungs. The
# build folder keeps the plans for later runs.
infer_ladder() {
  local into=$1 plans status=0
  shift
  mkdir -p "$into"
  for plans in "$build"/plans-*; do
    if [[ -f $plans ]]; then cp "$plans" "$into"; fi
  done
  limited 300 examples/resnet/infer/ladder "${quick[@]}" --programs "$build/examples/resnet/infer/rungs" \
    --out "$into" "$@" --image-size "$image_size" --data "$data" || status=$?
  for plans in "$into"/plans-*; do
    if [[ -f $plans ]]; then mv "$plans" "$build"; fi
  done
  return "$status"
}

# With workers that load, and with what the rungs reach when loading costs nothing.
inference() {
  local common=(--model resnet18 --batches "$(scaled 128 4)" --steps "$(scaled 200 4)" --warmup "$(scaled 24 4)")
  local status=0
  make_data || return
  echo "-- as it is"
  infer_ladder "$folder/loading" --repeat 1 -- "${common[@]}" --workers "$(scaled 14 2)" || status=1
  echo "-- loading for free"
  infer_ladder "$folder/free" --repeat 1 -- "${common[@]}" --workers "$(scaled 4 2)" --free-loading || status=1
  return "$status"
}

# pytorch_inference [MODEL:BATCH,BATCH,MODEL:BATCH...]: a file for each batch size, as soon as it is measured. Eager
# float32 is left out: the time is max-autotune's.
pytorch_inference() {
  local words pairs=() word model=resnet18 batch left pair ours=75  # seconds, with the search for plans
  IFS=, read -ra words <<<"${1:-resnet18:128}"
  for word in "${words[@]}"; do
    if [[ $word == *:* ]]; then model=${word%%:*}; fi
    pairs+=("$model:${word##*:}")
  done
  export TORCHINDUCTOR_CACHE_DIR=$build/inductor TORCHINDUCTOR_COMPILE_THREADS=16
  make_data || return
  left=${#pairs[@]}
  for pair in "${pairs[@]}"; do
    model=${pair%%:*} batch=${pair##*:}
    pytorch_batch "$model" "$batch" $(($(time_left) / left - ours))
    our_batch "$model" "$batch"
    left=$((left - 1))
  done
  echo
  python3 benchmarks/peers/inference_ratio.py "$folder"
}

# pytorch_batch MODEL BATCH SECONDS. max-autotune tells of every convolution: that goes to a file.
pytorch_batch() {
  limited "$3" python3 benchmarks/peers/pytorch_inference.py --models "$1" --batches "$2" \
    --modes "$(scaled half,max_autotune eager)" --limit "$(($3 - 15))" --device "$device" \
    --image-size "$image_size" --json "$folder/$1-$2.json" 2>"$folder/$1-$2.errors.txt" ||
    tail -n 5 "$folder/$1-$2.errors.txt"
}

# our_batch MODEL BATCH: the same work, on images that lie in pinned memory. Small batches need many steps to last.
our_batch() {
  local steps=$((40000 / $2))
  if [[ $steps -lt 100 ]]; then steps=100; fi
  if [[ $steps -gt 4000 ]]; then steps=4000; fi
  infer_ladder "$folder/$1-$2" --only I7,I8,I8u --repeat 3 --peer "$folder/$1-$2.json" -- --model "$1" --batches "$2" \
    --steps "$(scaled "$steps" 4)" --warmup "$(scaled 24 4)" --workers 4 --free-loading
}

classify() {
  local programs=$build/examples/resnet/infer
  limited 400 python3 tests/examples/resnet/infer/classify/torchvision_check.py \
    --prepare "$programs/prepare$suffix" --classify "$programs/classify/classify$suffix" --device "$device" \
    --image-size "$(scaled 224 64)" --pictures "$(scaled 2000 60)" --steps "$(scaled 150 12)" \
    --out "$build/torchvision-check" --json "$folder/classify.json"
}

# latency [MODEL]: one that was trained for a moment, so that different images have different answers.
latency() {
  local model=${1:-resnet18} programs=$build/examples/resnet contexts status=0
  local weights=$build/$model.safetensors prepared=$build/$model.prepared
  make_data || return
  if [[ ! -f $weights ]]; then
    limited 200 "$programs/train/train$suffix" --model "$model" --image-size "$image_size" \
      --batch "$(scaled 128 50)" --epochs 1 --data "$data" --checkpoint "$weights" || return
  fi
  limited 200 "$programs/infer/prepare$suffix" --weights "$weights" --model "$model" --image-size "$image_size" \
    --batches 1,4,16,64 --check 0 --out "$prepared" || return
  for contexts in 1 2; do
    limited 200 "$programs/infer/latency/latency$suffix" --prepared "$prepared" --contexts "$contexts" \
      --clients 1,4,16,64 --rate "$(scaled 1000,4000,16000,64000 20,1000)" --max-batch 64 --images 4 --check \
      --requests "$(scaled 20000 40)" --warmup "$(scaled 1000 4)" --json "$folder/contexts-$contexts.json" || status=1
  done
  return "$status"
}
