// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <penstock/detail/storage/needed_ranges.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/token_set.hpp>
#include <penstock/detail/storage/window_packer.hpp>
#include <penstock/detail/sync/in_parts.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/packing.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

inline void check_packing(const PackingOptions& options) {
  const auto refuse = [](const char* what, auto value, const char* must) {
    throw std::invalid_argument(std::string("Packing: ") + what + " is " + std::to_string(value) +
                                ", must be " + must);
  };
  if (options.length < 1 || options.length > std::int64_t{1} << 30)
    refuse("length", options.length, "1 to 2^30");
  if (options.window < 1 || options.window > 65'536) refuse("window", options.window, "1 to 65536");
  if (options.threads < 0) refuse("threads", options.threads, "at least 0");
}

inline DocumentBins pack_windows(const TokenSet& set, const PackingOptions& options) {
  const std::uint64_t all = set.documents.size();
  const std::uint64_t windows = (all + options.window - 1) / options.window;
  const auto threads =
      static_cast<std::uint64_t>(options.threads == 0 ? usable_cores() : options.threads);
  const auto parts = static_cast<std::size_t>(std::min(threads, windows));
  std::vector<DocumentBins> packed(parts);
  in_parts(windows, parts, [&](std::size_t part, std::uint64_t begin, std::uint64_t end) {
    WindowPacker packer(options.method == PackingMethod::best_fit, options.length, options.window);
    std::vector<std::uint64_t> lengths;
    for (std::uint64_t window = begin; window < end; ++window) {
      const std::uint64_t first = window * options.window;
      lengths.resize(
          static_cast<std::size_t>(std::min<std::uint64_t>(options.window, all - first)));
      for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = set.document(first + i).length;
      packer.pack(lengths, packed[part]);
    }
  });
  DocumentBins bins = std::move(packed.front());
  for (std::size_t part = 1; part < parts; ++part) {
    bins.append(packed[part]);
    packed[part] = {};
  }
  return bins;
}

/// Writes first, first + 1 and so on. The inner loop becomes vector instructions.
inline void put_numbers(std::int32_t* to, std::size_t count, std::int32_t first) noexcept {
  constexpr std::size_t kBlock = 16;
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock, first += static_cast<std::int32_t>(kBlock))
    for (std::size_t k = 0; k < kBlock; ++k) to[i + k] = first + static_cast<std::int32_t>(k);
  for (; i < count; ++i) to[i] = first++;
}

/// Copies values that do not overlap. Some processors take long for the copy instruction of a
/// memcpy whose source is a little behind its target, modulo the size of a page, as targets are.
inline void copy_values(std::int32_t* to, const std::int32_t* from, std::size_t count) noexcept {
  constexpr std::size_t kBlock = 16;
  for (; count >= kBlock; to += kBlock, from += kBlock, count -= kBlock)
    std::memcpy(to, from, kBlock * sizeof *to);
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}

}  // namespace detail

/// What a sequence has of one document, or its padding.
struct Packing::Segment {
  static constexpr std::uint64_t kPadding = ~std::uint64_t{0};

  std::uint64_t token;  // number of the first one in the files; kPadding
  std::int64_t at;      // its place in the sequence
  std::int64_t count;
  bool goes_on;  // The document has a token behind it.
};

/// A row that is filled: its part of each field, and the numbers of the batch.
struct Packing::Row {
  PackedFields fields;  // of this row, but cu_seqlens, which is the batch's
  ContextPart part;
  PackedBatch batch;
  std::int32_t begin = 0;  // of the row, of all tokens of whole sequences

  /// Calls `visit(place in the row, place in the segment, count)` for what this rank has of a
  /// segment: that in its one or two chunks.
  template <class Visit>
  void for_each_chunk(const Segment& segment, std::int64_t length, const Visit& visit) const {
    if (part.size == 1) return visit(segment.at, std::int64_t{0}, segment.count);
    const std::int64_t chunk = length / (2 * part.size);
    const std::array<std::int64_t, 2> begins{part.rank * chunk,
                                             (2 * part.size - 1 - part.rank) * chunk};
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const std::int64_t from = std::max(segment.at, begins[i]);
      const std::int64_t to = std::min(segment.at + segment.count, begins[i] + chunk);
      if (from < to)
        visit(from - begins[i] + static_cast<std::int64_t>(i) * chunk, from - segment.at,
              to - from);
    }
  }
};

PENSTOCK_INLINE Packing::Packing(const TokenFile& tokens, PackingOptions options)
    : tokens_(tokens), options_(options) {
  detail::check_packing(options_);
  if (options_.method == PackingMethod::concatenate) {
    size_ = tokens_.tokens() / static_cast<std::uint64_t>(options_.length);
  } else {
    bins_ =
        std::make_shared<const detail::DocumentBins>(detail::pack_windows(*tokens_.set_, options_));
    size_ = bins_->size();
  }
  if (size_ == 0)
    throw std::invalid_argument("Packing: there are " + std::to_string(tokens_.tokens()) +
                                " tokens, too few for a sequence of " +
                                std::to_string(options_.length));
}

