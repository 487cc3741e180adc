// SPDX-License-Identifier: Apache-2.0

#include "cufile_batch.hpp"

#include <algorithm>
#include <cstdint>
#include <penstock/gds/gds_error.hpp>
#include <thread>

namespace penstock::inline PENSTOCK_ABI::gds {

CufileBatch::CufileBatch(const CufileDriver& driver, std::size_t depth) : driver_(driver) {
  if (const unsigned most = driver.properties().most_in_batch; most > 0)
    depth = std::min<std::size_t>(depth, most);
  const cufile::Status status =
      driver_.calls().cuFileBatchIOSetUp(&handle_, static_cast<unsigned>(depth));
  if (status.error != 0) throw GdsError("cuFileBatchIOSetUp: " + cufile_error(status));
  requests_.resize(depth);
  events_.resize(depth);
  is_in_flight_.resize(depth);
  done_.reserve(depth);
}

CufileBatch::~CufileBatch() {
  if (!driver_.is_own()) return;
  wait_for_all();
  destroy();
}

void CufileBatch::set(std::size_t i, cufile::Handle file, std::size_t offset, void* target,
                      std::size_t bytes) {
  cufile::BatchRequest& request = requests_[i];
  request = {};
  request.mode = cufile::kBatchMode;
  request.batch.memory = target;
  request.batch.file_offset = static_cast<::off_t>(offset);
  request.batch.bytes = bytes;
  request.file = file;
  request.cookie = reinterpret_cast<void*>(static_cast<std::uintptr_t>(i));
}

bool CufileBatch::submit(std::size_t count) {
  in_flight_ = count;
  std::fill_n(is_in_flight_.begin(), count, char{1});
  const cufile::Status status = driver_.calls().cuFileBatchIOSubmit(
      handle_, static_cast<unsigned>(count), requests_.data(), 0);
  return status.error == 0 || give_up("cuFileBatchIOSubmit", status);
}

bool CufileBatch::wait() {
  done_.clear();
  while (in_flight_ > 0 && done_.empty()) {
    auto count = static_cast<unsigned>(in_flight_);
    const cufile::Status status =
        driver_.calls().cuFileBatchIOGetStatus(handle_, 1, &count, events_.data(), nullptr);
    if (status.error != 0) return give_up("cuFileBatchIOGetStatus", status);
    for (std::size_t k = 0; k < std::min<std::size_t>(count, events_.size()); ++k) {
      const cufile::BatchEvent& event = events_[k];
      const auto i = reinterpret_cast<std::uintptr_t>(event.cookie);
      if ((event.status & cufile::kPending) != 0) continue;
      if (i >= is_in_flight_.size() || is_in_flight_[i] == 0) continue;
      is_in_flight_[i] = 0;
      --in_flight_;
      const bool is_whole =
          event.status == cufile::kComplete && event.result == requests_[i].batch.bytes;
      done_.push_back({i, is_whole});
    }
    if (done_.empty()) std::this_thread::yield();
  }
  return true;
}

void CufileBatch::wait_for_all() noexcept {
  while (in_flight_ > 0 && wait()) {
  }
}

bool CufileBatch::give_up(const char* call, cufile::Status status) {
  why_not_ = std::string(call) + ": " + cufile_error(status);
  destroy();
  return false;
}

void CufileBatch::destroy() noexcept {
  if (handle_ == nullptr) return;
  if (in_flight_ > 0) driver_.calls().cuFileBatchIOCancel(handle_);
  driver_.calls().cuFileBatchIODestroy(handle_);
  handle_ = nullptr;
  in_flight_ = 0;
}

}  // namespace penstock::gds
