// SPDX-License-Identifier: Apache-2.0

// State::parse: any text is refused, with a message that is fit to print, or is exactly the text
// that its state is written as. And any ten numbers are a state that comes back from its text.

#include <algorithm>
#include <cstring>
#include <penstock/state.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fuzz.hpp"

namespace {

using penstock::State;
using penstock::test::require;

void check_message(std::string_view message) {
  require(message.size() < 1000, "a message is short");
  require(std::all_of(message.begin(), message.end(), [](char c) { return c >= ' ' && c <= '~'; }),
          "a message is fit to print");
}

void check_text(std::string_view text) {
  try {
    require(to_string(State::parse(text)) == text, "what is read is what would be written");
  } catch (const std::invalid_argument& error) {
    check_message(error.what());
  }
}

void check_numbers(const std::uint8_t* data, std::size_t size) {
  State states[2];
  std::memcpy(static_cast<void*>(states), data, std::min(size, sizeof states));
  for (const State& state : states)
    require(State::parse(to_string(state)) == state, "a state comes back from its text");
  const std::string why = why_incompatible(states[0], states[1]);
  check_message(why);
  if (why.empty())
    require(states[0].seed == states[1].seed && states[0].samples == states[1].samples &&
                (states[0].batch == 0 || states[0].batch < states[1].batches),
            "a state that fits is of the same run, at a batch that is there");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_text({reinterpret_cast<const char*>(data), size});
  check_numbers(data, size);
  return 0;
}
