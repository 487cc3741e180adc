// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tensor<T, Rank>: a non-owning, row-major view of a batch's field. It is the same type on the
// host, on the device and as a kernel argument; it never owns memory and never copies elements.
//
//   penstock::Tensor<float, 2> scores(pointer, samples, classes);
//   scores(i, j) = 1.0f;                         // also in a kernel, through the same view
//   float* first = scores.data_handle();         // of scores.size() elements

#include <cstddef>
#include <cstdint>
#include <cuda/std/mdspan>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// Row-major view with `Rank` run-time extents of 64 bits. The first extent counts samples.
template <class T, int Rank>
using Tensor =
    cuda::std::mdspan<T, cuda::std::dextents<std::int64_t, static_cast<std::size_t>(Rank)>>;

}  // namespace penstock
