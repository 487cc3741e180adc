// SPDX-License-Identifier: Apache-2.0

// docs/recipes/ragged-data.md: pictures with different numbers of boxes. The device counts the
// boxes of each picture and adds up their areas.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <penstock/penstock.hpp>
#include <vector>

namespace {

constexpr std::uint64_t kPictures = 1000;
constexpr std::int64_t kBatch = 50, kMostBoxes = 20;

struct Box {
  float left, top, width, height;
};

struct Pictures {
  penstock::Tensor<std::uint64_t, 1> number;  // picture
  penstock::Ragged<Box> boxes;                // picture x its boxes
};

/// Stands for a file of annotations. Every 21st picture has none.
std::vector<Box> boxes_of(std::uint64_t picture) {
  std::vector<Box> boxes(picture % (kMostBoxes + 1));
  for (std::size_t i = 0; i < boxes.size(); ++i)
    boxes[i] = {0, 0, static_cast<float>(i + 1), static_cast<float>(picture % 7)};
  return boxes;
}

struct Area {
  Pictures batch;
  float* areas;

  __host__ __device__ void operator()(std::int64_t row) const {
    float area = 0;
    const Box* boxes = batch.boxes.begin(row);
    for (std::int64_t i = 0; i < batch.boxes.length(row); ++i)
      area += boxes[i].width * boxes[i].height;
    areas[batch.number(row)] = area;
  }
};

/// The areas of all pictures, with room for `capacity` boxes in a batch.
std::vector<float> areas(std::int64_t capacity) {
  const auto layout = penstock::Layout<Pictures>{kBatch}
                          .field(&Pictures::number, {})
                          .field(&Pictures::boxes, penstock::Capacity{capacity});
  const auto source = penstock::per_sample([](const penstock::Sample& sample, Pictures& batch) {
    batch.number(sample.row) = sample.index;
    batch.boxes.assign(sample.row, boxes_of(sample.index));  // once for each row, in any order
  });
  penstock::Prefetcher<Pictures> prefetcher{layout, {.samples = kPictures}, source, {.workers = 2}};

  const penstock::Stream stream;
  std::vector<float> result(kPictures);
  void* memory = nullptr;
  cudaMalloc(&memory, kPictures * sizeof(float));
  const std::unique_ptr<void, decltype([](void* at) { cudaFree(at); })> owner(memory);
  while (const auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), batch->boxes.size(),
                       Area{*batch, static_cast<float*>(memory)});
  cudaMemcpyAsync(result.data(), memory, kPictures * sizeof(float), cudaMemcpyDeviceToHost,
                  stream.get());
  stream.synchronize();
  return result;
}

}  // namespace

int main() {
  const std::vector<float> found = areas(kBatch * kMostBoxes);
  for (std::uint64_t picture = 0; picture < kPictures; ++picture) {
    float expected = 0;
    for (const Box& box : boxes_of(picture)) expected += box.width * box.height;
    if (found[picture] != expected) {
      std::fprintf(stderr, "ragged_data: the areas of picture %d are wrong\n",
                   static_cast<int>(picture));
      return 1;
    }
  }
  try {  // Room for 9 boxes a picture: the mean is 10.
    areas(kBatch * 9);
    std::fputs("ragged_data: boxes for which there is no room were lost\n", stderr);
    return 1;
  } catch (const penstock::SourceError& error) {
    std::printf("ragged_data: the areas are right. With too little room: %s\n", error.what());
  }
  return 0;
}
