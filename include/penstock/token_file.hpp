// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenFile: documents of tokens, numbered through one or more files.
//
//   const auto web = penstock::TokenFile::megatron("web_text_document");  // .bin and .idx
//   const auto books = penstock::TokenFile::llm_c({"books_0.bin", "books_1.bin"},
//                                                 {.begin_of_document = 50256});
//   std::vector<std::int32_t> text(web.document(7).length);
//   web.read_into(web.document(7).begin, text);
//
// A Packing makes sequences of one length of them (packing.hpp).

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <penstock/detail/inline.hpp>
#include <penstock/file.hpp>
#include <penstock/store.hpp>
#include <penstock/token_type.hpp>
#include <span>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

class Packing;  // packing.hpp
namespace detail {
struct TokenSet;
}

/// How a TokenFile reads, and where documents are in files that have no index.
struct TokenFileOptions {
  /// The token with which each document begins (as llm.c's scripts write it), or ends (nanoGPT's).
  /// It is a part of the document. At most one of them is set, and none for Megatron's files, whose
  /// index has the documents. A document may go on in the next file. With neither, each file is a
  /// document.
  std::optional<std::int64_t> begin_of_document = {}, end_of_document = {};
  /// If it is not 0: a token below 0, or not below it, is a StoreError when it is read.
  std::int32_t vocabulary = 0;
  /// The files are mapped. That saves a system call and a copy for each part of a document, but a
  /// mapping has no errors: if a file is cut meanwhile, the process ends with SIGBUS (see
  /// mapped_records.hpp). Files that are not of this machine cannot be mapped.
  bool mapped = false;
};

/// Documents of tokens. Tokens are numbered through all files, and so are documents. Any number of
/// threads may use one object. Copies share the files, which stay open, and the places of the
/// documents, which take 4 bytes of memory each.
class TokenFile {
 public:
  /// Opens what Megatron's preprocessing writes: `prefix`.bin with the tokens, `prefix`.idx with
  /// their type and the documents, of which each has any number of sequences. Reads the index once.
  /// Throws StoreError for a file that is missing, unreadable, cut or of another format, for values
  /// that are no integers, and for an index that does not fit the tokens; it names the file, and
  /// the sequence or document.
  static TokenFile megatron(const std::filesystem::path& prefix, TokenFileOptions options = {});
  /// The same for Files, wherever their bytes are.
  static TokenFile megatron(const File& tokens, const File& index, TokenFileOptions options = {});

  /// Opens files of llm.c, one behind the other: a header of 1,024 bytes, and tokens of 16 bits
  /// (GPT-2) or 32 bits (Llama 3). With a token at which documents begin or end, it reads all
  /// tokens once, on several threads. Throws StoreError for a file that is missing, unreadable, cut
  /// or of another format, or has another type of tokens than the first.
  static TokenFile llm_c(const std::vector<std::filesystem::path>& files,
                         TokenFileOptions options = {});
  /// The same for Files. (A list in braces is one of paths.)
  template <std::same_as<File> AnyFile>
  static TokenFile llm_c(const std::vector<AnyFile>& files, TokenFileOptions options = {}) {
    return open_llm_c(files, options);
  }

  /// Opens files that are tokens from the first byte to the last, as nanoGPT has them, one behind
  /// the other. Otherwise like llm_c(). Throws StoreError for a file that is missing, unreadable,
  /// empty, or not a whole number of tokens.
  static TokenFile raw(const std::vector<std::filesystem::path>& files, TokenType type,
                       TokenFileOptions options = {});
  /// The same for Files. (A list in braces is one of paths.)
  template <std::same_as<File> AnyFile>
  static TokenFile raw(const std::vector<AnyFile>& files, TokenType type,
                       TokenFileOptions options = {}) {
    return open_raw(files, type, options);
  }

  TokenFile(const TokenFile&) = default;  // A move copies: a TokenFile always has its files.
  TokenFile& operator=(const TokenFile&) = default;

  /// Number of tokens, at least 1.
  std::uint64_t tokens() const noexcept;
  /// Number of documents, at least 1.
  std::uint64_t documents() const noexcept;
  /// How the files store a token.
  TokenType type() const noexcept;

  /// The tokens of a document. Only Megatron's files may have documents of no tokens. Throws
  /// std::out_of_range.
  TokenRange document(std::uint64_t index) const;
  /// The document that has a token. Takes time proportional to the logarithm of documents(). Throws
  /// std::out_of_range.
  std::uint64_t document_of(std::uint64_t token) const;

  /// Reads the tokens from `begin` on into `target`, through the ends of documents and files. Does
  /// not allocate. Throws std::out_of_range if there are not so many, and StoreError for a token
  /// that does not fit or is outside of the vocabulary, if a file has become too short, and if the
  /// system cannot read it: it names the file, the document and the position, and sample() is the
  /// document. After an exception `target` has any values.
  void read_into(std::uint64_t begin, std::span<std::int32_t> target) const;

  /// For messages, such as "books_1.bin, token 12", where 12 is the number in that file. Throws
  /// std::out_of_range.
  std::string name(std::uint64_t token) const;

  /// Asks for these tokens ahead, without waiting; they will be read at about `due`, or nobody
  /// knows when. Ignores errors, and what is not below tokens().
  void will_need(std::span<const TokenRange> ranges,
                 std::chrono::steady_clock::time_point due = {}) const noexcept;

 private:
  friend Packing;

  static TokenFile open_llm_c(std::span<const File> files, TokenFileOptions options);
  static TokenFile open_raw(std::span<const File> files, TokenType type, TokenFileOptions options);
  explicit TokenFile(std::shared_ptr<const detail::TokenSet> set);

  std::shared_ptr<const detail::TokenSet> set_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/token_file.hpp>
#endif
