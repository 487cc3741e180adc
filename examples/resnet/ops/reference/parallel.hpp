// SPDX-License-Identifier: Apache-2.0
#pragma once

// parallel_for(threads, count, f): f(index, thread) for each index in [0, count), on `threads`
// threads where there is OpenMP, on this one elsewhere.
//
//   parallel_for(threads, images, [&](std::int64_t image, int thread) { ... });
//
// Who computes what is not specified; results that must not depend on it belong to one index each.

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace resnet::reference {

/// What OpenMP would take: OMP_NUM_THREADS, or the cores of this process.
inline int default_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Returns when all is done. `thread` is in [0, threads). `f` must not throw.
template <class F>
void parallel_for([[maybe_unused]] int threads, std::int64_t count, const F& f) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (std::int64_t index = 0; index < count; ++index) f(index, omp_get_thread_num());
#else
  for (std::int64_t index = 0; index < count; ++index) f(index, 0);
#endif
}

}  // namespace resnet::reference
