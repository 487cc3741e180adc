#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu_check_test.sh SCRIPTS: scripts/gpu-check, with programs that stand in for ctest, compute-sanitizer and the
# benchmarks: a test that is skipped fails the run, time is shared, and what there was no time for is said.
set -euo pipefail
scripts=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PENSTOCK_GPU_CHECK_RESULTS=$scratch/results
mkdir -p "$scratch/bin" "$scratch/build/benchmarks"
PATH=$scratch/bin:$PATH

# program FILE: what is read becomes a program.
program() { { echo '#!/usr/bin/env bash' && cat; } >"$1" && chmod +x "$1"; }

# check STATUS TEXT... -- WORD...: how gpu-check ends, and texts that it prints.
check() {
  local wanted=$1 texts=() status=0 output text
  shift
  while [[ $1 != -- ]]; do texts+=("$1") && shift; done
  shift
  output=$("$scripts/gpu-check" --dry-run "$scratch/build" "$@" 2>&1) || status=$?
  if [[ $status -ne $wanted ]]; then echo "FAILED: exit status $status, not $wanted: $*"$'\n'"$output" && exit 1; fi
  for text in "${texts[@]}"; do
    if [[ $output != *"$text"* ]]; then echo "FAILED: no \"$text\": $*"$'\n'"$output" && exit 1; fi
  done
}

# ctest, of whose two tests $1 are skipped: it passes.
stand_in_for_ctest() {
  program "$scratch/bin/ctest" <<END
echo "ctest \$*"
while [[ \$1 != --output-junit ]]; do shift; done
printf '<testsuite\n\ttests="2"\n\tfailures="0"\n\tdisabled="0"\n\tskipped="$1"\n>\n' >"\$2"
for test in one two; do
  printf '<testcase name="%s" time="1">%s</testcase>\n' "\$test" "\$([[ \$test == two && $1 -gt 0 ]] && echo '<skipped/>')" >>"\$2"
done
echo '</testsuite>' >>"\$2"
END
}

stand_in_for_ctest 0
check 0 "3 passed, 0 failed, 0 skipped" -- tests
stand_in_for_ctest 1
check 1 "Nothing may be skipped here" ": two" "2 passed, 1 failed" -- tests
check 1 "Nothing may be skipped here" "2 passed, 1 failed" -- exchange
stand_in_for_ctest 0
check 0 "--label-regex ^gpu\$ --label-exclude ^package\$ --tests-regex ladder|rules --output" "3 passed, 0 failed" -- "tests=ladder|rules"
check 0 "--label-regex ^gpus\$" "3 passed, 0 failed" -- gpus
check 1 "gpus takes no argument" -- gpus=2