PENSTOCK_INLINE std::uint64_t Packing::left_out() const noexcept {
  return bins_ ? 0 : tokens_.tokens() % static_cast<std::uint64_t>(options_.length);
}

PENSTOCK_INLINE double Packing::padding() const noexcept {
  const double room = static_cast<double>(size_) * static_cast<double>(options_.length);
  return bins_ ? 1 - static_cast<double>(tokens_.tokens()) / room : 0;
}

PENSTOCK_INLINE std::int64_t Packing::most_segments() const {
  std::int64_t most = 1;
  if (bins_) {
    for (auto window = bins_->windows.begin(); window + 1 != bins_->windows.end(); ++window)
      for (std::uint64_t bin = window->bins; bin < (window + 1)->bins; ++bin) {
        std::int64_t count = 0;
        for_each_segment(window->sequences + (bin - window->bins),
                         [&](const Segment&) { ++count; });
        most = std::max(most, count);
      }
    return most;
  }
  const auto length = static_cast<std::uint64_t>(options_.length);
  std::uint64_t sequence = 0;
  std::int64_t count = 0;
  for (std::uint64_t document = 0; document < tokens_.documents(); ++document) {
    const auto [begin, tokens] = tokens_.set_->document(document);
    if (tokens == 0) continue;
    if (begin / length != sequence) {  // Its beginning is in another sequence.
      sequence = begin / length;
      count = begin % length != 0 ? 1 : 0;  // What the one before has there.
    }
    if (sequence < size_) most = std::max(most, ++count);
  }
  return most;
}

/// Of a sequence that is not concatenated: calls `visit(first token, count, goes on)`.
template <class Visit>
void Packing::for_each_piece(std::uint64_t sequence, const Visit& visit) const {
  const auto& windows = bins_->windows;
  const auto window =
      std::ranges::upper_bound(windows, sequence, {}, &detail::DocumentBins::Window::sequences) - 1;
  const auto& behind = *(window + 1);
  const auto number = static_cast<std::uint64_t>(window - windows.begin());
  const std::uint64_t first_document = number * options_.window;
  const auto length = static_cast<std::uint64_t>(options_.length);
  const std::uint64_t place = sequence - window->sequences, bins = behind.bins - window->bins;
  if (place >= bins) {
    const std::uint64_t piece = place - bins;
    const auto from = bins_->pieces.begin() + static_cast<std::ptrdiff_t>(window->longs);
    const auto to = bins_->pieces.begin() + static_cast<std::ptrdiff_t>(behind.longs);
    const auto at = std::upper_bound(from, to, piece) - 1;
    const auto index = static_cast<std::size_t>(at - bins_->pieces.begin());
    const auto [begin, tokens] = tokens_.set_->document(first_document + bins_->longs[index]);
    const std::uint64_t before = (piece - *at) * length;
    return visit(begin + before, length, before + length < tokens);
  }
  const std::uint64_t bin = window->bins + place;
  const std::uint64_t from = window->members + bins_->bins[static_cast<std::size_t>(bin)];
  const std::uint64_t to = place + 1 == bins
                               ? behind.members
                               : window->members + bins_->bins[static_cast<std::size_t>(bin) + 1];
  for (std::uint64_t i = from; i < to; ++i) {
    const auto [begin, tokens] =
        tokens_.set_->document(first_document + bins_->members[static_cast<std::size_t>(i)]);
    visit(begin + tokens - tokens % length, tokens % length, false);
  }
}

/// Calls `visit(segment)` for all segments of a sequence, in order.
template <class Visit>
void Packing::for_each_segment(std::uint64_t sequence, const Visit& visit) const {
  std::int64_t at = 0;
  if (bins_) {
    for_each_piece(sequence, [&](std::uint64_t token, std::uint64_t count, bool goes_on) {
      visit(Segment{token, at, static_cast<std::int64_t>(count), goes_on});
      at += static_cast<std::int64_t>(count);
    });
    if (at < options_.length) visit(Segment{Segment::kPadding, at, options_.length - at, false});
    return;
  }
  std::uint64_t token = sequence * static_cast<std::uint64_t>(options_.length);
  std::uint64_t document = tokens_.set_->documents.of(token);
  for (; at < options_.length; ++document) {
    const auto [begin, tokens] = tokens_.set_->document(document);
    const auto left = begin + tokens - token;
    if (left == 0) continue;  // It has no tokens.
    const auto count = std::min(static_cast<std::int64_t>(left), options_.length - at);
    visit(Segment{token, at, count, left > static_cast<std::uint64_t>(count)});
    at += count;
    token += static_cast<std::uint64_t>(count);
  }
}

