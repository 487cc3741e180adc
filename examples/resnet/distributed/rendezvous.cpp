// SPDX-License-Identifier: Apache-2.0
#include "rendezvous.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "communicator.hpp"
#include "introduction.hpp"
#include "listeners.hpp"

namespace resnet {

namespace {

using penstock::Ranks;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kToConnect{1000}, kToAnswer{2000};
constexpr milliseconds kToProve{5000};  // that a connection is one of this job
constexpr std::size_t kStrangersAtMost = 256, kTextOfStrangers = 1024;
constexpr int kTakenAtOnce = 64;
constexpr std::size_t kOtherFiles = 512;  // of the program

std::string reason(int error) {
  return std::error_code(error, std::generic_category()).message();
}

int milliseconds_until(Clock::time_point time, milliseconds most) {
  const auto left = std::chrono::ceil<milliseconds>(time - Clock::now());
  return static_cast<int>(std::clamp(left, milliseconds(0), most).count());
}

bool on_one_machine(const Ranks& ranks) {
  return ranks.local_size == ranks.world_size;
}

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// ---- Rank 0

/// A connection is an open file, of which systems allow a process 1024 unless it asks for more.
void allow_files(std::size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
  limit.rlim_cur = std::min(static_cast<rlim_t>(count), limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

class Host {
 public:
  Host(const Ranks& ranks, const JobSecret& secret, milliseconds timeout, int channels);
  Meeting wait();

 private:
  /// Who has not proved yet that it is of this job.
  struct Newcomer {
    Connection connection;
    std::string address;
    Clock::time_point until;
    std::string nonces = {};  ///< its own and rank 0's, once it has said hello
  };

  bool complete() const;
  std::vector<int> missing() const;
  void look_once();
  void take_newcomers(const Socket& listener);
  void make_room();
  void hear(Newcomer& newcomer);
  void challenge(Newcomer& newcomer, const std::string& nonce);
  void answer(Newcomer& newcomer, const std::string& text);
  std::string refusal(const Claim& claim);
  [[noreturn]] void give_up();

  const Ranks& ranks_;
  const JobSecret& secret_;
  const milliseconds timeout_;
  const Clock::time_point until_ = Clock::now() + timeout_;
  const std::size_t connections_;  ///< that there will be
  const Listeners listeners_;
  std::list<Newcomer> newcomers_;
  Meeting meeting_;
  std::string last_refusal_;
};

Host::Host(const Ranks& ranks, const JobSecret& secret, milliseconds timeout, int channels)
    : ranks_(ranks),
      secret_(secret),
      timeout_(timeout),
      connections_(static_cast<std::size_t>(channels) *
                   static_cast<std::size_t>(ranks.world_size - 1)),
      listeners_(listen(ranks, ports_of(ranks))) {
  allow_files(connections_ + kStrangersAtMost + kOtherFiles);
  const auto size = static_cast<std::size_t>(ranks.world_size);
  meeting_.connections.resize(static_cast<std::size_t>(channels));
  for (auto& channel : meeting_.connections) channel.resize(size);
  meeting_.hosts.resize(size);
  meeting_.hosts[0] = this_host();
}

bool Host::complete() const {
  return missing().empty();
}

std::vector<int> Host::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < ranks_.world_size; ++rank)
    for (const auto& channel : meeting_.connections)
      if (!channel[static_cast<std::size_t>(rank)]) {
        ranks.push_back(rank);
        break;
      }
  return ranks;
}

Meeting Host::wait() {
  while (!complete()) {
    if (Clock::now() >= until_) give_up();
    look_once();
  }
  for (auto& connection : meeting_.connections[0]) {
    if (!connection) continue;
    connection.post(Kind::start, "");
    connection.flush();  // What breaks here, control.hpp finds.
  }
  return std::move(meeting_);
}

/// Waits until somebody comes, says something or leaves, or a while. A rank says nothing until all
/// are there: what can be read from it is its end.
void Host::look_once() {
  std::vector<pollfd> wanted;
  for (const Socket& listener : listeners_.sockets)
    wanted.push_back({listener.descriptor(), POLLIN, 0});
  for (const Newcomer& newcomer : newcomers_)
    wanted.push_back({newcomer.connection.descriptor(), POLLIN, 0});
  std::vector<Connection*> welcome;
  for (auto& channel : meeting_.connections)
    for (Connection& connection : channel)
      if (connection) welcome.push_back(&connection);
  const std::size_t first = wanted.size();
  for (const Connection* connection : welcome)
    wanted.push_back({connection->descriptor(), POLLIN, 0});
  ::poll(wanted.data(), wanted.size(), milliseconds_until(until_, milliseconds(200)));
  for (std::size_t i = 0; i < welcome.size(); ++i)
    if (wanted[first + i].revents != 0) *welcome[i] = {};
  for (auto newcomer = newcomers_.begin(); newcomer != newcomers_.end();) {
    hear(*newcomer);
    newcomer = newcomer->connection ? std::next(newcomer) : newcomers_.erase(newcomer);
  }
  for (std::size_t i = 0; i < listeners_.sockets.size(); ++i)
    if (wanted[i].revents != 0) take_newcomers(listeners_.sockets[i]);
}

/// A flood of them does not keep rank 0 from hearing those that are here.
void Host::take_newcomers(const Socket& listener) {
  for (int taken = 0; taken < kTakenAtOnce; ++taken) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    auto* const address = reinterpret_cast<sockaddr*>(&from);
    Socket socket(::accept4(listener.descriptor(), address, &size, SOCK_CLOEXEC));
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      last_refusal_ =
          "rank 0 cannot open more connections (" + reason(errno) + "): raise its limit, ulimit -n";
      std::this_thread::sleep_for(milliseconds(50));  // They still wait: poll() would not.
    }
    if (!socket) return;
    std::array<char, 64> name{};
    ::getnameinfo(address, size, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST);
    newcomers_.push_back(
        {Connection(std::move(socket), kTextOfStrangers), name.data(), Clock::now() + kToProve});
    make_room();
  }
}

