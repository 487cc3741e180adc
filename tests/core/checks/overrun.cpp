// SPDX-License-Identifier: Apache-2.0

// A source that writes behind its field, compiled without PENSTOCK_CHECKS: CTest runs it with the
// environment variable of that name, and without. It writes into the gap before the next field,
// which AddressSanitizer allows; behind the last one it does not.

#include <algorithm>
#include <cstdio>
#include <penstock/error.hpp>
#include <penstock/prefetcher.hpp>

struct Bytes {
  penstock::Tensor<char, 1> values, others;
};

int main() {
  const auto layout =
      penstock::Layout<Bytes>{8}.field(&Bytes::values, {}).field(&Bytes::others, {});
  penstock::Prefetcher<Bytes> prefetcher{layout, penstock::Sampler({.samples = 8, .batch_size = 8}),
                                         [](const penstock::Ticket&, Bytes& batch) {
                                           for (int i = 0; i < 9; ++i)
                                             batch.values.data_handle()[i] = 1;
                                           std::fill_n(batch.others.data_handle(), 8, '1');
                                         }};
  try {
    while (prefetcher.next(nullptr)) {
    }
    std::puts("nothing was found");
  } catch (const penstock::SourceError& error) {
    std::puts(error.what());
  }
}
