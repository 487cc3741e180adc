// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/gds/gds_reader.hpp>
#include <stdexcept>
#include <vector>

#include "cufile_batch.hpp"
#include "registered_file.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {

using Each = penstock::detail::FunctionRef<void(const GdsOutcome&)>;
using Requests = std::span<const GdsRequest>;

struct GdsReader::State {
  explicit State(const GdsReaderOptions& wanted) : options(wanted) {
    if (options.depth < 1 || options.depth > 4096)
      throw std::invalid_argument("GdsReader: a depth of " + std::to_string(options.depth) +
                                  ": set GdsReaderOptions::depth to 1 to 4096");
    if (!options.use_batches) refuse_batches("GdsReaderOptions::use_batches is false");
  }

  void read(Requests requests, const Each& each) {
    check(requests);
    const Reading reading(*this);
    for (std::size_t next = 0; next < requests.size();)
      if (has_batch(*requests[next].file)) {
        const std::size_t count = std::min(batch->depth(), requests.size() - next);
        together(requests, next, next + count, each);
        next += count;
      } else {
        alone(requests, next++, each);
      }
  }

  const GdsReaderOptions options;
  std::optional<CufileBatch> batch;
  std::string why_no_batches;
  GdsReaderStats stats;

 private:
  /// A call of read(). At its end nothing is in flight, also after an exception.
  struct Reading {
    explicit Reading(State& used) : state(used) { state.is_reading_ = true; }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading() {
      if (state.batch) state.batch->wait_for_all();
      state.is_reading_ = false;
    }
    State& state;
    const CaptureModeGuard capture_mode;
  };

  void check(Requests requests) {
    if (is_reading_) throw std::logic_error("GdsReader: it is called while it reads");
    for (std::size_t k = 0; k < requests.size(); ++k)
      if (requests[k].file == nullptr)
        throw std::invalid_argument("GdsReader: request " + std::to_string(k) + " has no file");
    for (const GdsRequest& request : requests) {
      request.file->registered().require_own();
      if (request.file->mode() == GdsMode::compatibility) ++stats.compatible;
    }
    stats.requests += requests.size();
  }

  void refuse_batches(const std::string& why) {
    why_no_batches = why;
    are_batches_refused_ = true;
    batch.reset();
  }
  /// In the compatibility mode (cuFile of CUDA 13.0), batches of several threads, and those of
  /// large reads, were seen never to end.
  static bool may_be_in_batch(const GdsFile& file) { return file.mode() == GdsMode::direct; }
  bool has_batch(const GdsFile& file) {
    if (are_batches_refused_) return false;
    if (!may_be_in_batch(file)) {
      why_no_batches = "cuFile reads in its compatibility mode, where its batches may never end";
      return false;
    }
    why_no_batches.clear();
    if (batch && batch->driver().is_own() && batch->in_flight() == 0) return true;
    try {
      batch.reset();
      batch.emplace(file.registered().driver(), options.depth);
    } catch (const GdsError& error) {
      refuse_batches(error.what());
    }
    return !are_batches_refused_;
  }

  void together(Requests requests, std::size_t first, std::size_t end, const Each& each) {
    in_batch_.clear();
    lost_.clear();
    for (std::size_t k = first; k < end; ++k) {
      const auto& [file, offset, target, bytes] = requests[k];
      const detail::RegisteredFile& known = file->registered();
      const std::size_t available = known.available(offset, bytes);
      if (available == 0 || !may_be_in_batch(*file) ||
          &known.driver().calls() != &batch->driver().calls()) {
        lost_.push_back(k);
      } else {
        batch->set(in_batch_.size(), known.handle(), offset, target, available);
        in_batch_.push_back({k, available});
      }
    }
    if (!in_batch_.empty()) wait_for_batch(each);
    for (const std::size_t k : lost_) alone(requests, k, each);
  }

  void wait_for_batch(const Each& each) {
    ++stats.batches;
    bool is_there = batch->submit(in_batch_.size());
    while (is_there && batch->in_flight() > 0) {
      is_there = batch->wait();
      for (const auto& [i, is_whole] : batch->done()) {
        InBatch& one = in_batch_[i];
        one.is_done = true;
        if (is_whole)
          deliver({.request = one.request, .bytes = one.bytes, .error = nullptr}, each);
        else
          lost_.push_back(one.request);
      }
    }
    if (is_there) return;
    refuse_batches(std::string(batch->why_not()));
    for (const InBatch& one : in_batch_)
      if (!one.is_done) lost_.push_back(one.request);
  }

  void alone(Requests requests, std::size_t k, const Each& each) {
    ++stats.alone;
    GdsOutcome outcome{.request = k, .bytes = 0, .error = nullptr};
    const auto& [file, offset, target, bytes] = requests[k];
    try {
      outcome.bytes = file->read(offset, target, bytes);
    } catch (const GdsError&) {
      outcome.error = std::current_exception();
    }
    deliver(outcome, each);
  }

  void deliver(const GdsOutcome& outcome, const Each& each) {
    stats.bytes += outcome.bytes;
    each(outcome);
  }

  struct InBatch {
    std::size_t request, bytes;
    bool is_done = false;
  };
  std::vector<InBatch> in_batch_;
  std::vector<std::size_t> lost_;  // requests of the batch that are to be read alone
  bool is_reading_ = false, are_batches_refused_ = false;
};

GdsReader::GdsReader(const GdsReaderOptions& options) : state_(std::make_unique<State>(options)) {}
GdsReader::GdsReader(GdsReader&&) noexcept = default;
GdsReader& GdsReader::operator=(GdsReader&&) noexcept = default;
GdsReader::~GdsReader() = default;

void GdsReader::read(Requests requests, Each each) {
  state_->read(requests, each);
}
GdsReaderStats GdsReader::stats() const noexcept {
  return state_->stats;
}
const std::string& GdsReader::why_no_batches() const noexcept {
  return state_->why_no_batches;
}

}  // namespace penstock::gds
