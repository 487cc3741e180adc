// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes that say where tokens are, and of which type: the index files (.idx) of Megatron, and
// the headers of llm.c's files.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <penstock/detail/storage/document_table.hpp>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/token_values.hpp>
#include <penstock/token_type.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

static_assert(std::endian::native == std::endian::little);  // Numbers are read as they lie there.

/// Reads numbers of a file one by one.
template <class T>
class NumberReader {
 public:
  /// `count` numbers from byte `offset` on, all of which the file has.
  NumberReader(const StoreFile& file, std::uint64_t offset, std::uint64_t count)
      : file_(&file), offset_(offset), left_(count) {}

  /// There is one more. Throws StoreError if it cannot be read.
  T next() {
    if (at_ == some_.size()) fill();
    return some_[at_++];
  }

 private:
  void fill() {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 11;
    some_.resize(static_cast<std::size_t>(std::min(left_, kMost)));
    file_->read_or_fail(offset_, std::as_writable_bytes(std::span(some_)));
    offset_ += some_.size() * sizeof(T);
    left_ -= some_.size();
    at_ = 0;
  }

  const StoreFile* file_;
  std::uint64_t offset_, left_;
  std::size_t at_ = 0;
  std::vector<T> some_;
};

inline constexpr std::string_view kTokenIndexMagic{"MMIDIDX\0\0", 9};

/// An index of Megatron: 9 bytes of magic, a version (u64), the type (u8), the number of sequences
/// and that of entries of documents (u64); for each sequence its tokens (i32); for each its first
/// byte in the .bin (i64); for each document its first sequence, and an entry for the end (i64);
/// perhaps a mode for each sequence (i8).
class TokenIndex {
 public:
  /// Reads what is before the sequences. Throws StoreError.
  explicit TokenIndex(const File& file) : file_("TokenFile", file) {
    constexpr std::size_t kHead = 34;
    std::array<std::byte, kKnownBytes> room;
    const std::span<const std::byte> start = file_.read_start(room);
    const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
    if (!text.starts_with(kTokenIndexMagic))
      file_.fail("this is no index of Megatron: " + what_they_are(start));
    if (start.size() < kHead)
      file_.fail("the file has " + std::to_string(start.size()) + " bytes: the index was cut");
    std::uint64_t version = 0;
    std::memcpy(&version, &start[9], sizeof version);
    std::memcpy(&sequences_, &start[18], sizeof sequences_);
    std::memcpy(&entries_, &start[26], sizeof entries_);
    if (version != 1)
      file_.fail("the index has version " + std::to_string(version) + ", and version 1 is known");
    take_type(std::to_integer<int>(start[17]));
    const std::uint64_t left = file_.bytes - kHead;
    const bool fits = sequences_ <= left / 12 && entries_ <= (left - 12 * sequences_) / 8;
    const std::uint64_t rest = fits ? left - 12 * sequences_ - 8 * entries_ : 1;
    if (!fits || (rest != 0 && rest != sequences_))
      file_.fail("the file has " + std::to_string(file_.bytes) +
                 " bytes, which are not those of an index of " + std::to_string(sequences_) +
                 " sequences and " + std::to_string(entries_) +
                 " entries of documents: it was cut, or is not copied yet");
    lengths_ = kHead;
    pointers_ = lengths_ + 4 * sequences_;
    documents_ = pointers_ + 8 * sequences_;
  }

  TokenType type() const noexcept { return type_; }

  /// Reads the places of all documents. `bin`: the file of the tokens. Throws StoreError if they
  /// are not those of that file.
  DocumentTable read(const StoreFile& bin) const {
    const std::uint64_t bytes = size_of(type_), all = bin.bytes / bytes;
    NumberReader<std::int32_t> lengths(file_, lengths_, sequences_);
    NumberReader<std::int64_t> pointers(file_, pointers_, sequences_);
    Entries entries(*this);
    DocumentTable table;
    table.reserve(entries_);
    std::uint64_t end = 0;  // of the sequences so far, in tokens
    for (std::uint64_t i = 0; i < sequences_; ++i) {
      while (entries.begins(i)) table.add(end);
      const std::int32_t length = lengths.next();
      const std::int64_t pointer = pointers.next();
      if (length < 0)
        file_.fail("sequence " + std::to_string(i) + " has " + std::to_string(length) + " tokens");
      if (pointer < 0 || static_cast<std::uint64_t>(pointer) != end * bytes)
        file_.fail("sequence " + std::to_string(i) + " begins at byte " + std::to_string(pointer) +
                   " of the tokens, and those before end at byte " + std::to_string(end * bytes));
      if (static_cast<std::uint64_t>(length) > all - end) fail_other(bin, i);
      end += static_cast<std::uint64_t>(length);
    }
    while (entries.begins(sequences_)) table.add(end);
    if (end * bytes != bin.bytes) fail_other(bin, sequences_);
    return table;
  }

