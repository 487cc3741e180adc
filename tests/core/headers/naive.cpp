// SPDX-License-Identifier: Apache-2.0

// What poison.hpp must catch: this file does not compile.

#include "poison.hpp"

template <class N>
struct Naive {};
