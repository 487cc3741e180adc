// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attempt: one request for a part, and what its answer is worth.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/remote.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer_head.hpp"
#include "buffers.hpp"
#include "clock.hpp"
#include "curl.hpp"
#include "part.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// How an attempt has ended.
struct Outcome {
  enum class Kind : std::uint8_t { whole, again, failed, redirected };
  Kind kind = Kind::failed;
  std::string why{};  ///< unless whole
  int status = 0;
  bool throttled = false;               ///< 429 or 503
  bool connection_lost = false;         ///< again, on another connection
  bool expired = false;                 ///< the credentials have expired
  bool damaged = false;                 ///< the object has another checksum
  std::chrono::seconds retry_after{0};  ///< 0: the server has not said
};

/// Is used again for other parts. All members are called by one thread.
class Attempt {
 public:
  /// `options` must outlive this.
  explicit Attempt(const Options& options);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  /// Prepares a request for the part's bytes from `from` on, counted in its target, that are
  /// received in `into`. Throws what the authorizer throws, and std::bad_alloc.
  void prepare(Part& part, std::size_t from, std::span<std::byte> into, bool new_connection,
               Time now);
  /// The transfer has ended as libcurl says. It is no longer in a Multi.
  Outcome judge(CURLcode code);

  CURL* easy() const noexcept { return easy_.get(); }
  Part& part() const noexcept { return *part_; }
  std::size_t from() const noexcept { return from_; }
  std::size_t received() const noexcept { return received_; }
  std::span<const std::byte> bytes() const noexcept { return into_.first(received_); }
  Time started() const noexcept { return started_; }
  const AnswerHead& head() const noexcept { return head_; }
  /// The object's size, by an answer that is whole.
  std::uint64_t total() const noexcept { return total_; }
  /// Whether an answer that is whole had the checksum that its head says.
  bool verified() const noexcept { return sums_; }
  /// An answer that is whole says that the object is the one that we know.
  bool unchanged() const noexcept { return head_.status() == 304; }

  /// Whether it has received too little for `stall`: asked at next_look() at the earliest.
  bool stalled(Time now, std::chrono::milliseconds stall) noexcept;
  Time next_look(std::chrono::milliseconds stall) const noexcept { return looked_ + stall; }

  Buffer buffer;    ///< of a hedge, which may not write to the part's target
  Time hedge_at{};  ///< when another request is made; the epoch: never
  bool active = false;
  std::uint64_t nvtx_range = 0;  ///< of RequestRanges

 private:
  /// What is wrong with an answer.
  enum class Fault : std::uint8_t {
    none,
    not_seen,     // no byte of a body so far
    status,       // it is an error
    no_ranges,    // all bytes in place of a range
    no_length,    // all bytes, and nobody knows how many
    wrong_range,  // or none
    changed,      // another object than the one that was opened
    too_long,     // more bytes than were asked for
  };

  void make_handle();
  static std::size_t take_header(char* bytes, std::size_t size, std::size_t count,
                                 void* self) noexcept;
  static std::size_t take_bytes(char* bytes, std::size_t size, std::size_t count,
                                void* self) noexcept;
  std::size_t take(const char* bytes, std::size_t count) noexcept;
  Fault look_at_head() noexcept;
  bool has_enough() const noexcept;
  bool asks_for_changes() const noexcept;
  std::string what_changed() const;
  Outcome refusal();
  Outcome end_of_answer(CURLcode code);

  const Options& options_;
  Easy easy_;
  std::array<char, CURL_ERROR_SIZE> error_{};
  HttpRequest request_;
  std::vector<curl_slist> header_list_;
  Part* part_ = nullptr;
  std::size_t from_ = 0;
  std::span<std::byte> into_;
  std::size_t expected_ = 0;  // bytes of the body, when its head has been seen
  std::size_t received_ = 0, discarded_ = 0;
  bool sums_ = false;       // All of the object will come, and the head says its checksum.
  std::uint32_t sum_ = 0;   // of what was received
  std::string error_body_;  // the first bytes of an error's
  std::uint64_t total_ = 0;
  AnswerHead head_;
  Fault fault_ = Fault::not_seen;
  Time started_{}, looked_{};
  std::size_t received_then_ = 0;  // at looked_
};

}  // namespace penstock::remote
