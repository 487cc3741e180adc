// SPDX-License-Identifier: Apache-2.0

#include <penstock/layout.hpp>
#include <string>
#include <vector>

#ifndef PENSTOCK_TEST_CASE
#define PENSTOCK_TEST_CASE 0
#endif

struct Element {
#if PENSTOCK_TEST_CASE == 5
  std::string value;
#else
  float value;
#endif
};

struct Batch {
#if PENSTOCK_TEST_CASE == 1
  Batch() {}
#elif PENSTOCK_TEST_CASE == 2
  std::vector<int> values;
#elif PENSTOCK_TEST_CASE == 3
  int& value;
#else
  int value;
#endif

#if PENSTOCK_TEST_CASE == 4
  cuda::std::mdspan<Element, cuda::std::extents<std::int64_t, cuda::std::dynamic_extent, 3>> field;
#elif PENSTOCK_TEST_CASE == 6
  penstock::Tensor<const Element, 2> field;
#elif PENSTOCK_TEST_CASE == 7
  struct alignas(512) Wide {
    float value;
  };
  penstock::Tensor<Wide, 2> field;
#else
  penstock::Tensor<Element, 2> field;
#endif
};

std::size_t bytes() {
  return penstock::Layout<Batch>{8}.field(&Batch::field, {3}).bytes();
}
