// SPDX-License-Identifier: Apache-2.0

// TokenFile over any bytes, and Packing over what it makes of them. The first byte of an input says
// what the others are:
//
//   bits 0-1   0: an index of Megatron and, behind it, its tokens; the second byte says how many
//              1: a file of llm.c; 2, 3: a raw file
//   bit 2      the sizes in the header, or in the index, are made right
//   bits 3-4   how sequences are made of the documents

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <penstock/detail/storage/token_index.hpp>
#include <penstock/packing.hpp>
#include <penstock/token_file.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz.hpp"

namespace {

using namespace penstock;
using test::require;

class FileInMemory final : public FileReader {
 public:
  FileInMemory(std::string name, std::string content)
      : name_(std::move(name)), content_(std::move(content)) {}

  const std::string& name() const noexcept override { return name_; }
  std::uint64_t size() const noexcept override { return content_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const override {
    require(offset <= content_.size() && target.size() <= content_.size() - offset,
            "what is read is a part of the file");
    std::memcpy(target.data(), content_.data() + offset, target.size());
    return target.size();
  }
  void will_need(std::span<const FileRange> ranges,
                 std::chrono::steady_clock::time_point) const noexcept override {
    for (const FileRange& range : ranges)
      require(range.offset <= content_.size() && range.bytes <= content_.size() - range.offset,
              "what is announced is a part of the file");
  }

 private:
  std::string name_, content_;
};

File file_of(const char* name, std::string_view content) {
  return File(std::make_shared<FileInMemory>(name, std::string(content)));
}

void put(std::string& bytes, std::size_t at, std::uint64_t value, std::size_t size) {
  if (bytes.size() >= at + size) std::memcpy(bytes.data() + at, &value, size);
}

/// Makes the pointers of an index right, as far as there is room for them.
void mend_index(std::string& index) {
  std::uint64_t sequences = 0;
  if (index.size() < 34) return;
  std::memcpy(&sequences, index.data() + 18, sizeof sequences);
  if (sequences > (index.size() - 34) / 12) return;
  constexpr std::array<std::uint64_t, 9> kSizes{1, 1, 1, 2, 4, 8, 8, 4, 2};
  const std::uint64_t size = kSizes[static_cast<unsigned char>(index[17]) % kSizes.size()];
  std::uint64_t pointer = 0;
  for (std::uint64_t i = 0; i < sequences; ++i) {
    std::int32_t length = 0;
    std::memcpy(&length, index.data() + 34 + 4 * i, sizeof length);
    put(index, 34 + 4 * sequences + 8 * i, pointer, 8);
    pointer += static_cast<std::uint64_t>(length) * size;
  }
}

TokenFile opened(int how, std::string bytes) {
  if ((how & 3) == 0) {
    const std::size_t count =
        std::min<std::size_t>(bytes.size() - 1, static_cast<unsigned char>(bytes.front()));
    const std::string tokens = bytes.substr(bytes.size() - count);
    std::string index = bytes.substr(1, bytes.size() - 1 - count);
    if ((how & 4) != 0) mend_index(index);
    return TokenFile::megatron(file_of("bin", tokens), file_of("idx", index), {.vocabulary = 1000});
  }
  if ((how & 3) == 1) {
    if ((how & 4) != 0 && bytes.size() >= 1024) put(bytes, 8, (bytes.size() - 1024) / 2, 4);
    return TokenFile::llm_c(std::vector<File>{file_of("llm.c", bytes)}, {.begin_of_document = 7});
  }
  const auto type = (how & 3) == 2 ? TokenType::uint8 : TokenType::int64;
  return TokenFile::raw(std::vector<File>{file_of("raw", bytes)}, type, {.end_of_document = 7});
}

void check_documents(const TokenFile& file) {
  std::uint64_t end = 0;
  for (std::uint64_t d = 0; d < file.documents(); ++d) {
    const auto [begin, length] = file.document(d);
    require(begin == end, "a document begins where the one before ends");
    end = begin + length;
    if (length > 0) require(file.document_of(end - 1) == d, "a token is found in its document");
  }
  require(end == file.tokens(), "documents have all tokens");
}

void check_packing(const TokenFile& file, int how) {
  const auto method = static_cast<PackingMethod>((how >> 3) % 3);
  const Packing packing(file, {.length = 8, .method = method, .window = 5, .threads = 1});
  std::vector<std::int32_t> tokens(8),
      cu_seqlens(static_cast<std::size_t>(packing.most_segments() + 1));
  std::uint64_t padding = 0;
  for (std::uint64_t sequence = 0; sequence < packing.size(); ++sequence) {
    try {
      const PackedBatch batch = packing.fill(
          std::span(&sequence, 1), {.tokens = tokens, .targets = {}, .cu_seqlens = cu_seqlens});
      require(cu_seqlens[0] == 0 && cu_seqlens.back() == 8, "segments are the sequence");
      require(std::is_sorted(cu_seqlens.begin(), cu_seqlens.end()), "segments are in order");
      padding += static_cast<std::uint64_t>(batch.padding);
    } catch (const StoreError& error) {
      require(error.sample().has_value(), "a wrong token is named with its document");
      return;
    }
  }
  require(packing.size() * 8 - padding + packing.left_out() == file.tokens(),
          "each token is in one sequence");
  packing.will_need(std::vector<std::uint64_t>{0, packing.size()});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const int how = data[0];
  try {
    const TokenFile file = opened(how, {reinterpret_cast<const char*>(data) + 1, size - 1});
    require(file.documents() > 0 && file.tokens() > 0, "there is something");
    check_documents(file);
    check_packing(file, how);
  } catch (const StoreError& error) {
    const std::string_view what = error.what();
    require(what.starts_with("TokenFile: ") && what.size() < 1000, "an error says whose it is");
  } catch (const std::invalid_argument& error) {
    require(std::string_view(error.what()).find("too few for a sequence") != std::string::npos,
            "the arguments are right");
  }
  return 0;
}
