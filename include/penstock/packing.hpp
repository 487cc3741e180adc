// SPDX-License-Identifier: Apache-2.0
#pragma once

// Packing: sequences of one length that are made of documents, and what attention has to know of
// them.
//
//   struct Texts {
//     penstock::Tensor<std::int32_t, 2> tokens, cu_seqlens;  // sequence x token, segment
//     penstock::PackedBatch packed;
//   };
//   const penstock::Packing packing(penstock::TokenFile::megatron("web_text_document"),
//                                   {.length = 32, .method = penstock::PackingMethod::best_fit});
//   const auto source = [&packing](const penstock::Ticket& ticket, Texts& batch) {
//     const auto all = [](auto field) { return std::span(field.data_handle(), field.size()); };
//     batch.packed = packing.fill(
//         ticket.samples, {.tokens = all(batch.tokens), .cu_seqlens = all(batch.cu_seqlens)});
//   };
//   const auto layout = penstock::Layout<Texts>{8}
//                           .field(&Texts::tokens, {packing.length()})
//                           .field(&Texts::cu_seqlens, {packing.most_segments() + 1});
//   penstock::Prefetcher<Texts> prefetcher{
//       layout, {.samples = packing.size(), .shuffle = true}, source};
//
// Sequences have numbers, so a Sampler or a Mixture says which ones make up a batch, and a run is
// resumed on any number of ranks as with any other data. docs/recipes/tokens.md has a pipeline.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/detail/inline.hpp>
#include <penstock/token_file.hpp>
#include <span>
#include <string>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
struct DocumentBins;
}

/// How documents become sequences of one length.
enum class PackingMethod {
  /// All tokens one behind the other, cut after each `length`. No padding; documents are cut
  /// anywhere. Tokens at the end that do not fill a sequence are left out.
  concatenate,
  /// Documents are whole. Those of a window, the longest first, are put where the least room is
  /// left, and the rest of a sequence is padding. Of a document that is longer than a sequence, as
  /// many pieces of that length as it has are sequences of their own, and its end is like a
  /// document.
  best_fit,
  /// The same, but documents come in the order of the files, each into the first sequence that has
  /// room. Neighbours stay closer together; there is more padding.
  first_fit,
};

/// How a Packing makes sequences.
struct PackingOptions {
  std::int64_t length = 0;                            ///< tokens in a sequence, 1 to 2^30
  PackingMethod method = PackingMethod::concatenate;  ///< how documents become sequences
  std::uint32_t window = 1000;       ///< documents that are packed together, 1 to 65,536
  std::int32_t pad_token = 0;        ///< fills what no document does
  std::int32_t ignore_index = -100;  ///< the target where there is none; PyTorch's default
  /// Threads that pack, at construction; 0: one for each core. The result is the same.
  int threads = 0;
};

/// The part of each sequence that a rank of context parallelism gets. A sequence is cut into 2 x
/// `size` chunks; rank r gets chunk r and, behind it, chunk 2 x size - 1 - r, so that with a causal
/// mask all have equally much to do. Such ranks use one sampler: that of their data-parallel rank.
struct ContextPart {
  int rank = 0;  ///< 0 to size - 1
  int size = 1;  ///< ranks that share a sequence
};

/// Where fill() writes: fields of a batch. Only `tokens` is needed; what is empty is not written.
/// Where it says rows x length, the length is that of the ContextPart: length() / size.
///
/// A segment is what a sequence has of one document, or its padding. Attention is within segments.
struct PackedFields {
  std::span<std::int32_t> tokens = {};  ///< rows x length
  /// rows x length: the next token of the document, also where that is in another sequence, or
  /// ignore_index at the end of a document and in padding. They are shifted already: a model that
  /// shifts labels itself gets `tokens` as labels.
  std::span<std::int32_t> targets = {};
  std::span<std::int32_t> position_ids = {};  ///< rows x length: the place in the segment, from 0
  /// rows x length: the number of the segment in the batch, from 0; for masks of FlexAttention.
  std::span<std::int32_t> document_ids = {};
  std::span<std::uint8_t> loss_mask = {};  ///< rows x length: 1 where there is a target, else 0
  /// The beginnings of the segments, as if the rows were one sequence, and the end of the last, as
  /// FlashAttention's varlen functions take them. They are those of whole sequences for any
  /// ContextPart. Any size that holds them; rows x (most_segments() + 1) always does. What is
  /// behind them repeats the last one, so they are segments of no tokens.
  std::span<std::int32_t> cu_seqlens = {};
};

