// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenSet: the files of a TokenFile, which are open, and the places of its documents.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/detail/storage/document_table.hpp>
#include <penstock/detail/storage/mapped_file.hpp>
#include <penstock/detail/storage/needed_ranges.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/token_values.hpp>
#include <penstock/token_type.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// One of the files, and which tokens it has.
struct TokenPart : StoreFile {
  TokenPart(const File& open_file, std::uint64_t first_byte, std::uint64_t first_token,
            std::uint64_t tokens)
      : StoreFile("TokenFile", open_file),
        offset(first_byte),
        first(first_token),
        end(first_token + tokens) {}

  std::uint64_t offset;                        // of its first token, in bytes
  std::uint64_t first, end;                    // numbers of its tokens, through all files
  std::shared_ptr<const std::byte> mapping{};  // none: the file is read
};

struct TokenSet {
  /// Bytes that are read at a time; they stay in the first cache.
  static constexpr std::size_t kChunk = std::size_t{16} << 10;

  std::uint64_t tokens() const noexcept { return parts.back().end; }

  bool is_local() const { return std::ranges::all_of(parts, &TokenPart::is_local); }

  void map() {
    for (TokenPart& part : parts) {
      try {
        part.mapping = mapped(part, "read its tokens without the option mapped");
      } catch (const std::runtime_error& error) {
        part.fail(error.what());
      }
    }
  }

  TokenRange document(std::uint64_t index) const {
    const std::uint64_t begin = documents.begin(index);
    const std::uint64_t end = index + 1 < documents.size() ? documents.begin(index + 1) : tokens();
    return {begin, end - begin};
  }

  const TokenPart& part_of(std::uint64_t token) const {
    if (parts.size() == 1) return parts.front();
    return *(std::ranges::upper_bound(parts, token, {}, &TokenPart::first) - 1);
  }

  FileRange bytes_of(const TokenPart& part, TokenRange range) const {
    return {part.offset + (range.begin - part.first) * token_bytes, range.length * token_bytes};
  }

  /// Reads tokens, all of which are there, and the one behind them into `next` if that is no
  /// nullptr. Throws StoreError.
  void read(std::uint64_t begin, std::span<std::int32_t> target, std::int32_t* next) const {
    while (!target.empty()) {
      const TokenPart& part = part_of(begin);
      const std::uint64_t left = part.end - begin;
      const auto some =
          target.first(static_cast<std::size_t>(std::min<std::uint64_t>(target.size(), left)));
      const bool with_next = next != nullptr && some.size() == target.size() && left > some.size();
      if (part.mapping)
        read_mapped(part, begin, some, with_next ? next : nullptr);
      else
        read_chunks(part, begin, some, with_next ? next : nullptr);
      if (with_next) next = nullptr;
      begin += some.size();
      target = target.subspan(some.size());
    }
    if (next != nullptr) read(begin, std::span(next, 1), nullptr);
  }

  /// Calls `visit(part, range)` for the parts of files that have these tokens.
  template <class Visit>
  void for_each_part(TokenRange range, const Visit& visit) const {
    while (range.length > 0) {
      const TokenPart& part = part_of(range.begin);
      const std::uint64_t count = std::min(range.length, part.end - range.begin);
      visit(part, TokenRange{range.begin, count});
      range = {range.begin + count, range.length - count};
    }
  }

  void add_ranges(TokenRange range, NeededRanges& ranges) const noexcept {
    for_each_part(range, [&](const TokenPart& part, TokenRange some) {
      ranges.add(part.file, bytes_of(part, some));
    });
  }

  /// Widens tokens from `begin` on. Throws StoreError, which names the first that cannot be
  /// delivered.
  void put(const TokenPart& part, std::uint64_t begin, const std::byte* from, std::int32_t* to,
           std::size_t count) const {
    if (!widen(type, from, to, count, vocabulary)) fail_value(part, begin, from, count);
  }

  std::vector<TokenPart> parts;
  DocumentTable documents;
  TokenType type = TokenType::uint16;
  std::size_t token_bytes = 2;
  std::int32_t vocabulary = 0;

 private:
  void read_mapped(const TokenPart& part, std::uint64_t begin, std::span<std::int32_t> target,
                   std::int32_t* next) const {
    const std::byte* const from = part.mapping.get() + bytes_of(part, {begin, 0}).offset;
    put(part, begin, from, target.data(), target.size());
    if (next != nullptr)
      put(part, begin + target.size(), from + target.size() * token_bytes, next, 1);
  }

  void read_chunks(const TokenPart& part, std::uint64_t begin, std::span<std::int32_t> target,
                   std::int32_t* next) const {
    const std::size_t most = kChunk / token_bytes;
    if (!part.is_local() && target.size() > most) {
      const FileRange whole = bytes_of(part, {begin, target.size()});
      part.file.will_need(std::span(&whole, 1), std::chrono::steady_clock::now());
    }
    std::array<std::byte, kChunk + sizeof(std::int64_t)> memory;  // There is room for `next`.
    while (!target.empty()) {
      const std::size_t count = std::min(target.size(), most);
      const bool with_next = next != nullptr && count == target.size();
      const auto [offset, bytes] = bytes_of(part, {begin, count + (with_next ? 1 : 0)});
      try {
        part.read(offset, std::span(memory).first(static_cast<std::size_t>(bytes)));
      } catch (const std::runtime_error& error) {
        fail_token(part, begin, std::string("is lost: ") + error.what());
      }
      put(part, begin, memory.data(), target.data(), count);
      if (with_next) put(part, begin + count, memory.data() + count * token_bytes, next, 1);
      begin += count;
      target = target.subspan(count);
    }
  }

  [[noreturn]] void fail_token(const TokenPart& part, std::uint64_t token,
                               const std::string& what) const {
    const std::uint64_t document = documents.of(token);
    part.fail("token " + std::to_string(token - part.first) + " (of document " +
                  std::to_string(document) + ", position " +
                  std::to_string(token - documents.begin(document)) + ") " + what,
              document);
  }

  [[noreturn]] void fail_value(const TokenPart& part, std::uint64_t begin, const std::byte* from,
                               std::size_t count) const {
    with_token_type(type, [&](auto any) {
      using T = decltype(any);
      std::size_t i = 0;
      while (i + 1 < count && is_token(token_at<T>(from, i), vocabulary)) ++i;
      const std::string what = vocabulary == 0
                                   ? "no number of 32 bits"
                                   : "outside of the vocabulary of " + std::to_string(vocabulary);
      fail_token(part, begin + i, "is " + std::to_string(token_at<T>(from, i)) + ", " + what);
    });
    throw std::logic_error("TokenFile: no token is wrong");
  }
};

}  // namespace penstock::detail
