// SPDX-License-Identifier: Apache-2.0

// The same program as CUDA C++: penstock::for_each becomes a kernel.

#include "device_soak.cpp"
