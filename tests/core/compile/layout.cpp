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

struct Other {
  penstock::Tensor<float, 2> field;
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

struct Texts {
  int number;
  penstock::Ragged<float> values;
};

std::size_t bytes() {
#if PENSTOCK_TEST_CASE == 8
  return penstock::Layout<Batch>{8}.field(&Batch::field, {}).bytes();
#elif PENSTOCK_TEST_CASE == 9
  return penstock::Layout<Batch>{8}.field(&Batch::field, {3, 2}).bytes();
#elif PENSTOCK_TEST_CASE == 10
  return penstock::Layout<Batch>{8}.field(&Batch::field, penstock::Capacity{3}).bytes();
#elif PENSTOCK_TEST_CASE == 11
  return penstock::Layout<Texts>{8}.field(&Texts::number, {}).bytes();
#elif PENSTOCK_TEST_CASE == 12
  return penstock::Layout<Batch>{8}.field(&Other::field, {3}).bytes();
#elif PENSTOCK_TEST_CASE == 13
  return penstock::Layout<Texts>{8}.field(&Texts::values, 3).bytes();
#else
  return penstock::Layout<Batch>{8}.field(&Batch::field, {3}).bytes() +
         penstock::Layout<Texts>{8}.field(&Texts::values, penstock::Capacity{3}).bytes();
#endif
}
