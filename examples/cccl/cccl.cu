// SPDX-License-Identifier: Apache-2.0

// The same program as CUDA C++: Thrust's algorithms become kernels.

#include "cccl.cpp"
