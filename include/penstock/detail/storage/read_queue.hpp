// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <penstock/detail/storage/read_engine.hpp>
#include <penstock/read_queue.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

PENSTOCK_INLINE ReadQueue::ReadQueue(const ReadQueueOptions& options)
    : engine_(std::make_unique<detail::ReadEngine>(options)) {}
PENSTOCK_INLINE ReadQueue::ReadQueue(ReadQueue&&) noexcept = default;
PENSTOCK_INLINE ReadQueue& ReadQueue::operator=(ReadQueue&&) noexcept = default;
PENSTOCK_INLINE ReadQueue::~ReadQueue() = default;

PENSTOCK_INLINE void ReadQueue::read(std::span<const ReadRequest> requests,
                                     detail::FunctionRef<void(const ReadOutcome&)> each) {
  std::vector<detail::WantedBytes>& wanted = engine_->wanted();
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& [file, offset, target] = requests[i];
    if (file == nullptr)
      throw std::invalid_argument("ReadQueue: request " + std::to_string(i) + " has no file");
    largest = std::max(largest, file->size());
    wanted.push_back({file, offset, target.size(), target.data(), i});
  }
  const auto arrived = [&](const detail::WantedBytes& one, std::span<const std::byte>) {
    each({.request = one.key, .bytes = one.bytes, .error = nullptr});
  };
  const auto missed = [&](const detail::WantedBytes& one) {
    ReadOutcome outcome{.request = one.key, .bytes = 0, .error = nullptr};
    try {
      outcome.bytes = one.file->read(one.offset, {one.target, one.bytes});
    } catch (const std::runtime_error&) {
      outcome.error = std::current_exception();
    }
    each(outcome);
  };
  engine_->read(largest, arrived, missed);
}

PENSTOCK_INLINE ReadQueueStats ReadQueue::stats() const noexcept {
  return engine_->stats();
}

PENSTOCK_INLINE const std::string& ReadQueue::why_not_io_uring() const noexcept {
  return engine_->why_not();
}

}  // namespace penstock