 private:
  /// The first sequences of the documents, in order.
  class Entries {
   public:
    explicit Entries(const TokenIndex& index)
        : index_(&index), left_(index.entries_), values_(index.file_, index.documents_, left_) {
      take(0);
      if (next_ != 0 || index.entries_ == 0)
        index.file_.fail("the documents do not begin at sequence 0");
    }
    /// Whether one more document begins at this sequence, which is not before the last one. The
    /// last entry is the end of the last document.
    bool begins(std::uint64_t sequence) {
      if (left_ == 0 && next_ != index_->sequences_)
        index_->file_.fail("the last document ends at sequence " + std::to_string(next_) + " of " +
                           std::to_string(index_->sequences_));
      if (left_ == 0 || next_ != sequence) return false;
      take(next_);
      return true;
    }

   private:
    void take(std::uint64_t before) {
      if (left_ == 0) return;
      const std::int64_t value = values_.next();
      const std::uint64_t number = index_->entries_ - left_--;
      if (value < 0 || static_cast<std::uint64_t>(value) < before ||
          static_cast<std::uint64_t>(value) > index_->sequences_)
        index_->file_.fail("document " + std::to_string(number) + " begins at sequence " +
                           std::to_string(value) + ", the one before at " + std::to_string(before) +
                           ", and there are " + std::to_string(index_->sequences_));
      next_ = static_cast<std::uint64_t>(value);
    }

    const TokenIndex* index_;
    std::uint64_t left_, next_ = 0;
    NumberReader<std::int64_t> values_;
  };

  void take_type(int code) {
    constexpr std::array<TokenType, 6> kTypes{TokenType::uint8, TokenType::int8,
                                              TokenType::int16, TokenType::int32,
                                              TokenType::int64, TokenType::uint16};
    const auto* const found = std::ranges::find(kTypes, static_cast<TokenType>(code));
    if (found != kTypes.end()) {
      type_ = *found;
      return;
    }
    file_.fail("the values have type " + std::to_string(code) +
               (code == 6 || code == 7 ? " (floating point), which no tokens have"
                                       : ", which is unknown"));
  }

  [[noreturn]] void fail_other(const StoreFile& bin, std::uint64_t sequence) const {
    const std::string has = bin.file.name() + " has " + std::to_string(bin.bytes) + " bytes: ";
    if (sequence == sequences_)
      file_.fail("the sequences end before the end of their tokens, and " + has +
                 "it is not the one that this index is of");
    file_.fail("sequence " + std::to_string(sequence) + " of " + std::to_string(sequences_) +
               " ends behind the end of its tokens, and " + has +
               "it was cut, or is not the one that this index is of");
  }

  StoreFile file_;
  TokenType type_ = TokenType::uint16;
  std::uint64_t sequences_ = 0, entries_ = 0;
  std::uint64_t lengths_ = 0, pointers_ = 0, documents_ = 0;  // where they begin
};

/// The header of a file of llm.c: 256 numbers of 32 bits, of which the first are a magic number, a
/// version and the number of tokens.
struct LlmcHeader {
  static constexpr std::uint64_t kBytes = 1024;

  struct Kind {
    std::int32_t magic, version;
    TokenType type;
  };
  static constexpr std::array<Kind, 2> kKinds{
      {{20240520, 1, TokenType::uint16}, {20240801, 7, TokenType::uint32}}};

  TokenType type = TokenType::uint16;
  std::uint64_t tokens = 0;

  /// Whether a file begins so.
  static bool is_at(std::span<const std::byte> start) {
    return std::ranges::any_of(kKinds, [&](const Kind& kind) {
      return number(start, 0) == kind.magic && number(start, 1) == kind.version;
    });
  }

  /// Throws StoreError.
  explicit LlmcHeader(const StoreFile& file) {
    std::array<std::byte, kKnownBytes> room;
    const std::span<const std::byte> start = file.read_start(room);
    const std::int32_t magic = number(start, 0), version = number(start, 1);
    if (magic == 20240522)
      file.fail("this is an evaluation file of llm.c, and has questions in place of documents");
    const auto* const kind = std::ranges::find(kKinds, magic, &Kind::magic);
    if (kind == kKinds.end())
      file.fail("this is no file of tokens of llm.c: " + what_they_are(start));
    if (version != kind->version)
      file.fail("the header has version " + std::to_string(version) + ", and version " +
                std::to_string(kind->version) + " is known");
    const std::int32_t count = number(start, 2);
    type = kind->type;
    tokens = count < 0 ? 0 : static_cast<std::uint64_t>(count);
    const std::uint64_t should_have = kBytes + tokens * size_of(type);
    if (tokens == 0 || should_have != file.bytes)
      file.fail("the header says " + std::to_string(count) + " tokens of " +
                std::to_string(size_of(type)) + " bytes, and the file has " +
                std::to_string(file.bytes) + " bytes" +
                (tokens == 0 ? "" : ", not " + std::to_string(should_have)) +
                ": it was cut, or is not copied yet");
  }

 private:
  /// 0 behind the end of the file.
  static std::int32_t number(std::span<const std::byte> start, std::size_t index) {
    std::int32_t value = 0;
    if (start.size() >= (index + 1) * sizeof value)
      std::memcpy(&value, &start[index * sizeof value], sizeof value);
    return value;
  }
};

}  // namespace penstock::detail