PENSTOCK_INLINE void Packing::require_sequence(std::uint64_t sequence) const {
  detail::require_index(sequence, size_, "Packing: there is no sequence ");
}

PENSTOCK_INLINE void Packing::check(std::span<const std::uint64_t> sequences,
                                    const PackedFields& fields, ContextPart part) const {
  const auto refuse = [](const std::string& why) {
    throw std::invalid_argument("Packing::fill: " + why);
  };
  if (part.size < 1 || part.rank < 0 || part.rank >= part.size)
    refuse("rank " + std::to_string(part.rank) + " of " + std::to_string(part.size) +
           " of context parallelism");
  if (part.size > 1 && options_.length % (2 * std::int64_t{part.size}) != 0)
    refuse("sequences of " + std::to_string(options_.length) + " tokens cannot be cut into 2 x " +
           std::to_string(part.size) + " chunks");
  if (sequences.size() >
      std::numeric_limits<std::int32_t>::max() / static_cast<std::uint64_t>(options_.length))
    refuse(std::to_string(sequences.size()) + " sequences have 2^31 tokens or more");
  const std::size_t values =
      sequences.size() * static_cast<std::size_t>(options_.length / part.size);
  const auto require = [&](const char* name, std::size_t size, bool needed) {
    if (size != values && (needed || size != 0))
      refuse(std::string("a span of ") + std::to_string(size) + " values for " + name + ", where " +
             std::to_string(sequences.size()) + " sequences have " + std::to_string(values));
  };
  require("tokens", fields.tokens.size(), true);
  require("targets", fields.targets.size(), false);
  require("position_ids", fields.position_ids.size(), false);
  require("document_ids", fields.document_ids.size(), false);
  require("loss_mask", fields.loss_mask.size(), false);
  for (const std::uint64_t sequence : sequences) require_sequence(sequence);
}

PENSTOCK_INLINE PackedBatch Packing::fill(std::span<const std::uint64_t> sequences,
                                          const PackedFields& fields, ContextPart part) const {
  check(sequences, fields, part);
  if (!tokens_.set_->is_local()) will_need(sequences, std::chrono::steady_clock::now());
  Row row{.fields = fields, .part = part, .batch = {}};
  std::size_t read = 0;  // The rows before it are read.
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (i == read) {
      const std::size_t rows = rows_together(sequences.subspan(i), part);
      row.fields = rows_of(fields, i, rows, part);
      read_rows(sequences[i], rows, row);
      read += rows;
    }
    row.fields = rows_of(fields, i, 1, part);
    describe_row(sequences[i], row);
    row.begin += static_cast<std::int32_t>(options_.length);
  }
  const std::span<std::int32_t> cu_seqlens = fields.cu_seqlens;
  const auto needed = static_cast<std::size_t>(row.batch.segments) + 1;
  if (!cu_seqlens.empty()) {
    if (cu_seqlens.size() < needed)
      throw std::length_error("Packing::fill: cu_seqlens has room for " +
                              std::to_string(cu_seqlens.size()) + " values, and the batch has " +
                              std::to_string(needed));
    std::ranges::fill(cu_seqlens.subspan(needed - 1), row.begin);
  }
  return row.batch;
}

PENSTOCK_INLINE PackedFields Packing::rows_of(const PackedFields& fields, std::size_t first,
                                              std::size_t count, ContextPart part) const {
  const auto width = static_cast<std::size_t>(options_.length / part.size);
  const auto of_rows = [&](auto field) {
    return field.empty() ? field : field.subspan(first * width, count * width);
  };
  return {.tokens = of_rows(fields.tokens),
          .targets = of_rows(fields.targets),
          .position_ids = of_rows(fields.position_ids),
          .document_ids = of_rows(fields.document_ids),
          .loss_mask = of_rows(fields.loss_mask),
          .cu_seqlens = fields.cu_seqlens};
}

/// How many of the first sequences are read at once: those that lie one behind the other in the
/// files too, as far as one read goes.
PENSTOCK_INLINE std::size_t Packing::rows_together(std::span<const std::uint64_t> sequences,
                                                   ContextPart part) const {
  if (bins_ || part.size > 1) return 1;
  const std::size_t most = detail::TokenSet::kChunk / tokens_.set_->token_bytes /
                           static_cast<std::size_t>(options_.length);
  std::size_t rows = 1;
  while (rows < std::min(most, sequences.size()) && sequences[rows] == sequences[0] + rows) ++rows;
  return rows;
}

