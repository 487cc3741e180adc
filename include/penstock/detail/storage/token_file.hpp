// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/needed_ranges.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/storage/token_index.hpp>
#include <penstock/detail/storage/token_set.hpp>
#include <penstock/detail/sync/in_parts.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/token_file.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// Adds the documents of files that have no index.
class DocumentScan {
 public:
  DocumentScan(TokenSet& set, const TokenFileOptions& options) : set_(set) {
    const auto token =
        options.begin_of_document ? options.begin_of_document : options.end_of_document;
    if (!token) {
      for (const TokenPart& part : set.parts) set.documents.add(part.first);
      return;
    }
    behind_ = options.end_of_document ? 1 : 0;
    with_token_type(set.type, [&](auto any) { scan<decltype(any)>(*token); });
  }

 private:
  static constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;  // tokens

  template <class T>
  void scan(std::int64_t token) {
    if (!std::in_range<T>(token))
      throw std::invalid_argument("TokenFile: the token at which documents begin or end is " +
                                  std::to_string(token) + ", which tokens of " +
                                  std::to_string(sizeof(T)) + " bytes cannot be");
    const std::uint64_t blocks = (set_.tokens() + kBlock - 1) / kBlock;
    const auto threads = static_cast<std::size_t>(
        std::min<std::uint64_t>(blocks, static_cast<std::uint64_t>(usable_cores())));
    std::vector<std::vector<std::uint64_t>> found(threads);
    in_parts(blocks, threads, [&](std::size_t part, std::uint64_t begin, std::uint64_t end) {
      std::vector<std::byte> memory;
      for (std::uint64_t block = begin; block < end; ++block)
        scan_block(block * kBlock, static_cast<T>(token), memory, found[part]);
    });
    set_.documents.add(0);
    for (const std::vector<std::uint64_t>& some : found)
      for (const std::uint64_t place : some) {
        const std::uint64_t begin = place + behind_;
        if (begin != 0 && begin != set_.tokens()) set_.documents.add(begin);
      }
  }

  template <class T>
  void scan_block(std::uint64_t begin, T token, std::vector<std::byte>& memory,
                  std::vector<std::uint64_t>& found) const {
    const std::uint64_t count = std::min(kBlock, set_.tokens() - begin);
    set_.for_each_part({begin, count}, [&](const TokenPart& part, TokenRange range) {
      const auto [offset, bytes] = set_.bytes_of(part, range);
      const std::byte* from = nullptr;
      if (part.mapping) {
        from = part.mapping.get() + offset;
      } else {
        memory.resize(static_cast<std::size_t>(bytes));
        part.read_or_fail(offset, memory);
        from = memory.data();
      }
      find_token<T>(from, static_cast<std::size_t>(range.length), token,
                    [&](std::size_t i) { found.push_back(range.begin + i); });
    });
  }

  TokenSet& set_;
  std::uint64_t behind_ = 0;  // where a document begins, from the token that was found
};

inline void check_options(const TokenFileOptions& options, bool has_index) {
  if (options.begin_of_document && options.end_of_document)
    throw std::invalid_argument(
        "TokenFile: either begin_of_document is set, or end_of_document, not both");
  if (has_index && (options.begin_of_document || options.end_of_document))
    throw std::invalid_argument(
        "TokenFile: begin_of_document and end_of_document are for files without an index");
  if (options.vocabulary < 0)
    throw std::invalid_argument("TokenFile: vocabulary is " + std::to_string(options.vocabulary) +
                                ", must be at least 0");
}

inline std::vector<File> opened_all(const std::vector<std::filesystem::path>& paths) {
  std::vector<File> files;
  files.reserve(paths.size());
  for (const auto& path : paths) files.push_back(opened("TokenFile", path));
  return files;
}

/// Throws StoreError for a file that cannot be tokens from its first byte on.
inline void check_raw(const StoreFile& file, TokenType type) {
  std::array<std::byte, kKnownBytes> room;
  const std::span<const std::byte> start = file.read_start(room);
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (file.bytes == 0) file.fail("the file is empty");
  if (LlmcHeader::is_at(start))
    file.fail("the file has a header of llm.c: open it by TokenFile::llm_c");
  if (text.starts_with(kTokenIndexMagic))
    file.fail("this is an index of Megatron: open it and its .bin by TokenFile::megatron");
  const std::uint64_t rest = file.bytes % size_of(type);
  if (rest != 0 || is_lfs_pointer(text)) {
    const auto known = known_bytes(start);
    file.fail(std::to_string(file.bytes) + " bytes, in tokens of " + std::to_string(size_of(type)) +
              " bytes: " + std::to_string(rest) + " bytes are left over" +
              (known ? ". It is " + known->text() : ""));
  }
}

}  // namespace detail

PENSTOCK_INLINE TokenFile::TokenFile(std::shared_ptr<const detail::TokenSet> set)
    : set_(std::move(set)) {}

PENSTOCK_INLINE TokenFile TokenFile::megatron(const std::filesystem::path& prefix,
                                              TokenFileOptions options) {
  std::filesystem::path tokens = prefix, index = prefix;
  tokens += ".bin";
  index += ".idx";
  const File open_tokens = detail::opened("TokenFile", tokens);
  return megatron(open_tokens, detail::opened("TokenFile", index), options);
}

