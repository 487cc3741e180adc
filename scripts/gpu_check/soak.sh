# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# scripts/gpu-check sources this. Its step runs pipelines at full speed, and a kernel checks every byte.

# soak [SECONDS]: runs so long, by default as long as there is time.
soak() {
  local seconds=${1:-$(($(time_left) - 30))}
  if [[ -n $dry_run ]]; then seconds=${1:-3}; fi
  limited $((seconds + 60)) "$build/tests/system/load/penstock_device_soak$suffix" soak "$seconds"
}
