// SPDX-License-Identifier: Apache-2.0

// docs/recipes/endless-streams.md: records that come over a TCP connection, for as long as the
// other end sends. First all of a stream that ends; then three batches of one that does not.

#include <arpa/inet.h>
#include <cuda_runtime_api.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <penstock/penstock.hpp>
#include <stop_token>
#include <system_error>
#include <thread>

namespace {

constexpr std::int64_t kBatch = 64;

struct Record {
  std::uint64_t number, value;
};
struct Records {
  penstock::Tensor<Record, 1> records;
};

/// Two ends of a connection.
struct Connection {
  int ends[2];

  Connection() {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
      throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  ~Connection() {
    close(ends[0]);
    close(ends[1]);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Sends so many records, or as many as the other end takes; then hangs up.
  void send(std::uint64_t records) const {
    for (std::uint64_t i = 0; i < records; ++i) {
      const Record record{i, i * i};
      if (::send(ends[1], &record, sizeof record, MSG_NOSIGNAL) != sizeof record) break;
    }
    shutdown(ends[1], SHUT_WR);
  }
};

/// Reads a record; false: the other end has hung up, or the pipeline is being destroyed.
bool receive(int socket, Record& record, const std::stop_token& stop) {
  auto* const bytes = reinterpret_cast<std::byte*>(&record);
  for (std::size_t done = 0; done < sizeof record;) {
    pollfd readable{socket, POLLIN, 0};
    do {
      if (stop.stop_requested()) return false;
    } while (poll(&readable, 1, 50) == 0);  // milliseconds
    const ssize_t received = recv(socket, bytes + done, sizeof record - done, 0);
    if (received < 0) throw std::system_error(errno, std::generic_category(), "recv");
    if (received == 0) return false;
    done += static_cast<std::size_t>(received);
  }
  return true;
}

/// Stands for a model: the sum over all records.
struct Add {
  Records batch;
  std::uint64_t* sum;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.records.extent(0); ++i) *sum += batch.records(i).value;
  }
};

/// Takes at most `batches` batches from the socket. Returns the sum, and adds to `records`.
std::uint64_t run(int socket, std::uint64_t batches, std::int64_t& records) {
  const auto layout = penstock::Layout<Records>{kBatch}.field(&Records::records, {});
  const auto source = [socket, &layout](const penstock::Ticket&, Records& batch,
                                        const std::stop_token& stop) {
    std::int64_t row = 0;
    while (row < kBatch && receive(socket, batch.records(row), stop)) ++row;
    if (row > 0) layout.resize(batch, row);  // The last batch may be shorter.
    return row > 0;                          // Behind it there are no more data.
  };
  penstock::Prefetcher<Records> prefetcher{
      layout, penstock::Unbounded{kBatch}, source, {.stall_timeout = std::chrono::milliseconds(0)}};

  const penstock::Stream stream;
  void* sum = nullptr;
  cudaMalloc(&sum, sizeof(std::uint64_t));
  cudaMemsetAsync(sum, 0, sizeof(std::uint64_t), stream.get());
  for (std::uint64_t i = 0; i < batches; ++i) {
    const auto batch = prefetcher.next(stream.get());
    if (!batch) break;
    penstock::for_each(stream.get(), 1, Add{*batch, static_cast<std::uint64_t*>(sum)});
    records += batch.samples();
  }
  std::uint64_t result = 0;
  cudaMemcpyAsync(&result, sum, sizeof result, cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(sum);
  return result;
}

constexpr std::uint64_t sum_of_squares(std::uint64_t n) {
  return (n - 1) * n * (2 * n - 1) / 6;
}

}  // namespace

int main() {
  std::int64_t all = 0, some = 0;
  bool right = true;
  {
    Connection connection;
    const std::jthread sender([&] { connection.send(1000); });
    right = run(connection.ends[0], UINT64_MAX, all) == sum_of_squares(1000) && all == 1000;
  }
  {
    Connection connection;
    const std::jthread sender([&] { connection.send(UINT64_MAX); });
    right = right && run(connection.ends[0], 3, some) == sum_of_squares(3 * kBatch) &&
            some == 3 * kBatch;
    shutdown(connection.ends[0], SHUT_RDWR);  // The sender's next call fails, and its thread ends.
  }
  std::printf("endless_streams: %s: %lld and %lld records\n", right ? "right" : "WRONG",
              static_cast<long long>(all), static_cast<long long>(some));
  return right ? 0 : 1;
}