PENSTOCK_INLINE TokenFile TokenFile::megatron(const File& tokens, const File& index,
                                              TokenFileOptions options) {
  detail::check_options(options, true);
  const detail::TokenIndex read(index);
  auto set = std::make_shared<detail::TokenSet>();
  set->type = read.type();
  set->token_bytes = detail::size_of(read.type());
  set->vocabulary = options.vocabulary;
  set->parts.emplace_back(tokens, 0, 0, tokens.size() / set->token_bytes);
  if (tokens.size() == 0) set->parts.front().fail("the file is empty");
  set->documents = read.read(set->parts.front());
  if (options.mapped) set->map();
  return TokenFile(std::move(set));
}

PENSTOCK_INLINE TokenFile TokenFile::llm_c(const std::vector<std::filesystem::path>& files,
                                           TokenFileOptions options) {
  return open_llm_c(detail::opened_all(files), options);
}

PENSTOCK_INLINE TokenFile TokenFile::raw(const std::vector<std::filesystem::path>& files,
                                         TokenType type, TokenFileOptions options) {
  return open_raw(detail::opened_all(files), type, options);
}

PENSTOCK_INLINE TokenFile TokenFile::open_llm_c(std::span<const File> files,
                                                TokenFileOptions options) {
  detail::check_options(options, false);
  if (files.empty()) throw std::invalid_argument("TokenFile: the list of files is empty");
  auto set = std::make_shared<detail::TokenSet>();
  set->vocabulary = options.vocabulary;
  for (const File& file : files) {
    const detail::StoreFile open_file("TokenFile", file);
    const detail::LlmcHeader header(open_file);
    if (set->parts.empty()) set->type = header.type;
    if (header.type != set->type)
      open_file.fail("its tokens have " + std::to_string(detail::size_of(header.type)) +
                     " bytes, and those of the first file " +
                     std::to_string(detail::size_of(set->type)));
    set->parts.emplace_back(file, detail::LlmcHeader::kBytes,
                            set->parts.empty() ? 0 : set->tokens(), header.tokens);
  }
  set->token_bytes = detail::size_of(set->type);
  if (options.mapped) set->map();
  detail::DocumentScan(*set, options);
  return TokenFile(std::move(set));
}

PENSTOCK_INLINE TokenFile TokenFile::open_raw(std::span<const File> files, TokenType type,
                                              TokenFileOptions options) {
  detail::check_options(options, false);
  if (files.empty()) throw std::invalid_argument("TokenFile: the list of files is empty");
  auto set = std::make_shared<detail::TokenSet>();
  set->type = type;
  set->token_bytes = detail::size_of(type);
  set->vocabulary = options.vocabulary;
  for (const File& file : files) {
    detail::check_raw(detail::StoreFile("TokenFile", file), type);
    set->parts.emplace_back(file, 0, set->parts.empty() ? 0 : set->tokens(),
                            file.size() / set->token_bytes);
  }
  if (options.mapped) set->map();
  detail::DocumentScan(*set, options);
  return TokenFile(std::move(set));
}

PENSTOCK_INLINE std::uint64_t TokenFile::tokens() const noexcept {
  return set_->tokens();
}
PENSTOCK_INLINE std::uint64_t TokenFile::documents() const noexcept {
  return set_->documents.size();
}
PENSTOCK_INLINE TokenType TokenFile::type() const noexcept {
  return set_->type;
}

PENSTOCK_INLINE TokenRange TokenFile::document(std::uint64_t index) const {
  detail::require_index(index, documents(), "TokenFile: there is no document ");
  return set_->document(index);
}

PENSTOCK_INLINE std::uint64_t TokenFile::document_of(std::uint64_t token) const {
  detail::require_index(token, tokens(), "TokenFile: there is no token ");
  return set_->documents.of(token);
}

PENSTOCK_INLINE void TokenFile::read_into(std::uint64_t begin,
                                          std::span<std::int32_t> target) const {
  if (target.size() > tokens() || begin > tokens() - target.size())
    throw std::out_of_range("TokenFile::read_into: " + std::to_string(target.size()) +
                            " tokens from token " + std::to_string(begin) + " on, but there are " +
                            std::to_string(tokens()));
  set_->read(begin, target, nullptr);
}

PENSTOCK_INLINE std::string TokenFile::name(std::uint64_t token) const {
  detail::require_index(token, tokens(), "TokenFile: there is no token ");
  const detail::TokenPart& part = set_->part_of(token);
  return part.file.name() + ", token " + std::to_string(token - part.first);
}

PENSTOCK_INLINE void TokenFile::will_need(
    std::span<const TokenRange> ranges, std::chrono::steady_clock::time_point due) const noexcept {
  const std::uint64_t all = tokens();
  const auto add = [&](std::uint64_t index, detail::NeededRanges& needed) {
    const auto [begin, length] = ranges[static_cast<std::size_t>(index)];
    if (begin < all) set_->add_ranges({begin, std::min(length, all - begin)}, needed);
  };
  std::array<std::uint64_t, 256> numbers;
  for (std::size_t done = 0; done < ranges.size();) {
    const auto some = std::span(numbers).first(std::min(numbers.size(), ranges.size() - done));
    for (std::uint64_t& number : some) number = done++;
    detail::NeededRanges::ask(some, ranges.size(), due, add);
  }
}

}  // namespace penstock
