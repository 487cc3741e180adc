# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# A step of scripts/gpu-check, which sources this: several GPUs, and PyTorch's DDP beside them.

distributed_targets="make_cifar10 13_distributed penstock-trace"

distributed() {
  has_resnet && make_data || return
  limited 500 python3 scripts/gpu_check/distributed_measure.py --programs "$build/examples/resnet/train" --data "$data" \
    --plans "$build" --trace "$build/src/trace/penstock-trace" --out "$folder" --seconds "$(($(time_left) - 10))" \
    ${dry_run:+--dry-run}
}
