// SPDX-License-Identifier: Apache-2.0
#pragma once

// Control: the ranks of a job watch each other, and exchange texts, over the connections of their
// meeting. A thread of its own does all of that, so that it goes on whatever the program does:
//
//   a rank that dies        closes its connection
//   a rank that fails       says why before
//   a rank that hangs       says so: it tells where it is, and rank 0 compares
//   a machine that is gone  says nothing any more
//
// Rank 0 tells the others, whose calls then throw RankError with its words. What ends in the middle
// of a call that never returns is ended: the promise is that no process remains.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <penstock/ranks.hpp>
#include <string>
#include <thread>
#include <vector>

#include "connection.hpp"
#include "rendezvous.hpp"

namespace resnet {

class Control {
 public:
  using Clock = std::chrono::steady_clock;

  /// Meets the others, with the secret of the environment: see meet() and JobSecret, which throw
  /// the same. One channel is for Control.
  Control(const penstock::Ranks& ranks, std::chrono::milliseconds timeout, int channels);
  /// Says to the others that this rank is through, or, if an exception is on its way, that it
  /// failed.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int rank() const noexcept { return ranks_.rank; }
  int world_size() const noexcept { return ranks_.world_size; }
  /// The connections of a further channel, as Meeting has them, blocking.
  std::vector<Socket> take_channel(int channel);
  /// Called once by the thread, soon after a rank is lost. Set it before the first step.
  void on_loss(std::function<void()> call);

  // ---- Any thread

  /// Where this rank is: steps by the program, collective calls that began on the device, or, where
  /// the device does not tell that, were queued.
  void count_step();
  void count_collective();
  /// While somebody waits for other ranks: counts up and down.
  void begin_wait();
  void end_wait();

  bool is_lost() const noexcept { return lost_flag_.load(std::memory_order_acquire); }
  void throw_if_lost();
  /// Waits until it is known who is lost; then it is `rank`, for this reason.
  void suspect(int rank, const std::string& why);
  void lose(int rank, const std::string& why);
  void fail(const std::string& why) noexcept;
  std::vector<std::string> all_gather(const std::string& text);

 private:
  /// What ranks say of themselves.
  struct Place {
    std::uint64_t steps = 0, collectives = 0;
    std::uint64_t moves = 0;  ///< of any kind
    bool waits = false;
    bool operator==(const Place&) const = default;
  };
  /// A rank as rank 0 sees it; and rank 0 as the others do.
  struct Peer {
    Connection connection;
    Place place;
    std::chrono::nanoseconds moved{0}, heard{0};  ///< when, by time_
    bool left = false;
    bool readable = true;  ///< it may have said something, also while the ranks met
  };
  struct Loss {
    int rank;
    std::string why;
  };
  struct Letter {
    int to;  ///< -1: all
    Kind kind;
    std::string text;
  };

  void run();
  void look_once();
  void advance_time();
  void send_letters();
  void hear(int rank);
  void take(int rank, const Message& message);
  void beat();
  void judge();
  void judge_silence();
  void judge_waits();
  void lose_who_left(int rank);
  void lose_who_stands(const Peer& peer, const Peer& ahead);
  std::string described(int rank) const;
  void gather_if_complete();
  void end_if_stuck();
  bool goodbye_is_over();

  Place place() const;
  void post(int to, Kind kind, const std::string& text);
  void set_lost(int rank, const std::string& why, bool tell);
  void wake();

  const penstock::Ranks ranks_;
  const std::chrono::milliseconds timeout_, beat_, grace_;
  const int exceptions_;
  Meeting meeting_;
  Socket wake_;

  // The thread's alone.
  std::vector<Peer> peers_;           ///< rank 0: by rank, its own one too; else rank 0
  std::chrono::nanoseconds time_{0};  ///< that this process ran: not when it was stopped
  Clock::time_point last_look_, next_beat_;
  std::optional<std::chrono::nanoseconds> grace_began_;
  bool told_loss_ = false, said_goodbye_ = false;
  std::optional<Clock::time_point> goodbye_until_;
  Place last_own_;
  std::chrono::nanoseconds own_moved_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Place own_;
  int waits_ = 0;
  std::deque<Letter> letters_;
  std::size_t unsent_ = 0;  ///< letters that are posted and not on their way
  std::optional<Loss> lost_;
  std::atomic<bool> lost_flag_{false};
  bool seen_ = false;  ///< the program knows that a rank is lost
  bool ending_ = false, gathering_ = false;
  std::function<void()> on_loss_;
  std::uint64_t gathers_ = 0;  ///< whose result is in gathered_
  std::vector<std::optional<std::string>> said_;
  std::vector<std::string> gathered_;

  std::thread thread_;
};

/// begin_wait, and end_wait at the end of the scope.
class Waiting {
 public:
  explicit Waiting(Control& control) : control_(control) { control_.begin_wait(); }
  ~Waiting() { control_.end_wait(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Control& control_;
};

}  // namespace resnet
