// SPDX-License-Identifier: Apache-2.0
#pragma once

// This header says what a compiler and its library must have.

#if __cplusplus < 202002L
#error "penstock needs C++20: compile with -std=c++20"
#endif

#include <version>

#ifndef __cpp_lib_jthread
#error "penstock needs std::jthread: libc++ before LLVM 20 has none without -fexperimental-library"
#endif