# Every source of benchmarks/ is run with options that it knows, and one that is missing fails.
names=()
for source in "$scripts"/../benchmarks/*_benchmark.{cpp,cu}; do
  name=$(basename "${source%.*}")
  if [[ $name == gds_benchmark ]]; then continue; fi  # the step gds runs it
  names+=("$name")
  program "$scratch/build/benchmarks/${names[-1]}" <<'END'
echo "I am $(basename "$0"): $*"
END
done
program "$scratch/bin/nvidia-smi" <<<'echo "GPU 0: one that stands in"'
check 0 "${names[@]/#/I am }" "gds_benchmark: the step gds runs it" "I am sampler_benchmark: --benchmark_min_time=" "I am trace_overhead_benchmark: 1" \
  "I am store_benchmark: $scratch/build 64 1" "I am tune_benchmark: --decisions source" -- benchmarks
if [[ $(cat "$scratch"/results/benchmarks/{store,tune,trace_overhead,batch_norm}_benchmark.txt) == *--benchmark_* ]]; then
  echo "FAILED: Google Benchmark's options for a program that has its own" && exit 1
fi
mv "$scratch/build/benchmarks/sampler_benchmark"{,_emulated}
check 0 "I am sampler_benchmark_emulated" -- benchmarks
program "$scratch/build/benchmarks/sampler_benchmark" <<<'exit 1'
check 0 "I am sampler_benchmark_emulated" -- benchmarks
rm "$scratch/build/benchmarks/sampler_benchmark"{,_emulated}
check 1 "FAILED: sampler_benchmark was not built" "I am stats_benchmark" -- benchmarks
program "$scratch/build/benchmarks/sampler_benchmark" <<<'true'
# One that fails is not tried again with other options, and the others go on.
program "$scratch/build/benchmarks/trace_overhead_benchmark" <<'END'
[[ $1 == --* ]]
END
check 1 "FAILED: trace_overhead_benchmark" "I am tune_benchmark" -- benchmarks
# Without a GPU.
rm "$scratch/bin/nvidia-smi"
check 0 "resize_batch_benchmark needs a GPU: not tried" "I am stats_benchmark" -- benchmarks

# The ResNet's kernels are seen by each tool; what a tool finds fails.
for rung in train/05_readback train/14_records_and_graph infer/rungs/07_graph; do
  mkdir -p "$(dirname "$scratch/build/examples/resnet/$rung")"
  program "$scratch/build/examples/resnet/${rung}_emulated" <<<'true'
done
program "$scratch/bin/compute-sanitizer" <<'END'
echo "checked: $*"
END
check 0 "checked: --tool memcheck" "kns=resnet" "05_readback_emulated --model resnet18" "14_records_and_graph_emulated" "07_graph_emulated" \
  "penstock_gpu_tests" "penstock_runtime_rules_gpu" "minimal_test.sh" "quickstart_test.sh" -- memcheck
check 0 "checked: --tool racecheck" "kns=resnet" "05_readback_emulated --model resnet18" "resnet_cudnn_test" \
  "penstock_gpu_tests" "penstock_runtime_rules_gpu" "minimal_test.sh" "quickstart_test.sh" -- racecheck
check 0 "checked: --tool initcheck" "resnet_cudnn_test" "penstock_gpu_tests [kernel]" -- initcheck
program "$scratch/bin/compute-sanitizer" <<'END'
[[ $* != *14_records_and_graph* ]] || exit 9
END
check 1 "FAILED: " "14_records_and_graph_emulated" "0 passed, 1 failed" -- memcheck
program "$scratch/build/examples/resnet/train/05_readback_emulated" <<<'exit 1'
check 1 "FAILED: " "05_readback_emulated" "0 passed, 1 failed" -- racecheck

# Without a name: what there is time for. With one: that, or a failure.
export PENSTOCK_GPU_CHECK_SECONDS=15
stand_in_for_ctest 0
check 0 "There was no time for:" "scripts/gpu-check memcheck" "scripts/gpu-check benchmarks" "3 passed" --
PENSTOCK_GPU_CHECK_SECONDS=0 check 1 "no time left" -- tests
check 1 "no step nonsense" -- nonsense

# What is built is what the steps run. (With a stand-in for CMake, so that nothing is.)
for name in nvidia-smi nvcc cmake; do
  program "$scratch/bin/$name" <<'END'
echo "$*"
END
done
PENSTOCK_GPU_CHECK_BUILD=$scratch/empty "$scripts/gpu-check" benchmarks ladder >"$scratch/output.txt" 2>&1 && echo "FAILED: nothing was built, and it passed" && exit 1
for target in benchmarks/all 01_baseline 14_records_and_graph make_cifar10; do
  if ! grep -q -- "--target .*$target" "$scratch/results/build/all.txt"; then
    echo "FAILED: $target is not built"
    cat "$scratch/results/build/all.txt" "$scratch/output.txt"
    exit 1
  fi
done
if grep -q penstock_gpu_tests "$scratch/results/build/all.txt"; then echo "FAILED: more is built than is run" && exit 1; fi
