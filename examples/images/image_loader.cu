// SPDX-License-Identifier: Apache-2.0

// The same as CUDA C++: crops are resized by a kernel, and may be fp16.

#include "image_loader.cpp"
