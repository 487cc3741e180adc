// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/emulation.hpp>

namespace penstock::test {

/// A fresh emulated machine of so many devices, under the schedule that PENSTOCK_EMULATION names.
inline void fresh_machine(int devices = 1) {
  emulation::Options options = emulation::options();
  options.machine.devices = devices;
  emulation::reset(options);
}

}  // namespace penstock::test
