// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a Packing should do, in the plainest way.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <penstock/packing.hpp>
#include <vector>

namespace penstock::test {

struct NaiveSegment {
  std::uint64_t token;
  std::int64_t count;
  bool is_padding, goes_on;
};
using NaiveSequence = std::vector<NaiveSegment>;

/// `begins`: of the documents, and the end.
inline std::vector<NaiveSequence> naive_concatenation(const std::vector<std::uint64_t>& begins,
                                                      std::int64_t length) {
  std::vector<NaiveSequence> sequences;
  const auto size = static_cast<std::uint64_t>(length);
  for (std::uint64_t first = 0; first + size <= begins.back(); first += size) {
    NaiveSequence sequence;
    for (std::size_t d = 0; d + 1 < begins.size(); ++d) {
      const std::uint64_t from = std::max(first, begins[d]);
      const std::uint64_t to = std::min(first + size, begins[d + 1]);
      if (from < to)
        sequence.push_back({from, static_cast<std::int64_t>(to - from), false, to < begins[d + 1]});
    }
    sequences.push_back(sequence);
  }
  return sequences;
}

/// Tries all bins for each document.
inline std::vector<NaiveSequence> naive_packing(const std::vector<std::uint64_t>& begins,
                                                const PackingOptions& options) {
  struct Bin {
    std::int64_t room;
    std::size_t last_used;
    std::vector<std::size_t> documents;
  };
  std::vector<NaiveSequence> sequences;
  const std::size_t documents = begins.size() - 1;
  const std::int64_t length = options.length;
  const auto tokens_of = [&](std::size_t d) {
    return static_cast<std::int64_t>(begins[d + 1] - begins[d]);
  };
  const auto rest_of = [&](std::size_t d) { return tokens_of(d) % length; };
  for (std::size_t first = 0; first < documents; first += options.window) {
    const std::size_t end = std::min<std::size_t>(documents, first + options.window);
    std::vector<std::size_t> order;
    for (std::size_t d = first; d < end; ++d)
      if (rest_of(d) > 0) order.push_back(d);
    if (options.method == PackingMethod::best_fit)
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return rest_of(a) > rest_of(b); });
    std::vector<Bin> bins;
    std::size_t time = 0;
    for (const std::size_t d : order) {
      Bin* found = nullptr;
      for (Bin& bin : bins) {
        if (bin.room < rest_of(d)) continue;
        const bool better = found == nullptr || bin.room < found->room ||
                            (bin.room == found->room && bin.last_used > found->last_used);
        if (options.method == PackingMethod::best_fit ? better : found == nullptr) found = &bin;
      }
      if (found == nullptr) found = &bins.emplace_back(Bin{length, 0, {}});
      found->room -= rest_of(d);
      found->last_used = ++time;
      found->documents.push_back(d);
    }
    for (Bin& bin : bins) {
      std::sort(bin.documents.begin(), bin.documents.end());
      NaiveSequence sequence;
      for (const std::size_t d : bin.documents)
        sequence.push_back(
            {begins[d + 1] - static_cast<std::uint64_t>(rest_of(d)), rest_of(d), false, false});
      if (bin.room > 0) sequence.push_back({0, bin.room, true, false});
      sequences.push_back(sequence);
    }
    for (std::size_t d = first; d < end; ++d)
      for (std::int64_t piece = 0; (piece + 1) * length <= tokens_of(d); ++piece)
        sequences.push_back({{begins[d] + static_cast<std::uint64_t>(piece * length), length, false,
                              (piece + 1) * length < tokens_of(d)}});
  }
  return sequences;
}

/// All fields of a batch, and memory for them.
struct FilledBatch {
  FilledBatch(std::size_t rows, std::size_t length, std::size_t segments)
      : tokens(rows * length, -7),
        targets(rows * length, -7),
        position_ids(rows * length, -7),
        document_ids(rows * length, -7),
        loss_mask(rows * length, 7),
        cu_seqlens(segments + 1, -7) {}
  FilledBatch() = default;

  PackedFields fields() {
    return {.tokens = tokens,
            .targets = targets,
            .position_ids = position_ids,
            .document_ids = document_ids,
            .loss_mask = loss_mask,
            .cu_seqlens = cu_seqlens};
  }

  bool operator==(const FilledBatch&) const = default;

  std::vector<std::int32_t> tokens, targets, position_ids, document_ids;
  std::vector<std::uint8_t> loss_mask;
  std::vector<std::int32_t> cu_seqlens;
  std::int64_t max_seqlen = 0, padding = 0;
};

/// One value at a time. `part`: of context parallelism.
template <class Token>
FilledBatch naive_fill(const std::vector<Token>& tokens,
                       const std::vector<NaiveSequence>& sequences, const PackingOptions& options,
                       ContextPart part) {
  FilledBatch filled;
  std::int32_t number = 0, place = 0;
  const std::int64_t chunk = options.length / (2 * part.size);
  for (const NaiveSequence& sequence : sequences) {
    FilledBatch row;
    for (const auto& [token, count, is_padding, goes_on] : sequence) {
      filled.cu_seqlens.push_back(place);
      filled.max_seqlen = std::max(filled.max_seqlen, count);
      if (is_padding) filled.padding += count;
      for (std::int64_t i = 0; i < count; ++i) {
        const bool has_target = !is_padding && (i + 1 < count || goes_on);
        const auto at = static_cast<std::size_t>(token + static_cast<std::uint64_t>(i));
        row.tokens.push_back(is_padding ? options.pad_token : std::int32_t{tokens[at]});
        row.targets.push_back(has_target ? std::int32_t{tokens[at + 1]} : options.ignore_index);
        row.position_ids.push_back(static_cast<std::int32_t>(i));
        row.document_ids.push_back(number);
        row.loss_mask.push_back(has_target ? 1 : 0);
      }
      ++number;
      place += static_cast<std::int32_t>(count);
    }
    const auto take = [&](auto& all, const auto& of_row) {
      for (std::int64_t i = 0; i < options.length; ++i) {
        const bool mine =
            part.size == 1 || i / chunk == part.rank || i / chunk == 2 * part.size - 1 - part.rank;
        if (mine) all.push_back(of_row[static_cast<std::size_t>(i)]);
      }
    };
    take(filled.tokens, row.tokens);
    take(filled.targets, row.targets);
    take(filled.position_ids, row.position_ids);
    take(filled.document_ids, row.document_ids);
    take(filled.loss_mask, row.loss_mask);
  }
  filled.cu_seqlens.push_back(place);
  return filled;
}

}  // namespace penstock::test