/// All ranks may come at once: only more than they are push somebody out, first who says nothing.
void Host::make_room() {
  if (newcomers_.size() <= connections_ + kStrangersAtMost) return;
  const auto silent = std::find_if(newcomers_.begin(), std::prev(newcomers_.end()),
                                   [](const Newcomer& one) { return one.nonces.empty(); });
  newcomers_.erase(silent == std::prev(newcomers_.end()) ? newcomers_.begin() : silent);
}

/// Leaves the connection empty where nothing more is to be heard from it.
void Host::hear(Newcomer& newcomer) {
  const bool open = newcomer.connection.receive();
  const bool greeted = !newcomer.nonces.empty();
  const auto message = newcomer.connection.next();
  if (message && message->kind == Kind::hello && message->text.size() == kNonce && !greeted)
    return challenge(newcomer, message->text);
  if (message && message->kind == Kind::proof && greeted) return answer(newcomer, message->text);
  const bool garbage = message || newcomer.connection.garbage();
  if (garbage) last_refusal_ = "something that is no rank connected from " + newcomer.address;
  if (!open && greeted)
    last_refusal_ = "somebody at " + newcomer.address +
                    " left when rank 0 had proved its secret: is it another one there?";
  if (!open || garbage || Clock::now() >= newcomer.until) newcomer.connection = {};
}

void Host::challenge(Newcomer& newcomer, const std::string& nonce) {
  const std::string own = resnet::nonce();
  newcomer.nonces = nonce + own;
  newcomer.connection.post(Kind::challenge, secret_.proof(kOfRank0, newcomer.nonces, "") + own);
  if (!newcomer.connection.flush()) newcomer.connection = {};
}

void Host::answer(Newcomer& newcomer, const std::string& text) {
  Connection connection = std::exchange(newcomer.connection, {});
  const std::size_t at = std::min(text.size(), JobSecret::kProof);
  const std::string said = text.substr(at);
  const bool known = secret_.accepts(text.substr(0, at), kOfRank, newcomer.nonces, said);
  const auto claim = known ? read_claim(said) : std::nullopt;
  const std::string why = !known  ? kUnproven
                          : claim ? refusal(*claim)
                                  : "refused: it does not say who it is";
  if (!why.empty()) {
    last_refusal_ = known ? why : newcomer.address + " did not prove that it has the job's secret";
    connection.post(Kind::refused, why);
    connection.flush();
    return;
  }
  connection.post(Kind::welcome, secret_.proof(kOfWelcome, newcomer.nonces, said));
  if (!connection.flush()) return;
  connection.accept_long();
  const auto rank = static_cast<std::size_t>(claim->rank);
  meeting_.hosts[rank] = claim->host;
  meeting_.connections[static_cast<std::size_t>(claim->channel)][rank] = std::move(connection);
}

