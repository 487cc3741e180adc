// SPDX-License-Identifier: Apache-2.0
#include "control.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "communicator.hpp"

namespace resnet {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kToSayGoodbye{2000};

/// Ten in a time-out at least. Rank 0 hears 500 beats a second at most, of however many ranks.
milliseconds time_between_beats(milliseconds timeout, int world_size) {
  return std::clamp(timeout / 10, milliseconds(10), milliseconds(std::max(500, 2 * world_size)));
}

std::string packed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    const auto size = static_cast<std::uint64_t>(text.size());
    all.append(reinterpret_cast<const char*>(&size), sizeof size) += text;
  }
  return all;
}

std::vector<std::string> unpacked(const std::string& all) {
  std::vector<std::string> texts;
  for (std::size_t place = 0; place + sizeof(std::uint64_t) <= all.size();) {
    std::uint64_t size = 0;
    std::memcpy(&size, all.data() + place, sizeof size);
    place += sizeof size;
    texts.push_back(all.substr(place, size));
    place += texts.back().size();
  }
  return texts;
}

}  // namespace

// ---- The program's side

Control::Control(const penstock::Ranks& ranks, milliseconds timeout, int channels)
    : ranks_(ranks),
      timeout_(timeout),
      beat_(time_between_beats(timeout, ranks.world_size)),
      grace_(std::clamp(timeout / 2, milliseconds(1000), milliseconds(30'000))),
      exceptions_(std::uncaught_exceptions()),
      meeting_(meet(ranks, JobSecret::from_environment(), timeout, channels)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      last_look_(Clock::now()),
      next_beat_(last_look_) {
  for (Connection& connection : meeting_.connections[0])
    peers_.emplace_back().connection = std::move(connection);
  said_.resize(static_cast<std::size_t>(world_size()));
  thread_ = std::thread([this] { run(); });
}

Control::~Control() {
  if (std::uncaught_exceptions() > exceptions_) fail("an exception ended it");
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    if (!lost_) post(rank() == 0 ? -1 : 0, Kind::bye, "");
  }
  wake();
  thread_.join();
}

std::vector<Socket> Control::take_channel(int channel) {
  std::vector<Socket> sockets;
  for (Connection& connection : meeting_.connections[static_cast<std::size_t>(channel)]) {
    sockets.push_back(connection.take());
    if (sockets.back()) sockets.back().set_blocking(true);
  }
  return sockets;
}

void Control::on_loss(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_loss_ = std::move(call);
}

void Control::count_step() {
  const std::lock_guard lock(mutex_);
  ++own_.steps;
  ++own_.moves;
}

void Control::count_collective() {
  const std::lock_guard lock(mutex_);
  ++own_.collectives;
  ++own_.moves;
}

void Control::begin_wait() {
  const std::lock_guard lock(mutex_);
  ++waits_;
  ++own_.moves;
}

void Control::end_wait() {
  const std::lock_guard lock(mutex_);
  --waits_;
  ++own_.moves;
}

void Control::throw_if_lost() {
  if (!is_lost()) return;
  const std::lock_guard lock(mutex_);
  seen_ = true;
  throw RankError(lost_->rank, lost_->why);
}

void Control::suspect(int rank, const std::string& why) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, milliseconds(1000), [this] { return lost_.has_value(); });
  if (!lost_) set_lost(rank, why, true);
}

void Control::lose(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  set_lost(rank, why, true);
}

void Control::fail(const std::string& why) noexcept try {
  std::unique_lock lock(mutex_);
  seen_ = true;
  if (lost_) return;
  set_lost(rank(), "rank " + std::to_string(rank()) + " failed: " + why, true);
  changed_.wait_for(lock, kToSayGoodbye, [this] { return unsent_ == 0; });
} catch (const std::exception&) {
  return;  // The others see the connection close.
}

std::vector<std::string> Control::all_gather(const std::string& text) {
  throw_if_lost();
  const Waiting waiting(*this);
  std::unique_lock lock(mutex_);
  if (text.size() > Connection::kLong / static_cast<std::size_t>(world_size()) - 8)
    throw std::length_error("all_gather: a text of " + std::to_string(text.size()) + " bytes");
  const std::uint64_t number = gathers_ + 1;
  gathering_ = true;
  ++own_.steps;  // as every rank does
  if (rank() == 0) {
    said_[0] = text;
    wake();
  } else {
    post(0, Kind::gather, text);
  }
  changed_.wait(lock, [&] { return gathers_ == number || lost_; });
  gathering_ = false;
  if (gathers_ == number) return gathered_;
  lock.unlock();
  throw_if_lost();
  return {};
}

/// The lock is held.
void Control::post(int to, Kind kind, const std::string& text) {
  letters_.push_back({to, kind, text});
  ++unsent_;
  wake();
}

void Control::wake() {
  const std::uint64_t one = 1;
  // It cannot fail before 2^64 calls that nobody has seen.
  static_cast<void>(!::write(wake_.descriptor(), &one, sizeof one));
}

/// The lock is held. The first loss counts: the others follow from it.
void Control::set_lost(int rank, const std::string& why, bool tell) {
  if (lost_) return;
  lost_ = Loss{rank, why};
  lost_flag_.store(true, std::memory_order_release);
  // Rank 0 tells the others; the others tell rank 0.
  if (tell) post(ranks_.rank == 0 ? -1 : 0, Kind::lost, std::to_string(rank) + ' ' + why);
  changed_.notify_all();
  wake();
}

Control::Place Control::place() const {
  const std::lock_guard lock(mutex_);
  Place place = own_;
  place.waits = waits_ > 0;
  return place;
}

// ---- The thread's side

void Control::run() {
  while (true) {
    look_once();
    advance_time();
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
      if (std::exchange(peers_[static_cast<std::size_t>(rank)].readable, false)) hear(rank);
    if (rank() == 0) gather_if_complete();
    if (Clock::now() >= next_beat_) {
      next_beat_ = Clock::now() + beat_;
      beat();
      judge();
    }
    send_letters();
    end_if_stuck();
    if (goodbye_is_over()) return;
  }
}

/// Waits for something to do.
void Control::look_once() {
  std::vector<pollfd> wanted{{wake_.descriptor(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (!peer.connection) continue;
    const bool more = peer.connection.has_more_to_send();
    wanted.push_back(
        {peer.connection.descriptor(), static_cast<short>(more ? POLLIN | POLLOUT : POLLIN), 0});
  }
  const auto wait = std::chrono::ceil<milliseconds>(next_beat_ - Clock::now());
  ::poll(wanted.data(), wanted.size(), static_cast<int>(std::max(wait, milliseconds(0)).count()));
  std::uint64_t count = 0;
  static_cast<void>(!::read(wake_.descriptor(), &count, sizeof count));
  std::size_t at = 1;
  for (Peer& peer : peers_)
    if (peer.connection && wanted[at++].revents != 0) peer.readable = true;
}

void Control::advance_time() {
  const auto now = Clock::now();
  // The rest of it this process was stopped, and heard nothing.
  time_ += std::min<nanoseconds>(now - last_look_, 4 * beat_);
  last_look_ = now;
}

void Control::send_letters() {
  std::deque<Letter> letters;
  {
    const std::lock_guard lock(mutex_);
    letters.swap(letters_);
  }
  for (const Letter& letter : letters)
    for (std::size_t to = 0; to < peers_.size(); ++to)
      if (peers_[to].connection && (letter.to < 0 || static_cast<std::size_t>(letter.to) == to))
        peers_[to].connection.post(letter.kind, letter.text);
  bool all = true;
  for (Peer& peer : peers_) {
    if (!peer.connection) continue;
    peer.connection.flush();  // Where it is broken, hear() finds out.
    all = all && !peer.connection.has_more_to_send();
  }
  const std::lock_guard lock(mutex_);
  if (!all || !letters_.empty() || unsent_ == 0) return;
  unsent_ = 0;
  changed_.notify_all();
}

void Control::hear(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.connection) return;
  const bool open = peer.connection.receive();
  while (const auto message = peer.connection.next()) take(rank, *message);
  if (open && !peer.connection.garbage()) return;
  peer.connection = {};
  const std::lock_guard lock(mutex_);
  if (!peer.left && !ending_)
    set_lost(rank, described(rank) + " ended without a word: it was killed, or it crashed", true);
  peer.left = true;
}

/// On a rank that is not 0, `rank` is 0: it speaks for all.
void Control::take(int rank, const Message& message) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.heard = time_;
  const auto text_behind_number = [&] {
    const std::size_t space = message.text.find(' ');
    return space == std::string::npos ? std::string() : message.text.substr(space + 1);
  };
  const std::unique_lock lock(mutex_);
  if (message.kind == Kind::beat) {
    Place place;
    std::istringstream(message.text) >> place.steps >> place.collectives >> place.moves >>
        place.waits;
    if (!(place == peer.place)) peer.moved = time_;
    peer.place = place;
  } else if (message.kind == Kind::gather) {
    said_[static_cast<std::size_t>(rank)] = message.text;
  } else if (message.kind == Kind::gathered) {
    gathered_ = unpacked(message.text);
    ++gathers_;
    changed_.notify_all();
  } else if (message.kind == Kind::lost) {
    set_lost(std::atoi(message.text.c_str()), text_behind_number(), ranks_.rank == 0);
  } else if (message.kind == Kind::bye) {
    peer.left = true;
  }
}

void Control::beat() {
  const Place place = this->place();
  if (!(place == last_own_)) own_moved_ = time_;
  last_own_ = place;
  if (rank() == 0) {
    Peer& own = peers_[0];
    own.moved = own_moved_;
    own.place = place;
    own.heard = time_;
  }
  std::ostringstream out;
  out << place.steps << ' ' << place.collectives << ' ' << place.moves << ' ' << place.waits;
  for (Peer& peer : peers_)
    if (peer.connection && !peer.connection.has_more_to_send())
      peer.connection.post(Kind::beat, out.str());
}

std::string Control::described(int rank) const {
  std::string text = "rank " + std::to_string(rank) + " of " + std::to_string(ranks_.world_size);
  if (static_cast<std::size_t>(rank) < meeting_.hosts.size())
    text += " (on " + meeting_.hosts[static_cast<std::size_t>(rank)] + ")";
  return text;
}

void Control::judge() {
  const std::lock_guard lock(mutex_);
  if (lost_ || ending_) return;
  judge_silence();
  if (rank() == 0 && !lost_) judge_waits();
  const bool stands = waits_ > 0 && time_ - own_moved_ > timeout_;
  if (rank() != 0 && !lost_ && peers_[0].left && (gathering_ || stands)) lose_who_left(0);
}

void Control::lose_who_left(int rank) {
  set_lost(rank, described(rank) + " has ended, and others still wait for it", true);
}

void Control::judge_silence() {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (!peer.connection || peer.left || time_ - peer.heard <= timeout_) continue;
    return set_lost(static_cast<int>(rank),
                    described(static_cast<int>(rank)) + " has not been heard of for " +
                        shown(timeout_) + ": its machine is gone, or it is stopped",
                    true);
  }
}

