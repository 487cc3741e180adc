// SPDX-License-Identifier: Apache-2.0
#pragma once

// Part: a range of an object that one request brings, and what became of it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/remote.hpp>
#include <span>
#include <string>

#include "clock.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

class Attempt;
struct Part;

/// What is known of an object since it was opened. Does not change.
struct RemoteObject {
  std::string url;
  Authorizer authorizer;  ///< signs its requests; none: they are not signed
  std::string name;       ///< of the URL, for messages
  std::uint64_t size = 0;
  bool at_s3 = false;  ///< a header asks for its checksum
  /// Empty: the server has sent none. Of an object that is asked for whole: what we have is of this
  /// one, and need not come again.
  std::string etag;
};

/// Why a part was not brought.
struct Failure {
  std::string text;
  int status = 0;  ///< of the last answer; 0: there was none
  int attempts = 0;
  bool expired = false;  ///< the service says that the credentials have expired
};

/// Who waits for a part.
class PartOwner {
 public:
  PartOwner() = default;
  PartOwner(const PartOwner&) = delete;
  PartOwner& operator=(const PartOwner&) = delete;

  /// The part has ended: nothing writes to its target any more. It is gone when this returns. Is
  /// called by a thread of the client.
  virtual void part_ended(Part& part) noexcept = 0;

 protected:
  ~PartOwner() = default;
};

/// Transfers keeps parts, and lends them to who asks for bytes.
struct Part {
  // Set by who asks.
  std::shared_ptr<const RemoteObject> object;
  std::uint64_t offset = 0;
  std::span<std::byte> target;
  PartOwner* owner = nullptr;
  const std::atomic<bool>* cancelled = nullptr;  ///< true: it should end soon
  Time due{};                                    ///< when it is needed; the epoch: nobody knows
  bool opening = false;  ///< the first request for the object: size and ETag are not known
  bool whole = false;    ///< opening, without a range: the object from its first byte on
  bool ahead = false;    ///< nobody waits for it yet

  // Of the thread that works on it.
  std::size_t received = 0;  ///< of the target's bytes, from the first one on
  int attempts = 0;
  Time begun{};     ///< of the first attempt
  Time retry_at{};  ///< while it waits for the next attempt
  Attempt* primary = nullptr;
  Attempt* hedge = nullptr;
  bool hedged = false;            ///< once in each attempt
  bool fresh_connection = false;  ///< for the next attempt
  int redirects = 0;
  std::string redirected;  ///< where a signed request was sent on to; empty: object->url

  // The result.
  std::optional<Failure> failure;
  std::string etag;         ///< of an opening request
  std::uint64_t total = 0;  ///< the object's size, of an opening request
  /// Of the whole object, where the answer to an opening request said it and did not bring all.
  std::optional<std::uint32_t> checksum;
  bool unchanged = false;  ///< the object has the ETag that we know: no bytes have come

  // Of the list that it is in.
  Part* before = nullptr;
  Part* after = nullptr;
  bool queued = false;  ///< in the queue of Transfers
};

/// A list of parts. A part is in one list at a time.
class PartList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  Part* first() const noexcept { return first_; }

  void push_back(Part& part) noexcept {
    part.before = last_;
    part.after = nullptr;
    (last_ == nullptr ? first_ : last_->after) = &part;
    last_ = &part;
  }
  void push_front(Part& part) noexcept {
    part.before = nullptr;
    part.after = first_;
    (first_ == nullptr ? last_ : first_->before) = &part;
    first_ = &part;
  }
  void remove(Part& part) noexcept {
    (part.before == nullptr ? first_ : part.before->after) = part.after;
    (part.after == nullptr ? last_ : part.after->before) = part.before;
    part.before = part.after = nullptr;
  }
  Part* pop_front() noexcept {
    Part* const part = first_;
    if (part != nullptr) remove(*part);
    return part;
  }

 private:
  Part* first_ = nullptr;
  Part* last_ = nullptr;
};

}  // namespace penstock::remote
