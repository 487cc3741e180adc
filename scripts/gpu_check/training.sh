# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its steps measure training, and PyTorch beside it.

# rungs_in FOLDER [PREFIX]: prints the targets of the folder's rungs. A rung's target has the name of its file.
rungs_in() {
  local path
  for path in "$root/examples/resnet/$1/rungs"/[0-9]*.cpp; do
    path=${path##*/}
    printf '%s ' "${2:-}${path%.cpp}"
  done
}
# file_number RUNG: 05a of T5a and I5a, with which the names of its files begin.
file_number() {
  local number=${1:1}
  if [[ $number == [0-9] || $number == [0-9][a-z] ]]; then number=0$number; fi
  echo "$number"
}
training_targets="make_cifar10 make_images $(rungs_in train)"
ladders_targets="$training_targets$(rungs_in infer infer_)"

# train_ladder OPTION...: of the ladder's and, behind --, of its rungs. To time every plan takes minutes.
train_ladder() {
  has_resnet 05_readback || return
  limited 200 examples/resnet/train/ladder "${quick[@]}" --programs "$build/examples/resnet/train" --repeat 1 \
    --skip T7b --out "$folder" "$@" --data "$data"
}

# has_resnet RUNG: one that the step has built
has_resnet() {
  if [[ -x $build/examples/resnet/train/$1$suffix ]]; then return; fi
  echo "the ResNet was not built: no cuDNN, or no headers of its front end"
  return 1
}

# Every rung once, briefly: do they run, and what is each worth?
ladder() { make_data && train_ladder -- --steps "$(scaled 20 2)"; }

# On the same data, one after the other.
pytorch() {
  make_data &&
    limited 270 python3 benchmarks/peers/pytorch_ladder.py --data "$data" --limit 45 --device "$device" \
      --image-size "$image_size" --batch "$(scaled 32 4)" --large-batch "$(scaled 512 8)" \
      --json "$folder/pytorch.json" &&
    train_ladder --peer "$folder/pytorch.json" -- --steps "$(scaled 15 2)"
}

# ladder_table [MODEL[:RUNG,RUNG...]] and ladder_peers: go on from what an earlier call has left in the build folder, and
# from the tables' own results.
ladder_table() { measure_ladders table "$@"; }
ladder_peers() { measure_ladders peers "$@"; }

# measure_ladders table|peers [MODEL[:RUNG,RUNG...]]
measure_ladders() {
  local which=$1 models=${2:-resnet18,resnet50} options=() kind=() status=0 store=$build/ladder-$1.json
  if [[ $models == *:* ]]; then options=(--rungs "${models#*:}") models=${models%%:*}; fi
  if [[ $which == peers ]]; then kind=(--peers); fi
  if [[ -n $dry_run ]]; then options+=(--dry-run) store=$folder/results.json; fi
  has_resnet 05_readback && make_data && make_jpegs few-jpegs "$(scaled 4000 64)" "$(scaled 500 100)" "$(scaled 375 75)" || return
  limited 550 python3 scripts/gpu_check/ladder_measure.py --programs "$build/examples/resnet" --data "$data" \
    --images "$build/few-jpegs" --plans "$build" --store "$store" --start "examples/resnet/ladder-$which.json" \
    --models "$models" --seconds "$(($(time_left) - 10))" --left "$folder/left.txt" "${options[@]}" "${kind[@]}" || status=$?
  if [[ ! -f $store ]]; then return "$status"; fi
  if [[ $store != "$folder/results.json" ]]; then cp "$store" "$folder/results.json"; fi
  cp docs/measured/{training,inference}-ladder.md "$folder"
  python3 scripts/gpu_check/ladder_table.py "${kind[@]}" "$store" --store "$folder/table.json" \
    --peer-store "$folder/peers.json" --readme "$folder/training-ladder.md" --inference "$folder/inference-ladder.md" \
    --picture "$folder/ladder-table.svg" || status=$?
  sed -n '/ladder-table: made/,/ladder-table: end/p' "$folder/training-ladder.md" "$folder/inference-ladder.md"
  return "$status"
}

# The results say of which commit they are: better to fail before anything is built.
check_commit() {
  if git rev-parse HEAD >/dev/null 2>&1 || [[ -n ${PENSTOCK_COMMIT:-} ]]; then return; fi
  fail "which commit is this? There is no git here: set PENSTOCK_COMMIT"
}
