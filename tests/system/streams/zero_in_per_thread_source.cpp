// SPDX-License-Identifier: Apache-2.0

// Compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM.

#include "define_zero_calls.hpp"

const penstock::test::ZeroCalls penstock::test::zero_in_per_thread_source = kZeroCalls;
