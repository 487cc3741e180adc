// SPDX-License-Identifier: Apache-2.0

// The same as CUDA C++: penstock::for_each becomes a kernel, and 16-bit numbers are at hand.

#include "input.cpp"