/// Reads the tokens of `rows` rows, of which the first is `sequence`, and the target behind each
/// of them. `row` has the fields of all of them.
PENSTOCK_INLINE void Packing::read_rows(std::uint64_t sequence, std::size_t rows,
                                        const Row& row) const {
  const PackedFields& to = row.fields;
  // Segments that lie together in the files, and in the row, are read together. It may read the
  // token behind them in vain.
  const auto length = static_cast<std::uint64_t>(options_.length);
  const std::uint64_t first = sequence * length, all = rows * length;
  Segment run{.token = first,
              .at = 0,
              .count = bins_ ? 0 : static_cast<std::int64_t>(all),
              .goes_on = !bins_ && tokens_.tokens() - first > all};
  const auto read_run = [&] {
    row.for_each_chunk(
        run, options_.length, [&](std::int64_t at, std::int64_t in, std::int64_t count) {
          const bool goes_on = run.goes_on || in + count < run.count;
          const auto place = static_cast<std::size_t>(at), size = static_cast<std::size_t>(count);
          tokens_.set_->read(
              run.token + static_cast<std::uint64_t>(in), to.tokens.subspan(place, size),
              goes_on && !to.targets.empty() ? &to.targets[place + size - 1] : nullptr);
        });
  };
  const auto add_to_run = [&](const Segment& segment) {
    if (segment.token == Segment::kPadding) return;
    if (run.token + static_cast<std::uint64_t>(run.count) == segment.token && run.count > 0) {
      run.count += segment.count;
      run.goes_on = segment.goes_on;
      return;
    }
    if (run.count > 0) read_run();
    run = segment;
  };
  if (bins_) for_each_segment(sequence, add_to_run);
  read_run();
  if (to.targets.empty()) return;
  for (std::uint64_t at = length; at < all; at += length)
    to.targets[static_cast<std::size_t>(at) - 1] = to.tokens[static_cast<std::size_t>(at)];
}

/// Writes all fields but the tokens of a row, which read_rows() has read.
PENSTOCK_INLINE void Packing::describe_row(std::uint64_t sequence, Row& row) const {
  const PackedFields& to = row.fields;
  for_each_segment(sequence, [&](const Segment& segment) {
    const bool is_padding = segment.token == Segment::kPadding;
    const std::int32_t number = row.batch.segments++;
    const auto tokens = static_cast<std::int32_t>(segment.count);
    row.batch.max_seqlen = std::max(row.batch.max_seqlen, tokens);
    if (is_padding) row.batch.padding += tokens;
    if (static_cast<std::size_t>(number) < to.cu_seqlens.size())
      to.cu_seqlens[static_cast<std::size_t>(number)] =
          row.begin + static_cast<std::int32_t>(segment.at);
    row.for_each_chunk(
        segment, options_.length, [&](std::int64_t at, std::int64_t in, std::int64_t count) {
          const auto place = static_cast<std::size_t>(at), size = static_cast<std::size_t>(count);
          const bool goes_on = segment.goes_on || in + count < segment.count;
          if (is_padding) std::ranges::fill(to.tokens.subspan(place, size), options_.pad_token);
          if (!to.targets.empty()) {
            std::int32_t* const targets = &to.targets[place];
            if (is_padding) {
              std::fill_n(targets, size, options_.ignore_index);
            } else {
              detail::copy_values(targets, &to.tokens[place] + 1, size - 1);
              if (!goes_on) targets[size - 1] = options_.ignore_index;
            }
          }
          if (!to.position_ids.empty())
            detail::put_numbers(&to.position_ids[place], size, static_cast<std::int32_t>(in));
          if (!to.document_ids.empty()) std::fill_n(&to.document_ids[place], size, number);
          if (!to.loss_mask.empty()) {
            std::memset(&to.loss_mask[place], is_padding ? 0 : 1, size);
            if (!goes_on) to.loss_mask[place + size - 1] = 0;
          }
        });
  });
}

PENSTOCK_INLINE std::string Packing::name(std::uint64_t sequence) const {
  require_sequence(sequence);
  std::uint64_t first = Segment::kPadding;
  for_each_segment(sequence,
                   [&](const Segment& segment) { first = std::min(first, segment.token); });
  return tokens_.name(first);
}

PENSTOCK_INLINE void Packing::will_need(std::span<const std::uint64_t> sequences,
                                        std::chrono::steady_clock::time_point due) const noexcept {
  const auto add = [&](std::uint64_t sequence, detail::NeededRanges& ranges) {
    for_each_segment(sequence, [&](const Segment& segment) {
      if (segment.token != Segment::kPadding)
        tokens_.set_->add_ranges({segment.token, static_cast<std::uint64_t>(segment.count)},
                                 ranges);
    });
  };
  detail::NeededRanges::ask(sequences, size_, due, add);
}

}  // namespace penstock
