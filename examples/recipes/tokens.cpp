// SPDX-License-Identifier: Apache-2.0

// docs/recipes/tokens.md: texts as tokens, packed into sequences of 1,024 with what attention has
// to know of them. Writes the tokens to the working directory, and checks what the device got.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <penstock/penstock.hpp>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 8, kLength = 1024;
constexpr std::int32_t kEnd = 50256;  // of a text, as GPT-2 has it

struct Texts {
  penstock::Tensor<std::int32_t, 2> tokens, targets, position_ids;  // sequence x token
  penstock::Tensor<std::int32_t, 2> cu_seqlens;                     // as one list
  penstock::PackedBatch packed;
};

/// The values of a field, for functions that fill it.
template <class Field>
auto all(const Field& field) {
  return std::span(field.data_handle(), field.size());
}

/// 3,000 texts of 2 to 2,818 tokens. Each token of a text is one more than the one before.
std::filesystem::path write_texts() {
  std::vector<std::uint16_t> tokens;
  for (std::uint32_t text = 0; text < 3000; ++text) {
    const std::uint32_t length = 1 + text * 7919 % 89 * (text * 104'729 % 33);
    for (std::uint32_t i = 0; i < length; ++i)
      tokens.push_back(static_cast<std::uint16_t>((text * 31 + i) % kEnd));
    tokens.push_back(kEnd);
  }
  std::ofstream("texts.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(tokens[0])));
  return "texts.bin";
}

/// Stands for a model: looks at a token and its target. 0: padding, 1: as it should be, 2: wrong.
struct Look {
  Texts batch;
  std::uint8_t* found;

  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / kLength, place = i % kLength;
    const std::int32_t token = batch.tokens(row, place), target = batch.targets(row, place);
    const bool follows = target == kEnd || target == (token + 1) % kEnd;
    const bool is_end = token == kEnd && target == -100;
    const bool is_padding = token == 0 && target == -100;
    const std::int32_t before =
        batch.position_ids(row, place) == 0 ? -1 : batch.position_ids(row, place - 1);
    const bool in_order = batch.position_ids(row, place) == before + 1;
    found[i] = !in_order ? 2 : is_padding ? 0 : follows || is_end ? 1 : 2;
  }
};

/// Two epochs. Returns the tokens that were right; -1: some were wrong.
std::int64_t train(const penstock::Packing& packing) {
  const auto layout = penstock::Layout<Texts>{kBatch}
                          .field(&Texts::tokens, {packing.length()})
                          .field(&Texts::targets, {packing.length()})
                          .field(&Texts::position_ids, {packing.length()})
                          .field(&Texts::cu_seqlens, {packing.most_segments() + 1});
  const auto source = [&packing](const penstock::Ticket& ticket, Texts& batch) {
    batch.packed = packing.fill(ticket.samples, {.tokens = all(batch.tokens),
                                                 .targets = all(batch.targets),
                                                 .position_ids = all(batch.position_ids),
                                                 .cu_seqlens = all(batch.cu_seqlens)});
  };
  penstock::Prefetcher<Texts> prefetcher{
      layout,
      {.samples = packing.size(), .shuffle = true, .seed = 7},
      source,
      {.workers = 2, .epochs = 2, .read_ahead = penstock::read_ahead(packing, 4)}};

  const penstock::Stream stream;
  std::vector<std::uint8_t> found(static_cast<std::size_t>(2 * packing.size()) * kLength);
  void* memory = nullptr;
  cudaMalloc(&memory, found.size());
  auto* next = static_cast<std::uint8_t*>(memory);
  std::int32_t longest = 0;
  while (const auto batch = prefetcher.next(stream.get())) {
    // flash_attn_varlen(..., batch->cu_seqlens, batch->packed.segments, batch->packed.max_seqlen)
    longest = std::max(longest, batch->packed.max_seqlen);
    penstock::for_each(stream.get(), batch.samples() * kLength, Look{*batch, next});
    next += batch.samples() * kLength;
  }
  cudaMemcpyAsync(found.data(), memory, found.size(), cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(memory);
  std::printf(
      "tokens: %d sequences, %.2f %% padding, at most %d texts in one, the longest has %d tokens "
      "of a text\n",
      static_cast<int>(packing.size()), 100 * packing.padding(),
      static_cast<int>(packing.most_segments()), longest);
  return std::count(found.begin(), found.end(), 2) != 0 ? -1
                                                        : std::count(found.begin(), found.end(), 1);
}

/// Whether two ranks that share sequences have all tokens of one, in the zig-zag order.
bool shares_sequences(const penstock::Packing& packing) {
  const std::vector<std::uint64_t> sequence{3};
  std::vector<std::int32_t> whole(kLength), part(kLength / 2), together(kLength);
  packing.fill(sequence, {.tokens = whole});
  for (int rank = 0; rank < 2; ++rank) {
    packing.fill(sequence, {.tokens = part}, {.rank = rank, .size = 2});
    constexpr std::int64_t kChunk = kLength / 4;
    std::copy_n(part.begin(), kChunk, together.begin() + rank * kChunk);
    std::copy_n(part.begin() + kChunk, kChunk, together.begin() + (3 - rank) * kChunk);
  }
  return whole == together;
}

}  // namespace

int main() {
  const auto texts = penstock::TokenFile::raw({write_texts()}, penstock::TokenType::uint16,
                                              {.end_of_document = kEnd, .vocabulary = kEnd + 1});
  std::printf("%d texts, %d tokens\n", static_cast<int>(texts.documents()),
              static_cast<int>(texts.tokens()));

  const penstock::Packing whole(texts,
                                {.length = kLength, .method = penstock::PackingMethod::best_fit});
  const penstock::Packing cut(texts, {.length = kLength});
  const auto all_tokens = static_cast<std::int64_t>(texts.tokens());
  const bool right = train(whole) == 2 * all_tokens &&
                     train(cut) == 2 * (all_tokens - static_cast<std::int64_t>(cut.left_out())) &&
                     shares_sequences(whole);
  std::puts(right ? "tokens: all are right" : "tokens: some are wrong");
  return right ? 0 : 1;
}
