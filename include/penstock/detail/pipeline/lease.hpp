// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a lease does: it looks at its batch, and goes back to its owner, whatever that owner copied
// the batch from.

#include <penstock/detail/pipeline/staged_line.hpp>
#include <penstock/detail/process.hpp>
#include <penstock/prefetcher.hpp>
#include <utility>

namespace penstock::detail {

/// Where the end of a lease goes.
template <class Batch>
class LeaseOwner {
 public:
  virtual ~LeaseOwner() = default;
  virtual void give_back(Staged<Batch>& staged) noexcept = 0;
  virtual bool forked() const noexcept = 0;
};

}  // namespace penstock::detail

namespace penstock {

template <class Batch>
const Batch& Lease<Batch>::operator*() const noexcept {
  return staged_->batch;
}

template <class Batch>
const Batch* Lease<Batch>::operator->() const noexcept {
  return &staged_->batch;
}

template <class Batch>
const Ticket& Lease<Batch>::ticket() const noexcept {
  return staged_->ticket;
}

template <class Batch>
std::size_t Lease<Batch>::slot() const noexcept {
  return staged_->slot.index();
}

template <class Batch>
void Lease<Batch>::also_used_on(cudaStream_t stream) {
  detail::check(cudaStreamWaitEvent(stream, staged_->copied, cudaEventWaitDefault),
                "cudaStreamWaitEvent");
  staged_->consumers.push_back(stream);
}

template <class Batch>
void Lease<Batch>::release() noexcept {
  if (staged_ == nullptr) return;
  auto owner = std::move(owner_);
  detail::Staged<Batch>& staged = *std::exchange(staged_, nullptr);
  if (owner->forked())
    detail::leak(std::move(owner));
  else
    owner->give_back(staged);
}

}  // namespace penstock
