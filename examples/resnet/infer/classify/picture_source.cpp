// SPDX-License-Identifier: Apache-2.0

#include "picture_source.hpp"

#include <new>
#include <utility>

#include "programs/interrupt.hpp"

namespace resnet::classify {

using penstock::images::JpegDecoder;

namespace {

/// Decoded whole, and not scaled down before it is resized: as Pillow and torchvision do.
penstock::images::JpegOptions jpeg_options(const DecodeLimits& limits) {
  return {.scaled_dct = false,
          .max_pixels = limits.pixels,
          .max_seconds = limits.seconds,
          .interrupted = penstock::programs::interrupted};
}

}  // namespace

PictureSource::PictureSource(const penstock::Layout<Pictures>& layout, Inputs& inputs,
                             const penstock::images::ResizeCenterCrop& framing, Ledger& ledger,
                             const DecodeLimits& limits)
    : layout_(layout),
      inputs_(&inputs),
      ledger_(&ledger),
      framing_(framing),
      limits_(limits),
      decoder_(jpeg_options(limits)) {}

penstock::Layout<Pictures> pictures_layout(std::int64_t batch_size, std::int32_t size) {
  return penstock::Layout<Pictures>{batch_size}.field(&Pictures::pixels,
                                                      {size, size, cifar10::channels});
}

void Ledger::put(std::uint64_t batch, Notes notes) {
  const std::lock_guard lock(mutex_);
  notes_.emplace(batch, std::move(notes));
}

Notes Ledger::take(std::uint64_t batch) {
  const std::lock_guard lock(mutex_);
  return std::move(notes_.extract(batch).mapped());
}

bool PictureSource::operator()(const penstock::Ticket& ticket, Pictures& batch,
                               const std::stop_token& stop) {
  const std::vector<Input> inputs = inputs_->take(ticket.batch, ticket.samples.size(), stop);
  if (inputs.empty()) return false;
  Notes notes;
  notes.known = Clock::now();
  try {
    for (const Input& input : inputs) {
      if (stop.stop_requested() || penstock::programs::interrupted()) return false;
      add(input, batch, notes, stop);
    }
  } catch (const DecodeStopped&) {
    return false;
  }
  layout_.resize(batch, notes.rows);
  notes.decoded = Clock::now();
  ledger_->put(ticket.batch, std::move(notes));
  return true;
}

void PictureSource::add(const Input& input, Pictures& batch, Notes& notes,
                        const std::stop_token& stop) {
  Note note{input, {}, -1};
  try {
    const std::int64_t bytes = 3 * std::int64_t{framing_.output.height} * framing_.output.width;
    note.label =
        load(input, {&batch.pixels(notes.rows, 0, 0, 0), static_cast<std::size_t>(bytes)}, stop);
    ++notes.rows;
  } catch (const ImageError& error) {
    note.error = error.what();
  } catch (const cifar10::DataError& error) {
    note.error = error.what();
  } catch (const std::bad_alloc&) {
    note.error = "there is no memory for it";
  }
  notes.images.push_back(std::move(note));
}

/// Returns the label.
std::int32_t PictureSource::load(const Input& input, std::span<std::uint8_t> out,
                                 const std::stop_token& stop) {
  if (!input.error.empty()) throw ImageError(input.error);
  if (input.record < 0) {
    load_file(input, out, stop);
    return -1;
  }
  const std::vector<std::byte> record = inputs_->record(input);
  picture_.width = cifar10::width;
  picture_.height = cifar10::height;
  picture_.rgb.resize(cifar10::pixel_bytes);
  cifar10::decode(record, picture_.rgb.data());
  frame_picture(out);
  return cifar10::label_of(record);
}

void PictureSource::load_file(const Input& input, std::span<std::uint8_t> out,
                              const std::stop_token& stop) {
  const std::vector<std::byte> file = read_file(input.path);
  if (file.empty()) throw ImageError("the file is empty");
  // Every worker has memory: what a very large picture took is not kept.
  constexpr std::int64_t kept_pixels = std::int64_t{1} << 24;
  switch (kind_of(file)) {
    case ImageKind::jpeg: {
      const penstock::images::ImageSize size = decoder_.open(file);
      const bool large = std::int64_t{size.height} * size.width > kept_pixels;
      if (large) {
        JpegDecoder decoder(jpeg_options(limits_));
        decoder.open(file);
        resize_(decoder.decode(framing_(size), stop), out);
      } else {
        resize_(decoder_.decode(framing_(size), stop), out);
      }
      return;
    }
    case ImageKind::png:
      decode_png(file, picture_, limits_,
                 [&] { return stop.stop_requested() || penstock::programs::interrupted(); });
      frame_picture(out);
      if (std::ssize(picture_.rgb) > 3 * kept_pixels) picture_ = {};
      return;
    case ImageKind::neither:
      throw ImageError("neither JPEG nor PNG");
  }
}

void PictureSource::frame_picture(std::span<std::uint8_t> out) {
  const penstock::images::ImageSize size{picture_.height, picture_.width};
  resize_({{picture_.rgb.data(), size, std::int64_t{3} * size.width}, framing_(size)}, out);
}

}  // namespace resnet::classify
