// SPDX-License-Identifier: Apache-2.0

// With PENSTOCK_DISABLE_NVTX the same program compiles, markers are nothing, and no header of NVTX
// is included.

#define PENSTOCK_DISABLE_NVTX
#include <penstock/markers.hpp>
#include <type_traits>

#if defined(NVTX_VERSION) || defined(NVTX3_CPP_DEFINITIONS_V1_0)
#error "NVTX was included"
#endif

static_assert(std::is_empty_v<penstock::ScopedRange>);
static_assert(!std::is_copy_constructible_v<penstock::ScopedRange>);
static_assert(!std::is_constructible_v<penstock::ScopedRange, const char*, int>);

struct Augment {
  static constexpr const char* message = "augment";
  static constexpr penstock::MarkerCategory category = penstock::markers::category::fill;
  static constexpr const char* domain = "my trainer";
};

void worker(cudaStream_t stream) {
  const penstock::ScopedRange own(Augment{}, 2);
  const penstock::RangeName epoch("epoch 3", penstock::markers::category::loop, "my trainer");
  const penstock::ScopedRange around(epoch, 3);
  const penstock::ScopedRange range(penstock::markers::fill, 1);
  penstock::markers::name_this_thread("worker");
  penstock::markers::name_stream(stream, "copies");
  const penstock::markers::StreamName named(stream, "copies");
}
