// SPDX-License-Identifier: Apache-2.0
#pragma once

// The trainer's input: files of tokens, packed into sequences, as batches on the device.
//
//   const auto packing = gpt::open_packing(options, 1024);
//   const auto prefetcher = gpt::make_input(packing, options, 8);
//   while (const auto batch = prefetcher->next(stream)) train(*batch);

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <penstock/packing.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/read_ahead.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.hpp"

namespace gpt {

struct InputOptions {
  std::filesystem::path megatron;            ///< prefix of .bin and .idx
  std::vector<std::filesystem::path> llm_c;  ///< if there is no such prefix
  std::int32_t begin_of_document = 0;        ///< in files of llm.c
  penstock::PackingMethod method = penstock::PackingMethod::best_fit;
  bool in_order = false;  ///< sequences in the order of the files
  std::uint64_t seed = 1;
  int workers = 2;
  std::size_t device_depth = 2;
};

/// Throws penstock::StoreError for files that cannot be used, also for a token that is not below
/// `vocabulary`, once it is read.
inline penstock::Packing open_packing(const InputOptions& options, std::int64_t length,
                                      std::int64_t vocabulary) {
  penstock::TokenFileOptions files{.vocabulary = static_cast<std::int32_t>(vocabulary)};
  const penstock::PackingOptions packing{.length = length, .method = options.method};
  if (!options.megatron.empty())
    return {penstock::TokenFile::megatron(options.megatron, files), packing};
  files.begin_of_document = options.begin_of_document;
  return {penstock::TokenFile::llm_c(options.llm_c, files), packing};
}

/// Epochs without end. Throws std::invalid_argument if there are fewer sequences than a batch has.
/// `packing` outlives the result.
inline std::unique_ptr<penstock::Prefetcher<Sequences>> make_input(const penstock::Packing& packing,
                                                                   const InputOptions& options,
                                                                   std::int64_t batch) {
  if (packing.size() < static_cast<std::uint64_t>(batch))
    throw std::invalid_argument("the files have " + std::to_string(packing.size()) +
                                " sequences of " + std::to_string(packing.length()) +
                                " tokens, fewer than a batch of " + std::to_string(batch));
  const auto layout = penstock::Layout<Sequences>{batch}
                          .field(&Sequences::tokens, {packing.length()})
                          .field(&Sequences::targets, {packing.length()})
                          .field(&Sequences::position_ids, {packing.length()});
  const auto source = [&packing](const penstock::Ticket& ticket, Sequences& out) {
    const auto all = [](const auto& field) { return std::span(field.data_handle(), field.size()); };
    packing.fill(ticket.samples, {.tokens = all(out.tokens),
                                  .targets = all(out.targets),
                                  .position_ids = all(out.position_ids)});
  };
  return std::make_unique<penstock::Prefetcher<Sequences>>(
      layout,
      penstock::SamplerOptions{.samples = packing.size(),
                               .shuffle = !options.in_order,
                               .seed = options.seed,
                               .drop_last = true},
      source,
      penstock::PrefetcherOptions{.workers = options.workers,
                                  .device_depth = options.device_depth,
                                  .epochs = std::numeric_limits<std::int32_t>::max(),
                                  .read_ahead = penstock::read_ahead(packing, 4)});
}

}  // namespace gpt
