// SPDX-License-Identifier: Apache-2.0
#pragma once

// The samples that a sampler gives: those of a batch, and those of an epoch.

#include <cstdint>
#include <numeric>
#include <vector>

namespace penstock::test {

using Samples = std::vector<std::uint64_t>;

template <class S>
Samples batch_of(const S& sampler, std::uint64_t epoch, std::uint64_t batch) {
  Samples out;
  sampler.samples(epoch, batch, out);
  return out;
}

/// All batches of an epoch, end to end.
template <class S>
Samples epoch_of(const S& sampler, std::uint64_t epoch) {
  Samples all;
  for (std::uint64_t batch = 0; batch < sampler.batches(); ++batch) {
    const Samples samples = batch_of(sampler, epoch, batch);
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

/// 0, 1, 2, ..., n - 1.
inline Samples counting(std::uint64_t n) {
  Samples all(n);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  return all;
}

}  // namespace penstock::test
