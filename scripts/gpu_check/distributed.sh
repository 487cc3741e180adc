# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its step measures several GPUs beside PyTorch's DDP.

distributed_targets="make_cifar10 13_distributed penstock-trace"

distributed() {
  local result=0
  has_resnet 13_distributed && make_data || return
  if [[ -z $dry_run ]]; then gpus_tests || result=1; fi
  limited 500 python3 scripts/gpu_check/distributed_measure.py --programs "$build/examples/resnet/train" --data "$data" \
    --plans "$build" --trace "$build/src/trace/penstock-trace" --out "$folder" --seconds "$(($(time_left) - 10))" \
    ${dry_run:+--dry-run} || result=1
  return "$result"
}

# Most of them wait for time-outs. What they find is no reason to measure nothing.
gpus_tests() {
  limited 100 ctest --test-dir "$build" --label-regex '^gpus$' --parallel 8 --output-on-failure --no-tests=error \
    --timeout 90 --output-junit "$folder/tests.xml"
}
