// SPDX-License-Identifier: Apache-2.0

// The same as CUDA C++: crops are resized by a kernel.

#include "image_loader.cpp"