/// Where there is no secret, it may go to anybody: it does not name the job.
std::string Host::refusal(const Claim& claim) {
  const std::string who =
      "rank " + std::to_string(claim.rank) + " on " + claim.host + " is refused: ";
  if (claim.job != ranks_.job) return who + "it is of another job, \"" + claim.job + '"';
  if (claim.world_size != ranks_.world_size)
    return who + "it is of " + std::to_string(claim.world_size) + " ranks, this job has " +
           std::to_string(ranks_.world_size);
  if (claim.rank < 1 || claim.rank >= ranks_.world_size || claim.channel < 0 ||
      claim.channel >= static_cast<int>(meeting_.connections.size()))
    return who + "there is no such rank";
  Connection& known = meeting_.connections[static_cast<std::size_t>(claim.channel)]
                                          [static_cast<std::size_t>(claim.rank)];
  if (known && readable_within(known.descriptor(), 0)) known = {};  // It has left.
  if (known)
    return who + "this rank is here already, on " +
           meeting_.hosts[static_cast<std::size_t>(claim.rank)];
  return {};
}

void Host::give_up() {
  const std::vector<int> ranks = missing();
  std::string why = (ranks.size() == 1 ? "rank " : "ranks ") + listed(ranks) + " of " +
                    std::to_string(ranks_.world_size) + " did not come within " + shown(timeout_) +
                    ": rank 0 waited on " + this_host() + ", port " +
                    std::to_string(listeners_.port) + " of " + listeners_.where +
                    ", for the job \"" + ranks_.job + "\"";
  if (!last_refusal_.empty()) why += "; " + last_refusal_;
  for (auto& connection : meeting_.connections[0]) {
    if (!connection) continue;
    connection.post(Kind::missing, std::to_string(ranks.front()) + ' ' + why);
    connection.flush();
  }
  throw RankError(ranks.front(), why);
}

// ---- The others

class Guest {
 public:
  Guest(const Ranks& ranks, const JobSecret& secret, milliseconds timeout, int channels)
      : ranks_(ranks),
        secret_(secret),
        timeout_(timeout),
        channels_(channels),
        ports_(ports_of(ranks)) {}
  Meeting join();

 private:
  std::optional<Meeting> try_port(int port);
  Socket connect_to(int port);
  Socket connect_to(const addrinfo& address);
  std::optional<Message> answer_to(Connection& connection, Kind kind, const std::string& text);
  bool introduce(Connection& connection, int channel, int port);
  bool wait_for_start(Connection& connection);
  [[noreturn]] void give_up() const;

  const Ranks& ranks_;
  const JobSecret& secret_;
  const milliseconds timeout_;
  const int channels_;
  const std::vector<int> ports_;
  const Clock::time_point until_ = Clock::now() + timeout_;
  std::string last_problem_ = "nobody answered";
};

Meeting Guest::join() {
  for (milliseconds pause{20}; Clock::now() < until_;
       pause = std::min(2 * pause, milliseconds(250))) {
    for (const int port : ports_) {
      if (Clock::now() >= until_) break;
      if (auto meeting = try_port(port)) return std::move(*meeting);
    }
    std::this_thread::sleep_for(pause);
  }
  give_up();
}

std::optional<Meeting> Guest::try_port(int port) {
  Meeting meeting;
  for (int channel = 0; channel < channels_; ++channel) {
    Socket socket = connect_to(port);
    if (!socket) return {};
    Connection connection(std::move(socket));
    if (!introduce(connection, channel, port)) return {};
    connection.accept_long();
    meeting.connections.emplace_back().push_back(std::move(connection));
  }
  if (!wait_for_start(meeting.connections[0][0])) return {};
  return meeting;
}

Socket Guest::connect_to(int port) {
  const std::string host = on_one_machine(ranks_) ? "127.0.0.1" : ranks_.host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // A name may come into being only when its machine does.
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) {
    last_problem_ = host + ": " + ::gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &::freeaddrinfo);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next)
    if (Socket socket = connect_to(*address)) return socket;
  return {};
}

Socket Guest::connect_to(const addrinfo& address) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = 0;
  if (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      pollfd wanted{socket.descriptor(), POLLOUT, 0};
      socklen_t size = sizeof error;
      if (::poll(&wanted, 1, milliseconds_until(until_, kToConnect)) <= 0)
        error = ETIMEDOUT;
      else
        ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error == 0) return socket;
  // "refused" says least: nobody listens there (yet).
  if (error != ECONNREFUSED) last_problem_ = reason(error);
  return {};
}

