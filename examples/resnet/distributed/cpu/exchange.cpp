// SPDX-License-Identifier: Apache-2.0
#include "exchange.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "../communicator.hpp"
#include "numbers.hpp"

namespace resnet {

namespace {

// Small enough for the buffers of a socket to hold a good part of it, so that ranks seldom wait for
// each other; and a multiple of every element.
constexpr std::size_t kPart = std::size_t{256} << 10;

std::string shown_call(std::int32_t operation, std::int32_t detail, std::int64_t size) {
  if (operation == 1)
    return "broadcast of " + std::to_string(size) + " bytes from rank " + std::to_string(detail);
  return "all_reduce of " + std::to_string(size) + " values of precision " + std::to_string(detail);
}

}  // namespace

Exchange::Exchange(Control& control, std::vector<Socket> sockets)
    : control_(control), sockets_(std::move(sockets)), sum_(kPart / 2), part_(kPart) {}

void Exchange::stop() noexcept {
  stopped_ = true;
  for (const Socket& socket : sockets_)
    if (socket) ::shutdown(socket.descriptor(), SHUT_RDWR);
}

void Exchange::close() {
  stop();
  const std::lock_guard lock(in_call_);
}

void Exchange::send(int rank, const void* memory, std::size_t bytes) {
  const auto* place = static_cast<const std::byte*>(memory);
  const int socket = sockets_[static_cast<std::size_t>(rank)].descriptor();
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, place, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw RankError(rank, std::generic_category().message(errno));
    place += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

void Exchange::receive(int rank, void* memory, std::size_t bytes) {
  auto* place = static_cast<std::byte*>(memory);
  const int socket = sockets_[static_cast<std::size_t>(rank)].descriptor();
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, place, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw RankError(rank, std::generic_category().message(errno));
    if (got == 0) throw RankError(rank, "it has closed the connection");
    place += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

/// Does `work` once all ranks are at the same call.
template <class Work>
void Exchange::run(Call call, Work work) {
  const std::lock_guard lock(in_call_);
  if (stopped_ || control_.is_lost()) return;
  control_.count_collective();
  const Waiting waiting(control_);
  call.number = ++calls_;
  try {
    agree(call);
    work();
  } catch (const RankError& error) {
    if (stopped_) return;
    control_.suspect(error.rank(), "rank " + std::to_string(error.rank()) +
                                       " cannot be reached any more: " + error.what());
  }
}

void Exchange::agree(const Call& call) {
  if (control_.rank() != 0) return send(0, &call, sizeof call);
  for (int rank = 1; rank < control_.world_size(); ++rank) {
    Call other{};
    receive(rank, &other, sizeof other);
    if (other == call) continue;
    const std::string why = "rank " + std::to_string(rank) + " makes another call than rank 0: " +
                            shown_call(other.operation, other.detail, other.size) + ", not " +
                            shown_call(call.operation, call.detail, call.size);
    control_.lose(rank, why);
    throw RankError(rank, why);
  }
}

void Exchange::all_reduce(void* values, std::int64_t count, Precision precision) {
  run({.operation = 0, .detail = static_cast<std::int32_t>(precision), .size = count, .number = 0},
      [&] {
        auto* place = static_cast<std::byte*>(values);
        const std::size_t element = bytes_of(precision);
        const auto most = static_cast<std::int64_t>(kPart / element);
        for (std::int64_t left = count; left > 0; left -= most) {
          const std::int64_t now = std::min(left, most);
          const std::size_t bytes = static_cast<std::size_t>(now) * element;
          if (control_.rank() == 0) {
            sum(place, now, precision);
          } else {
            send(0, place, bytes);
            receive(0, place, bytes);
          }
          place += bytes;
        }
      });
}

/// On rank 0.
void Exchange::sum(std::byte* values, std::int64_t count, Precision precision) {
  const std::size_t element = bytes_of(precision),
                    bytes = static_cast<std::size_t>(count) * element;
  const auto each = [&](auto work) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) work(i, i * element);
  };
  each([&](std::size_t i, std::size_t at) { sum_[i] = load(values + at, precision); });
  for (int rank = 1; rank < control_.world_size(); ++rank) {
    receive(rank, part_.data(), bytes);
    each([&](std::size_t i, std::size_t at) { sum_[i] += load(part_.data() + at, precision); });
  }
  each([&](std::size_t i, std::size_t at) { store(sum_[i], values + at, precision); });
  for (int rank = 1; rank < control_.world_size(); ++rank) send(rank, values, bytes);
}

void Exchange::broadcast(void* memory, std::int64_t bytes, int root) {
  run({.operation = 1, .detail = root, .size = bytes, .number = 0}, [&] {
    const auto size = static_cast<std::size_t>(bytes);
    if (control_.rank() != 0)
      return control_.rank() == root ? send(0, memory, size) : receive(0, memory, size);
    if (root != 0) receive(root, memory, size);
    for (int rank = 1; rank < control_.world_size(); ++rank)
      if (rank != root) send(rank, memory, size);
  });
}

}  // namespace resnet
