// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes of files of tokens, as they are described, apart from the code that reads them.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "files.hpp"

namespace penstock::test {

/// The bytes of numbers, one behind the other.
template <class T>
std::string packed(const std::vector<T>& numbers) {
  std::string bytes(numbers.size() * sizeof(T), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// An index of Megatron. `entries`: the first sequence of each document, and the end.
inline std::string megatron_index(int type, std::size_t token_bytes,
                                  const std::vector<std::int32_t>& lengths,
                                  const std::vector<std::int64_t>& entries) {
  std::vector<std::int64_t> pointers;
  std::int64_t at = 0;
  for (const std::int32_t length : lengths) {
    pointers.push_back(at);
    at += length * static_cast<std::int64_t>(token_bytes);
  }
  return std::string("MMIDIDX\0\0", 9) + packed<std::uint64_t>({1}) + static_cast<char>(type) +
         packed<std::uint64_t>({lengths.size(), entries.size()}) + packed(lengths) +
         packed(pointers) + packed(entries);
}

/// A file of llm.c.
template <class T>
std::string llmc_file(std::int32_t magic, std::int32_t version, const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return packed(header) + packed(tokens);
}

/// Documents of random tokens below 50,256, in files of nanoGPT's kind: each ends with 50256, and
/// that is its length. The lengths are lognormal.
class MadeTexts {
 public:
  static constexpr std::int64_t kEnd = 50256;

  MadeTexts(unsigned seed, std::size_t documents, double median, double sigma) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> length(std::log(median), sigma);
    for (std::size_t d = 0; d < documents; ++d) {
      const auto count = 1 + static_cast<std::size_t>(length(random));
      begins.push_back(tokens.size());
      for (std::size_t i = 1; i < count; ++i)
        tokens.push_back(static_cast<std::uint16_t>(random() % 50256));
      tokens.push_back(kEnd);
    }
    begins.push_back(tokens.size());
  }

  std::filesystem::path write(const std::filesystem::path& path) const {
    write_file(path, packed(tokens));
    return path;
  }

  /// The document that has a token.
  std::size_t document_of(std::uint64_t token) const {
    std::size_t document = 0;
    while (begins[document + 1] <= token) ++document;
    return document;
  }

  std::vector<std::uint16_t> tokens;
  std::vector<std::uint64_t> begins;  // of the documents, and the end
};

}  // namespace penstock::test