std::optional<Message> Guest::answer_to(Connection& connection, Kind kind,
                                        const std::string& text) {
  connection.post(kind, text);
  const auto until = Clock::now() + kToAnswer;
  bool open = connection.flush();
  while (open && Clock::now() < until) {
    readable_within(connection.descriptor(), milliseconds_until(until, kToAnswer));
    open = connection.receive();
    if (auto message = connection.next()) return message;
    if (!connection.garbage()) continue;
    last_problem_ = "something that is not rank 0 answered";
    break;
  }
  return {};
}

/// False: it is not rank 0 of this job.
bool Guest::introduce(Connection& connection, int channel, int port) {
  const std::string own = nonce();
  const auto challenge = answer_to(connection, Kind::hello, own);
  if (!challenge || challenge->kind != Kind::challenge ||
      challenge->text.size() != JobSecret::kProof + kNonce)
    return false;
  const std::string nonces = own + challenge->text.substr(JobSecret::kProof);
  if (!secret_.accepts(challenge->text.substr(0, JobSecret::kProof), kOfRank0, nonces, "")) {
    last_problem_ = "who answers at port " + std::to_string(port) + " has " +
                    (secret_.empty() ? "a secret (PENSTOCK_JOB_SECRET), and this rank has none"
                                     : "not this rank's secret (PENSTOCK_JOB_SECRET)");
    return false;
  }
  const std::string claim =
      text_of({ranks_.world_size, ranks_.rank, channel, this_host(), ranks_.job});
  const auto answer =
      answer_to(connection, Kind::proof, secret_.proof(kOfRank, nonces, claim) + claim);
  if (answer && answer->kind == Kind::refused) last_problem_ = answer->text;
  return answer && answer->kind == Kind::welcome &&
         secret_.accepts(answer->text, kOfWelcome, nonces, claim);
}

/// False: rank 0 has gone away; perhaps it comes back.
bool Guest::wait_for_start(Connection& connection) {
  // Rank 0 may have begun to wait later than this one.
  const auto until = std::max(until_, Clock::now() + timeout_ + kToAnswer);
  while (Clock::now() < until) {
    readable_within(connection.descriptor(), milliseconds_until(until, timeout_));
    const bool open = connection.receive();
    if (const auto message = connection.next()) {
      if (message->kind == Kind::start) return true;
      if (message->kind == Kind::missing)
        throw RankError(std::atoi(message->text.c_str()),
                        message->text.substr(message->text.find(' ') + 1));
    }
    if (!open || connection.garbage()) break;
  }
  last_problem_ = "rank 0 was there, and went away";
  return false;
}

void Guest::give_up() const {
  throw RankError(0, "rank 0 of " + std::to_string(ranks_.world_size) + " was not found within " +
                         shown(timeout_) + ": rank " + std::to_string(ranks_.rank) +
                         " looked for it on " +
                         (on_one_machine(ranks_) ? "this machine" : ranks_.host) + ", ports " +
                         std::to_string(ports_.front()) + " to " + std::to_string(ports_.back()) +
                         ", for the job \"" + ranks_.job + "\"; " + last_problem_);
}

}  // namespace

std::vector<int> ports_of(const Ranks& ranks) {
  int first = ranks.port;
  if (first == 0) {
    std::uint64_t hash = 14695981039346656037U;  // FNV-1a
    for (const char c : ranks.job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    first = 20000 + static_cast<int>(hash % 8000);  // below those that systems give out themselves
  }
  if (first > 65535 - kPorts) first -= 1000;
  std::vector<int> ports;
  for (int i = 0; i < kPorts; ++i) ports.push_back(first + i);
  return ports;
}

Meeting meet(const Ranks& ranks, const JobSecret& secret, milliseconds timeout, int channels) {
  if (ranks.host.empty() && !on_one_machine(ranks))
    throw std::invalid_argument("nothing says on which machine rank 0 is (" + ranks.source +
                                " does not): set MASTER_ADDR to its name");
  if (secret.empty() && !on_one_machine(ranks))
    throw std::invalid_argument(
        "ranks on several machines need a secret, or anybody on the network could join them: set "
        "PENSTOCK_JOB_SECRET for all of them to one text, such as that of `openssl rand -hex 32`, "
        "or PENSTOCK_JOB_SECRET_FILE to a file that has it");
  return ranks.rank == 0 ? Host(ranks, secret, timeout, channels).wait()
                         : Guest(ranks, secret, timeout, channels).join();
}

std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string shown(milliseconds time) {
  std::ostringstream out;
  out << static_cast<double>(time.count()) / 1000 << " s";
  return out.str();
}

}  // namespace resnet
