# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# A step of scripts/gpu-check, which sources this: pipelines at full speed, every byte checked by a kernel.

# soak [SECONDS]: as long as there is time, unless it says for how long.
soak() {
  local seconds=${1:-$(($(time_left) - 30))}
  if [[ -n $dry_run ]]; then seconds=${1:-3}; fi
  limited $((seconds + 60)) "$build/tests/system/load/penstock_device_soak$suffix" soak "$seconds"
}
