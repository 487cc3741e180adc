// SPDX-License-Identifier: Apache-2.0

// The same as CUDA C++: the kernels are compiled.

#include "clip_input.cpp"
