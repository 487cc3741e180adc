// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/penstock.hpp>

struct Batch {
  penstock::Tensor<int, 1> numbers;
};

/// Reads a batch of 4 back, and counts on: `arrived` is the first number that is expected.
bool arrive_in_order(const Batch& batch, int& arrived, const penstock::Stream& stream);
