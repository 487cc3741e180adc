// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests tell instant_cuda.cpp.

#include <string>

#include "execution.hpp"

namespace penstock::test::weak {

/// The nth call of `function` from now on fails; 0: every call.
void fail_call(const std::string& function, int nth);
void fail_no_calls();

/// Memory that the runtime handed out is read or written here.
void note_access(const void* memory, Access access);

}  // namespace penstock::test::weak
