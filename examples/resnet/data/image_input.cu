// SPDX-License-Identifier: Apache-2.0

// The same as CUDA C++: the kernel is compiled, and 16-bit numbers are at hand.

#include "image_input.cpp"
