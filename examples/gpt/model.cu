// SPDX-License-Identifier: Apache-2.0

// The same model as CUDA C++: each function object becomes a kernel.

#include "model.cpp"
