// SPDX-License-Identifier: Apache-2.0
#pragma once

// PartGroup: the parts that a read waits for.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/remote.hpp>
#include <span>

#include "part.hpp"
#include "transfers.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// As a RemoteError; the service says that the credentials have expired.
class ExpiredError final : public RemoteError {
 public:
  using RemoteError::RemoteError;
};

/// One thread uses it. Its end cancels the parts that are still under way, and waits for them.
class PartGroup final : public PartOwner {
 public:
  PartGroup(Transfers& transfers, std::shared_ptr<const RemoteObject> object)
      : transfers_(transfers), object_(std::move(object)) {}
  ~PartGroup();

  /// Asks for the object's bytes from `offset` on, in parts.
  void ask(std::uint64_t offset, std::span<std::byte> target);
  /// Asks for the first bytes of an object that is not known yet, by a range.
  void open(std::span<std::byte> target);
  /// The same without a range, which ends the connection where the object is larger than `target`.
  /// Where the object has an ETag, it is asked for only if it has another one now.
  void open_whole(std::span<std::byte> target);
  /// Returns when all bytes are there. Throws RemoteError, or ExpiredError, when one part has
  /// failed: no other one writes to its target then.
  void wait();

  // After wait(), of open().
  std::size_t received() const noexcept { return received_; }
  std::uint64_t total() const noexcept { return total_; }
  const std::string& etag() const noexcept { return etag_; }
  /// As Part::checksum.
  const std::optional<std::uint32_t>& checksum() const noexcept { return checksum_; }
  /// The object has the ETag that it had: no bytes have come.
  bool unchanged() const noexcept { return unchanged_; }

  void part_ended(Part& part) noexcept override;

 private:
  enum class Kind : std::uint8_t { range, opening, whole };
  void submit(std::uint64_t offset, std::span<std::byte> target, Kind kind);
  void wait_for_all() noexcept;

  Transfers& transfers_;
  const std::shared_ptr<const RemoteObject> object_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t under_way_ = 0;
  std::optional<Failure> failure_;  // the first one
  std::size_t received_ = 0;
  std::uint64_t total_ = 0;
  std::string etag_;
  std::optional<std::uint32_t> checksum_;
  bool unchanged_ = false;
};

}  // namespace penstock::remote
