// SPDX-License-Identifier: Apache-2.0

// Names of a recording as people read them: in proportion to the name, and on one line.

#include <algorithm>
#include <string>
#include <string_view>

#include "demangling.hpp"
#include "fuzz.hpp"
#include "kernel_names.hpp"

using namespace penstock::trace::detail;
using penstock::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string name(reinterpret_cast<const char*>(data), size);
  for (const std::string& one : {name, "_Z" + name}) {
    require(readable_within_bounds(one).size() <= std::max(one.size(), most_text(one.size())),
            "a name is in proportion");
    for (const std::size_t width : {std::size_t{2}, std::size_t{20}, std::size_t{60}}) {
      const std::string text = shortened(one, width);
      require(width_of(text) <= width && text.size() <= 4 * width, "a name is shortened");
      require(std::none_of(text.begin(), text.end(),
                           [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; }),
              "a name is on one line");
    }
    require(width_of(limited(one, 20)) <= 20, "a name is cut");
  }
  return 0;
}