/// What a host function that starts attention needs of a batch. For whole sequences.
struct PackedBatch {
  std::int32_t segments = 0;    ///< cu_seqlens has one value more
  std::int32_t max_seqlen = 0;  ///< tokens of the longest segment
  std::int64_t padding = 0;     ///< tokens of the batch that are padding
};

/// Sequences of length() tokens, numbered 0 to size() - 1. Each token is in one of them, but for
/// those at the end that concatenate leaves out. Any number of threads may use one object. Copies
/// share everything.
///
/// concatenate takes no memory and no time beforehand. The other methods pack all windows at
/// construction, and keep 2 to 4 bytes for each document of common lengths. Numbers of sequences
/// follow the order of the files, window by window, so SamplerOptions::block reads files in runs.
class Packing {
 public:
  /// Throws std::invalid_argument for options outside of their ranges, and where there are too few
  /// tokens for a sequence.
  Packing(const TokenFile& tokens, PackingOptions options);
  Packing(const Packing&) = default;  // A move copies: a Packing always has its tokens.
  Packing& operator=(const Packing&) = default;

  /// Number of sequences, at least 1.
  std::uint64_t size() const noexcept { return size_; }
  /// Tokens in a sequence.
  std::int64_t length() const noexcept { return options_.length; }
  /// The options that it was made with.
  const PackingOptions& options() const noexcept { return options_; }
  /// The documents.
  const TokenFile& tokens() const noexcept { return tokens_; }
  /// The part of all sequences that is padding, 0 to 1.
  double padding() const noexcept;
  /// Tokens at the end of the files that are in no sequence.
  std::uint64_t left_out() const noexcept;
  /// The most segments that a sequence has. Takes time proportional to the number of documents:
  /// call it once, for the capacity of a field.
  std::int64_t most_segments() const;

  /// Writes sequences as the rows of `fields`, in the order of `sequences`. One call fills a batch;
  /// a per_sample source may fill each row by a call of its own, but then cu_seqlens and
  /// document_ids are those of the row. Does not allocate. Throws std::invalid_argument for spans
  /// of other sizes, a ContextPart by which length() cannot be cut, and 2^31 tokens or more, and
  /// std::out_of_range, before it writes anything; std::length_error, which says how many values
  /// are needed, if cu_seqlens is too short; and like TokenFile::read_into().
  PackedBatch fill(std::span<const std::uint64_t> sequences, const PackedFields& fields,
                   ContextPart part = {}) const;

  /// For messages: the name of the sequence's first token (see TokenFile::name). Throws
  /// std::out_of_range.
  std::string name(std::uint64_t sequence) const;

  /// Asks for these sequences ahead, without waiting (see ReadAhead); they will be read at about
  /// `due`, or nobody knows when. Ignores errors, and what is not below size().
  void will_need(std::span<const std::uint64_t> sequences,
                 std::chrono::steady_clock::time_point due = {}) const noexcept;

 private:
  struct Segment;
  struct Row;

  template <class Visit>
  void for_each_segment(std::uint64_t sequence, const Visit& visit) const;
  template <class Visit>
  void for_each_piece(std::uint64_t sequence, const Visit& visit) const;
  void check(std::span<const std::uint64_t> sequences, const PackedFields& fields,
             ContextPart part) const;
  PackedFields rows_of(const PackedFields& fields, std::size_t first, std::size_t count,
                       ContextPart part) const;
  std::size_t rows_together(std::span<const std::uint64_t> sequences, ContextPart part) const;
  void read_rows(std::uint64_t sequence, std::size_t rows, const Row& row) const;
  void describe_row(std::uint64_t sequence, Row& row) const;
  void require_sequence(std::uint64_t sequence) const;

  TokenFile tokens_;
  PackingOptions options_;
  std::uint64_t size_ = 0;
  std::shared_ptr<const detail::DocumentBins> bins_;  // none: concatenated
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/packing.hpp>
#endif
