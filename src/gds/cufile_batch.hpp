// SPDX-License-Identifier: Apache-2.0
#pragma once

// CufileBatch: a batch of cuFile, which is submitted, waited for until nothing is in flight, and
// submitted again.

#include <cstddef>
#include <penstock/version.hpp>
#include <span>
#include <string>
#include <vector>

#include "cufile_driver.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {

class CufileBatch {
 public:
  /// A read that is done.
  struct Done {
    std::size_t i = 0;  ///< its number in the batch
    bool is_whole = false;
  };

  /// Of at most `depth` reads, or of as many as cuFile allows. Throws GdsError.
  CufileBatch(const CufileDriver& driver, std::size_t depth);
  CufileBatch(const CufileBatch&) = delete;
  CufileBatch& operator=(const CufileBatch&) = delete;
  /// Waits until nothing is in flight.
  ~CufileBatch();

  std::size_t depth() const noexcept { return requests_.size(); }
  std::size_t in_flight() const noexcept { return in_flight_; }
  const CufileDriver& driver() const noexcept { return driver_; }

  /// Sets read `i` < depth() of the next batch.
  void set(std::size_t i, cufile::Handle file, std::size_t offset, void* target, std::size_t bytes);
  /// Submits the first `count` reads; nothing may be in flight. See below for false.
  bool submit(std::size_t count);
  /// Waits until at least one of the reads in flight is done. See below for false.
  bool wait();
  /// The reads that the last wait() has found done.
  std::span<const Done> done() const noexcept { return done_; }
  /// Waits until nothing is in flight.
  void wait_for_all() noexcept;

  /// Why submit() or wait() has returned false: then nothing is in flight, and the batch may not be
  /// used any more.
  const std::string& why_not() const noexcept { return why_not_; }

 private:
  bool give_up(const char* call, cufile::Status status);
  /// Ends what is in flight.
  void destroy() noexcept;

  const CufileDriver driver_;
  cufile::BatchHandle handle_ = nullptr;
  std::vector<cufile::BatchRequest> requests_;
  std::vector<cufile::BatchEvent> events_;
  std::vector<char> is_in_flight_;  // of each request
  std::vector<Done> done_;
  std::size_t in_flight_ = 0;
  std::string why_not_;
};

}  // namespace penstock::gds
