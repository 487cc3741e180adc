// SPDX-License-Identifier: Apache-2.0
#include "define_zero_calls.hpp"

const penstock::test::ZeroCalls penstock::test::zero_in_legacy_source = kZeroCalls;
