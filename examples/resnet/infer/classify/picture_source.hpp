// SPDX-License-Identifier: Apache-2.0
#pragma once

// PictureSource: fills batches with pictures, on the prefetcher's workers. A picture that cannot be
// had takes no place in its batch; what became of each is in the Ledger, under the batch's number.
//
//   Ledger ledger;
//   penstock::Prefetcher<Pictures> prefetcher{layout, penstock::Unbounded::indexed(32),
//       penstock::per_worker([&] { return PictureSource(layout, *inputs, framing, ledger); })};
//   while (auto batch = prefetcher.next(stream))
//     const Notes notes = ledger.take(batch.ticket().batch);

#include <penstock/images/crop.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>
#include <penstock/layout.hpp>
#include <penstock/source.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "image_file.hpp"
#include "inputs.hpp"

namespace resnet::classify {

struct Pictures {
  penstock::Tensor<std::uint8_t, 4> pixels;  // picture x height x width x channel
};
penstock::Layout<Pictures> pictures_layout(std::int64_t batch_size, std::int32_t size);

/// What became of one input.
struct Note {
  Input input;
  std::string error;        ///< empty: it has the next row of the batch
  std::int32_t label = -1;  ///< of a record
};

/// Of a batch.
struct Notes {
  std::vector<Note> images;  ///< in the order of the inputs
  std::int64_t rows = 0;     ///< that have no error
  Clock::time_point known;   ///< a worker had the paths
  Clock::time_point decoded;
};

/// From the workers to whoever takes the batches. Any thread may call it; holds what the prefetcher
/// holds.
class Ledger {
 public:
  void put(std::uint64_t batch, Notes notes);
  /// Once for each batch, which has been put.
  Notes take(std::uint64_t batch);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, Notes> notes_;
};

/// A source of penstock's: each worker makes its own (per_worker). Inputs and ledger outlive it.
/// Pictures become what torchvision's Resize and CenterCrop make of them, antialiased.
class PictureSource {
 public:
  PictureSource(const penstock::Layout<Pictures>& layout, Inputs& inputs,
                const penstock::images::ResizeCenterCrop& framing, Ledger& ledger,
                const DecodeLimits& limits = {});

  /// False: there are no more inputs, or it was asked to stop, also within an image: by `stop` or
  /// by an interrupt. Throws what Inputs::take throws; never for an image that cannot be had.
  bool operator()(const penstock::Ticket& ticket, Pictures& batch, const std::stop_token& stop);

 private:
  void add(const Input& input, Pictures& batch, Notes& notes, const std::stop_token& stop);
  std::int32_t load(const Input& input, std::span<std::uint8_t> out, const std::stop_token& stop);
  void load_file(const Input& input, std::span<std::uint8_t> out, const std::stop_token& stop);
  void frame_picture(std::span<std::uint8_t> out);

  penstock::Layout<Pictures> layout_;
  Inputs* inputs_;
  Ledger* ledger_;
  penstock::images::ResizeCenterCrop framing_;
  DecodeLimits limits_;
  penstock::images::JpegDecoder decoder_;
  penstock::images::Resizer resize_;
  Picture picture_;
};

}  // namespace resnet::classify
