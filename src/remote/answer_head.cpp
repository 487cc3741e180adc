// SPDX-License-Identifier: Apache-2.0
#include "answer_head.hpp"

#include <algorithm>
#include <charconv>
#include <penstock/detail/words.hpp>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

bool same_word(std::string_view a, std::string_view lower_b) {
  return std::ranges::equal(a, lower_b, {}, &lower);
}

/// All of the text is a number.
std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<AnswerHead::Range> read_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes";
  if (text.size() <= kUnit.size() || !same_word(text.substr(0, kUnit.size()), kUnit)) return {};
  text = detail::trimmed(text.substr(kUnit.size()));
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return {};
  AnswerHead::Range range;
  const std::string_view bytes = text.substr(0, slash), total = text.substr(slash + 1);
  if (total != "*") {
    range.total = number(total);
    if (!range.total) return {};
  }
  if (bytes == "*") return range;
  const std::size_t dash = bytes.find('-');
  if (dash == std::string_view::npos) return {};
  const auto first = number(bytes.substr(0, dash)), last = number(bytes.substr(dash + 1));
  if (!first || !last || *last < *first || (range.total && *last >= *range.total)) return {};
  range.has_bytes = true;
  range.first = *first;
  range.last = *last;
  return range;
}

/// Four bytes in base64, the highest first: six letters, and "==".
std::optional<std::uint32_t> read_checksum(std::string_view text) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kCount = 6;
  if (text.size() != kCount + 2 || !text.ends_with("==")) return std::nullopt;
  std::uint64_t bits = 0;
  for (const char letter : text.substr(0, kCount)) {
    const std::size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | value;
  }
  return static_cast<std::uint32_t>(bits >> 4);  // 36 bits
}

/// "crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ==", in any order.
std::optional<std::uint32_t> read_google_hash(std::string_view text) {
  constexpr std::string_view kName = "crc32c=";
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    if (detail::trimmed(part).starts_with(kName))
      return read_checksum(detail::trimmed(part).substr(kName.size()));
  }
  return std::nullopt;
}

}  // namespace

void AnswerHead::take(std::string_view line) noexcept {
  if (line.starts_with("HTTP/")) {
    complete_ = false;
    status_ = 0;
    etag_bytes_ = 0;
    length_.reset();
    crc32c_.reset();
    range_.reset();
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return;
    if (const auto status = number(line.substr(space + 1, 3))) status_ = static_cast<int>(*status);
    return;
  }
  if (detail::trimmed(line).empty()) complete_ = status_ != 0;
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = line.substr(0, colon),
                         value = detail::trimmed(line.substr(colon + 1));
  if (same_word(name, "content-length")) {
    length_ = number(value);
  } else if (same_word(name, "content-range")) {
    range_ = read_range(value);
  } else if (same_word(name, "x-amz-checksum-crc32c")) {
    crc32c_ = read_checksum(value);
  } else if (same_word(name, "x-goog-hash")) {
    if (const auto checksum = read_google_hash(value)) crc32c_ = checksum;
  } else if (same_word(name, "etag") && value.size() <= etag_.size()) {
    std::ranges::copy(value, etag_.begin());
    etag_bytes_ = value.size();
  }
}

}  // namespace penstock::remote
