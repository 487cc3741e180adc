// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests: which images each request asks for. Sizes come by turns; the images are those of the
// data set, one after the other and again from its start, whatever the sizes: so the answers of two
// runs are the same, image by image.
//
//   const Requests requests{{16, 128}, 60, records.size()};
//   penstock::Prefetcher<Images> prefetcher{layout, requests, source};    // a BatchSampler

#include <cstdint>
#include <vector>

namespace resnet::rungs {

struct Requests {
  std::vector<std::int64_t> sizes;  ///< at least one
  std::uint64_t count = 0;
  std::uint64_t records = 0;  ///< of the data set

  std::int64_t size(std::uint64_t request) const { return sizes[request % sizes.size()]; }
  /// Images of all requests before this one.
  std::uint64_t first_image(std::uint64_t request) const {
    std::uint64_t turn = 0, part = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      turn += static_cast<std::uint64_t>(sizes[i]);
      if (i < request % sizes.size()) part += static_cast<std::uint64_t>(sizes[i]);
    }
    return request / sizes.size() * turn + part;
  }
  std::uint64_t images() const { return first_image(count); }

  std::uint64_t batches() const { return count; }
  void samples(std::uint64_t /*epoch*/, std::uint64_t request,
               std::vector<std::uint64_t>& out) const {
    out.resize(static_cast<std::size_t>(size(request)));
    std::uint64_t image = first_image(request);
    for (std::uint64_t& sample : out) sample = image++ % records;
  }
};

}  // namespace resnet::rungs
