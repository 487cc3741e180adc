// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scenarios of penstock_load, each in the file of its name.

#include <cstdint>

namespace penstock::test {

void crowd(std::uint64_t batches);
void many_pipelines(std::uint64_t batches);
void four_devices(std::uint64_t batches);
void failing_samples(std::uint64_t samples);
void at_the_cap(std::uint64_t acquisitions);
void stopped(std::uint64_t stops);

}  // namespace penstock::test
