// SPDX-License-Identifier: Apache-2.0

#include "picture_source.hpp"

#include <utility>

#include "../../../common/interrupt.hpp"

namespace resnet::classify {

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
  const auto stopped = [&stop] { return stop.stop_requested() || examples::interrupted(); };
  try {
    for (const Input& input : inputs) {
      if (stopped()) return false;
      add(input, batch, notes, stopped);
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
                        const std::function<bool()>& stop) {
  Note note{input, {}, -1};
  try {
    note.label = load(input, stop);
    frame_(picture_, &batch.pixels(notes.rows, 0, 0, 0));
    ++notes.rows;
  } catch (const ImageError& error) {
    note.error = error.what();
  } catch (const cifar10::DataError& error) {
    note.error = error.what();
  } catch (const std::bad_alloc&) {
    note.error = "there is no memory for it";
  }
  // Every worker has a picture: one that was very large does not keep its memory.
  constexpr std::size_t kept = std::size_t{1} << 26;
  if (picture_.rgb.capacity() > kept) picture_ = {};
  notes.images.push_back(std::move(note));
}

/// Into picture_. Returns the label.
std::int32_t PictureSource::load(const Input& input, const std::function<bool()>& stop) {
  if (!input.error.empty()) throw ImageError(input.error);
  if (input.record < 0) {
    decode(read_file(input.path), picture_, limits_, stop);
    return -1;
  }
  const std::vector<std::byte> record = inputs_->record(input);
  picture_.width = cifar10::width;
  picture_.height = cifar10::height;
  picture_.rgb.resize(cifar10::pixel_bytes);
  cifar10::decode(record, picture_.rgb.data());
  return cifar10::label_of(record);
}

}  // namespace resnet::classify