/// Who does not move, and does not wait either, holds up those that wait. Where nobody moves at
/// all, it is the rank that is behind.
void Control::judge_waits() {
  const auto place_of = [](const Peer& peer) {
    return std::pair(peer.place.collectives, peer.place.steps);
  };
  const Peer *busy = nullptr, *behind = nullptr, *ahead = nullptr;
  bool waited_for = false, all_wait = true, anybody_moves = false;
  for (const Peer& peer : peers_) {
    if (peer.left) continue;
    const bool stands = time_ - peer.moved > timeout_;
    anybody_moves = anybody_moves || !stands;
    if (!stands) continue;
    waited_for = waited_for || peer.place.waits;
    all_wait = all_wait && peer.place.waits;
    if (!behind || place_of(peer) < place_of(*behind)) behind = &peer;
    if (!ahead || place_of(*ahead) < place_of(peer)) ahead = &peer;
    if (!peer.place.waits && (!busy || place_of(peer) < place_of(*busy))) busy = &peer;
  }
  if (!behind) return;
  if (waited_for)
    for (const Peer& peer : peers_)
      if (peer.left) return lose_who_left(static_cast<int>(&peer - peers_.data()));
  if (waited_for && busy) return lose_who_stands(*busy, *ahead);
  if (anybody_moves) return;
  if (place_of(*behind) < place_of(*ahead)) return lose_who_stands(*behind, *ahead);
  if (all_wait)
    set_lost(-1,
             "all ranks have waited for each other for " + shown(timeout_) + ", at step " +
                 std::to_string(behind->place.steps),
             true);
}

