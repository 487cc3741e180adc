# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its steps run programs under compute-sanitizer.

sanitized_targets="penstock_runtime_rules_gpu penstock_gpu_tests resnet_cudnn_test minimal quickstart make_cifar10
  05_readback 14_records_and_graph infer_07_graph"

# sanitize TOOL [OPTION...]: the test programs, the ResNet's kernels, and the small examples, under a tool of
# compute-sanitizer.
sanitize() {
  local options=(--tool "$@" --error-exitcode 9 --target-processes all) result=0
  case $1 in
    memcheck)
      sanitized "$build/tests/gpu/penstock_gpu_tests"
      sanitize_resnet train/05_readback train/14_records_and_graph infer/rungs/07_graph
      sanitize_rules
      ;;
    racecheck) # It adds a millisecond to each kernel, and fails over cuDNN's kernels of fp16, even where it looks at none of ours.
      sanitized "$build/tests/gpu/penstock_gpu_tests" '~[traffic]'
      sanitize_resnet train/05_readback
      sanitize_resnet_alone
      sanitize_rules
      ;;
    initcheck) # It waits for every kernel: no gates.
      sanitized "$build/tests/gpu/penstock_gpu_tests" '[kernel]'
      sanitize_resnet_alone
      ;;
  esac
  sanitized tests/examples/minimal_test.sh "$build"/examples/{minimal/minimal,data/make_cifar10} python3
  sanitized tests/examples/quickstart_test.sh batch_sizes \
    "$build"/examples/{quickstart/quickstart,data/make_cifar10}
  return "$result"
}

sanitize_rules() {
  sanitized "$build/tests/emulation/penstock_runtime_rules_gpu" '~[not-under-compute-sanitizer]'
}

# sanitize_resnet RUNG...: three steps of training (T5: float32 and NCHW with an operation a kernel; T14: float16 and NHWC, fused, decoded
# and augmented on the device, as a graph), and inference (I7: as a graph). Images of 32x32, batches of 8. The tool looks at the
# kernels that have "resnet" in their names, which are ours: cuDNN's are many, and slow under it. Plans are found
# before, without it.
sanitize_resnet() {
  local ours=(--kernel-name kns=resnet) rung command
  local common=(--model resnet18 --image-size 32 --steps 2 --warmup 1 --workers 2 --records 40 --cache "$folder")
  for rung; do
    command=("$build/examples/resnet/$rung$suffix" "${common[@]}" --plans "$folder/plans-$(basename "$rung")")
    case $rung in
      infer/*) command+=(--batches 8 --uint8) ;;
      *) command+=(--batch 8) ;;
    esac
    limited 60 "${command[@]}" || { echo "FAILED: ${command[*]}" && result=1 && continue; }
    sanitized "${ours[@]}" "${command[@]}"
  done
  rm -rf "$folder"/plans-* "$folder"/penstock-shapes-*
}

# Our kernels on their own, by their tests. What is initialised a tool knows from all the kernels before, so that none may
# be left out.
sanitize_resnet_alone() {
  sanitized "$build/tests/examples/resnet/cudnn/resnet_cudnn_test" \
    "batch norm where*,max pool*,average pool*,cross entropy*,conversions*,SGD*,an overflow*,good steps*"
}

sanitized() {
  limited 100 compute-sanitizer "${options[@]}" "$@" || { echo "FAILED: $*" && result=1; }
}
