// SPDX-License-Identifier: Apache-2.0
#pragma once

// read_queued(): how the stores read many samples through a ReadQueue. A store says where a sample
// is, and the queue does the rest.

#include <cstddef>
#include <cstdint>
#include <penstock/detail/storage/read_engine.hpp>
#include <penstock/file.hpp>
#include <penstock/read_queue.hpp>
#include <span>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Where the bytes of a sample are, and where they go.
struct SamplePlace {
  const File& file;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::byte* target = nullptr;  // nullptr: to memory of the queue
};

/// `data_bytes`: of the whole store. `place_of(k)` returns the SamplePlace of sample k of `count`;
/// what it throws comes before anything is read. Then `arrived(k, bytes)` is called for each whose
/// bytes came, in any order, and `alone(k)` for the others: the store reads them as without a
/// queue, and throws what it throws then.
template <class PlaceOf, class Arrived, class Alone>
void read_queued(ReadQueue& queue, std::uint64_t data_bytes, std::size_t count,
                 const PlaceOf& place_of, const Arrived& arrived, const Alone& alone) {
  ReadEngine& engine = queue.engine();
  std::vector<WantedBytes>& wanted = engine.wanted();
  for (std::size_t k = 0; k < count; ++k) {
    const SamplePlace place = place_of(k);
    wanted.push_back(
        {&place.file, place.offset, static_cast<std::size_t>(place.bytes), place.target, k});
  }
  engine.read(
      data_bytes,
      [&](const WantedBytes& one, std::span<const std::byte> bytes) { arrived(one.key, bytes); },
      [&](const WantedBytes& one) { alone(one.key); });
}

}  // namespace penstock::detail
