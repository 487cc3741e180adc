// SPDX-License-Identifier: Apache-2.0

// The same as CUDA C++: frames are converted by a kernel.

#include "clips.cpp"
