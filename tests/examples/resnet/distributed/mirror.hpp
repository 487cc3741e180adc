// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mirror: a communicator of one process whose other ranks all have what this one has. A sum over
// two or four ranks is exact then. What it is asked for is kept.

#include <cstdint>
#include <limits>
#include <penstock/launch.hpp>
#include <string>
#include <vector>

#include "../../../../examples/common/check.hpp"
#include "../../../../examples/resnet/distributed/communicator.hpp"

namespace resnet::test {

class Mirror : public Communicator {
 public:
  struct Sum {
    const void* values;
    std::int64_t count;
  };

  explicit Mirror(int world_size) : world_size_(world_size) {}

  int rank() const override { return 0; }
  int world_size() const override { return world_size_; }

  void all_reduce(void* values, std::int64_t count, Precision, cudaStream_t stream) override {
    sums.push_back({values, count});
    const float more = values == overflowing ? std::numeric_limits<float>::infinity() : 0;
    penstock::for_each(
        stream, count,
        [floats = static_cast<float*>(values), more, times = static_cast<float>(world_size_)](
            std::int64_t i) { floats[i] = floats[i] * times + more; });
  }
  void broadcast(void* memory, std::int64_t bytes, int, cudaStream_t) override {
    broadcasts.push_back({memory, bytes});
  }
  /// The others say the same, but `said` for `instead_of`.
  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> all(static_cast<std::size_t>(world_size_), text);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (const auto at = text.find(instead_of); !instead_of.empty() && at != std::string::npos)
        all[rank].replace(at, instead_of.size(), said);
    return all;
  }
  void check() override { ++checks; }
  void synchronize(cudaStream_t stream) override {
    examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  void fail(const std::string&) noexcept override {}

  std::vector<Sum> sums, broadcasts;
  std::string instead_of, said;
  const void* overflowing = nullptr;  // Where a sum begins to which another rank adds infinity.
  int checks = 0;

 private:
  int world_size_;
};

}  // namespace resnet::test
