// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numeric>
#include <penstock/any_sampler.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI {

PENSTOCK_INLINE Unbounded::Unbounded(std::int64_t batch_size, std::uint64_t seed)
    : batch_size_(batch_size), seed_(seed) {
  if (batch_size < 1)
    throw std::invalid_argument("Unbounded: batch_size is " + std::to_string(batch_size) +
                                ", must be at least 1");
}

PENSTOCK_INLINE Unbounded Unbounded::indexed(std::int64_t batch_size, std::uint64_t seed) {
  Unbounded sampler(batch_size, seed);
  sampler.is_stream_ = false;
  return sampler;
}

PENSTOCK_INLINE void Unbounded::samples(std::uint64_t, std::uint64_t batch,
                                        std::vector<std::uint64_t>& out) const {
  out.resize(static_cast<std::size_t>(batch_size_));
  std::iota(out.begin(), out.end(), batch * static_cast<std::uint64_t>(batch_size_));
}

namespace detail {

PENSTOCK_INLINE AnySampler make_sampler(SamplerOptions options, std::int64_t batch_size) {
  if (options.batch_size == 0) options.batch_size = batch_size;
  return Sampler(options);
}

}  // namespace detail
}  // namespace penstock