void Control::lose_who_stands(const Peer& peer, const Peer& ahead) {
  const int rank = static_cast<int>(&peer - peers_.data());
  set_lost(rank,
           described(rank) + " has not gone on for " + shown(timeout_) + ": it is at step " +
               std::to_string(peer.place.steps) + ", and others, at step " +
               std::to_string(ahead.place.steps) + ", wait for it",
           true);
}

void Control::gather_if_complete() {
  const std::lock_guard lock(mutex_);
  std::size_t said = 0;
  for (const auto& text : said_) said += text ? 1 : 0;
  for (std::size_t rank = 0; rank < said_.size() && said > 0 && !ending_; ++rank)
    if (peers_[rank].left && !said_[rank] && !lost_) lose_who_left(static_cast<int>(rank));
  if (said < said_.size()) return;
  gathered_.clear();
  for (auto& text : said_) gathered_.push_back(*std::exchange(text, std::nullopt));
  ++gathers_;
  post(-1, Kind::gathered, packed(gathered_));
  changed_.notify_all();
}

/// The program has to see that a rank is lost, and then to end, each within a while.
void Control::end_if_stuck() {
  std::unique_lock lock(mutex_);
  if (!lost_) return;
  if (!std::exchange(told_loss_, true) && on_loss_) {
    const auto call = on_loss_;
    lock.unlock();
    call();
    lock.lock();
  }
  if (!grace_began_) grace_began_ = time_;
  if (ending_ || time_ - *grace_began_ <= (seen_ ? 2 : 1) * grace_) return;
  std::fprintf(stderr, "rank %d ends, in the middle of a call: %s\n", rank(), lost_->why.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

/// Who leaves waits until the others have heard all, but not for long.
bool Control::goodbye_is_over() {
  {
    const std::lock_guard lock(mutex_);
    if (!ending_) return false;
    if (!goodbye_until_) goodbye_until_ = Clock::now() + kToSayGoodbye;
    if (unsent_ > 0 && Clock::now() < *goodbye_until_) return false;
  }
  bool alone = true;
  for (const Peer& peer : peers_) {
    if (!peer.connection) continue;
    alone = false;
    if (!said_goodbye_) peer.connection.shut_output();
  }
  said_goodbye_ = true;
  return alone || Clock::now() >= *goodbye_until_;
}

}  // namespace resnet
