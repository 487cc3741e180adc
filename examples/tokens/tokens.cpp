// SPDX-License-Identifier: Apache-2.0

// tokens: texts of different lengths as a ragged field, padded on the device. Only the tokens cross
// the bus, not the padding. The same file is compiled as C++ over the emulated runtime and, by way
// of tokens.cu, as CUDA C++. Exit codes: 0 done, 1 a check failed or an exception.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <penstock/penstock.hpp>
#include <vector>

#include "../common/check.hpp"

#ifdef __CUDACC__
#define TOKENS_HOST_DEVICE __host__ __device__
#else
#define TOKENS_HOST_DEVICE
#endif

namespace tokens {

constexpr std::uint64_t kTexts = 5'000;
constexpr std::int64_t kBatch = 64, kLongest = 512;  // texts, tokens
constexpr std::int32_t kPad = -1;

struct Texts {
  penstock::Tensor<std::uint64_t, 1> number;  // text: which it is
  penstock::Ragged<std::int32_t> tokens;      // text x its tokens
};

/// Stands for a tokenizer: mostly short texts, a few long ones.
std::vector<std::int32_t> text(std::uint64_t number) {
  std::uint64_t state = number * 0x9E3779B97F4A7C15u + 1;
  const auto random = [&] { return (state = state * 6364136223846793005u + 1) >> 33; };
  const std::uint64_t most = random() % 8 == 0 ? kLongest : 64;
  std::vector<std::int32_t> result(random() % (most + 1));
  for (std::int32_t& token : result) token = static_cast<std::int32_t>(random() % 32'000);
  return result;
}

/// Of the text's tokens, each with its place.
TOKENS_HOST_DEVICE std::uint64_t checksum(const std::int32_t* tokens, std::int64_t length) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < length; ++i)
    sum += static_cast<std::uint64_t>(tokens[i]) * static_cast<std::uint64_t>(i + 1);
  return sum;
}

/// One place of the padded batch. The ragged one tells where a row's tokens are and how many.
struct Pad {
  Texts batch;
  penstock::Tensor<std::int32_t, 2> padded;

  TOKENS_HOST_DEVICE void operator()(std::int64_t index) const {
    const std::int64_t row = index / kLongest, i = index % kLongest;
    padded(row, i) = i < batch.tokens.length(row) ? batch.tokens.begin(row)[i] : kPad;
  }
};

/// What a model would compute of one row of the padded batch.
struct Read {
  Texts batch;
  penstock::Tensor<std::int32_t, 2> padded;
  std::uint64_t* checksums;

  TOKENS_HOST_DEVICE void operator()(std::int64_t row) const {
    std::int64_t length = 0;
    while (length < kLongest && padded(row, length) != kPad) ++length;
    checksums[batch.number(row)] = checksum(&padded(row, 0), length);
  }
};

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};

/// Uninitialised.
template <class T>
std::unique_ptr<T, Free> device_array(std::size_t size) {
  void* memory = nullptr;
  examples::check(cudaMalloc(&memory, size * sizeof(T)), "cudaMalloc");
  return std::unique_ptr<T, Free>(static_cast<T*>(memory));
}

int run() {
  const auto layout = penstock::Layout<Texts>{kBatch}
                          .field(&Texts::number, {})
                          .field(&Texts::tokens, penstock::Capacity{kBatch * kLongest});
  const auto fill = [](const penstock::Ticket& ticket, Texts& batch) {  // on the workers
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      batch.number(row) = ticket.samples[i];
      batch.tokens.assign(row, text(ticket.samples[i]));
    }
  };
  penstock::Prefetcher<Texts> prefetcher{
      layout, {.samples = kTexts, .shuffle = true, .seed = 1}, fill, {.workers = 2}};

  penstock::Stream stream;
  const auto checksums = device_array<std::uint64_t>(kTexts);
  const auto memory = device_array<std::int32_t>(kBatch * kLongest);
  const penstock::Tensor<std::int32_t, 2> padded(memory.get(), kBatch, kLongest);
  while (const auto batch = prefetcher.next(stream.get())) {
    const std::int64_t rows = batch->tokens.size();
    penstock::for_each(stream.get(), rows * kLongest, Pad{*batch, padded});
    penstock::for_each(stream.get(), rows, Read{*batch, padded, checksums.get()});
  }

  std::vector<std::uint64_t> found(kTexts);
  examples::check(cudaMemcpyAsync(found.data(), checksums.get(), kTexts * sizeof(std::uint64_t),
                                  cudaMemcpyDeviceToHost, stream.get()),
                  "cudaMemcpyAsync");
  examples::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  std::size_t wrong = 0, all = 0;
  for (std::uint64_t number = 0; number < kTexts; ++number) {
    const std::vector<std::int32_t> expected = text(number);
    all += expected.size();
    const auto length = static_cast<std::int64_t>(expected.size());
    wrong += found[number] != checksum(expected.data(), length) ? 1 : 0;
  }
  const double copied = static_cast<double>(prefetcher.stats().copy.bytes);
  std::printf("%zu texts, %zu tokens, %zu wrong\n", found.size(), all, wrong);
  std::printf("copied %.1f MB; padded on the host it would have been %.1f MB\n", copied / 1e6,
              static_cast<double>(kTexts * kLongest * sizeof(std::int32_t)) / 1e6);
  return wrong == 0 ? 0 : 1;
}

}  // namespace tokens

int main() try { return tokens::run(); } catch (const std::exception& error) {
  std::fprintf(stderr, "tokens: %s\n", error.what());
  return 1;
}
