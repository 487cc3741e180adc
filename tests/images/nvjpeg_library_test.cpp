// SPDX-License-Identifier: Apache-2.0

#include "nvjpeg_library.hpp"

#include <string>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

TEST_CASE("nvJPEG has every function that is called", "[images][nvjpeg]") {
  NvjpegLibrary library;
  std::string why_not;
  CHECK(library.load_from(PENSTOCK_NVJPEG_LIBRARY, why_not));
  CHECK(why_not.empty());
#define PENSTOCK_CHECK_FUNCTION(name) CHECK(library.name != nullptr);
  PENSTOCK_NVJPEG_FUNCTIONS(PENSTOCK_CHECK_FUNCTION)
#undef PENSTOCK_CHECK_FUNCTION
}

TEST_CASE("nvJPEG that is not there, and another library", "[images][nvjpeg]") {
  NvjpegLibrary library;
  std::string why_not;
  CHECK_FALSE(library.load_from("libno_such_library.so.13", why_not));
  CHECK_THAT(why_not, penstock::test::Mentions("libno_such_library.so.13"));
  CHECK_FALSE(library.load_from("libm.so.6", why_not));
  CHECK_THAT(why_not, penstock::test::Mentions("libm.so.6 has no nvjpegGetProperty"));
}

}  // namespace
}  // namespace penstock::images
