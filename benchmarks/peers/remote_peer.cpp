// SPDX-License-Identifier: Apache-2.0

// penstock's side of benchmarks/peers/remote_ranges.py: reads a task again and again for so many
// seconds, and prints what it has read. The first pass compares all bytes with FILE and is not
// counted.
//
//   remote_peer TASK URL FILE SECONDS SETTING
//
//   parts    URL is an object. SETTING: requests at the same time
//   objects  URL is a folder with 000000.bin and so on, which together are FILE. SETTING: threads,
//            or AHEAD+THREADS: each thread announces so many objects before it reads them
//   shards   URL is a folder with shard-0.tar and so on, of which a sample is an object. SETTING:
//            the same

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <penstock/file_folder.hpp>
#include <penstock/remote.hpp>
#include <penstock/sampler.hpp>
#include <penstock/tar_shards.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../cpu_seconds.hpp"

namespace {

using namespace penstock;

constexpr std::size_t kObject = std::size_t{128} << 10;
constexpr int kShards = 8;

std::vector<std::byte> contents(const char* path) {
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    throw std::runtime_error(std::string(path) + " cannot be read");
  return bytes;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// `pass(epoch)` reads all there is. `amount`: what that is, in the unit of the task.
void measure(double seconds, double amount, const std::function<void(std::uint64_t)>& pass) {
  pass(0);
  const double begin = now(), cpu = cpu_seconds();
  double read = 0;
  for (std::uint64_t epoch = 1; now() - begin < seconds; ++epoch) {
    pass(epoch);
    read += amount;
  }
  std::printf("{\"amount\": %.0f, \"seconds\": %.6f, \"cpu\": %.6f}\n", read, now() - begin,
              cpu_seconds() - cpu);
}

struct Workers {
  std::size_t threads = 1, ahead = 0;

  explicit Workers(const std::string& setting) {
    const std::size_t plus = setting.find('+');
    if (plus != std::string::npos) ahead = std::stoul(setting);
    threads = std::stoul(plus == std::string::npos ? setting : setting.substr(plus + 1));
  }
};

/// The threads read the samples of `order` by turns of 32. `announce` asks for some ahead;
/// `read_one(sample, scratch)` reads one.
template <class Announce, class ReadOne>
void read_all(const Workers& workers, const std::vector<std::uint64_t>& order, Announce announce,
              ReadOne read_one) {
  constexpr std::size_t kTurn = 32;
  std::vector<std::exception_ptr> errors(workers.threads);
  const auto work = [&](std::size_t worker) {
    std::vector<std::uint64_t> mine;
    for (std::size_t i = worker * kTurn; i < order.size(); i += workers.threads * kTurn)
      mine.insert(mine.end(), order.begin() + static_cast<std::ptrdiff_t>(i),
                  order.begin() + static_cast<std::ptrdiff_t>(std::min(i + kTurn, order.size())));
    std::vector<std::byte> scratch;
    std::size_t announced = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (workers.ahead > 0 && i % kTurn == 0) {
        const std::size_t end = std::min(i + workers.ahead, mine.size());
        if (announced < end) announce(std::span(mine).subspan(announced, end - announced));
        announced = std::max(announced, end);
      }
      read_one(mine[i], scratch);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < workers.threads; ++worker)
    threads.emplace_back([&, worker] {
      try {
        work(worker);
      } catch (...) {
        errors[worker] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void check(std::span<const std::byte> bytes, std::span<const std::byte> right, bool content) {
  if (bytes.size() != right.size()) throw std::runtime_error("an object has another length");
  if (content && !std::ranges::equal(bytes, right))
    throw std::runtime_error("an object has other bytes");
}

void parts(const std::string& url, std::span<const std::byte> right, double seconds,
           const std::string& setting) {
  remote::Options options;
  options.max_requests = std::stoi(setting);
  const remote::Client client(options);
  const File file = client.file(url);
  std::vector<std::byte> target(right.size());
  measure(seconds, static_cast<double>(right.size()), [&](std::uint64_t epoch) {
    const std::size_t bytes = file.read(0, target);
    check(std::span(target).first(bytes), right, epoch == 0);
  });
}

/// `store`: of which sample i is the i-th object of `right`.
template <class Store>
void samples(const Store& store, std::span<const std::byte> right, bool shuffled, double seconds,
             const Workers& workers) {
  const Sampler sampler({.samples = store.size(), .batch_size = 256, .shuffle = shuffled});
  measure(seconds, static_cast<double>(store.size()), [&](std::uint64_t epoch) {
    std::vector<std::uint64_t> order, batch;
    for (std::uint64_t i = 0; i < sampler.batches(); ++i) {
      sampler.samples(epoch, i, batch);
      order.insert(order.end(), batch.begin(), batch.end());
    }
    read_all(
        workers, order, [&](std::span<const std::uint64_t> some) { store.will_need(some); },
        [&](std::uint64_t sample, std::vector<std::byte>& scratch) {
          check(store.read(sample, scratch),
                right.subspan(static_cast<std::size_t>(sample) * kObject, kObject), epoch == 0);
        });
  });
}

std::vector<std::string> object_names(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) {
    std::string digits = std::to_string(i);
    names.push_back(digits.insert(0, 6 - digits.size(), '0') + ".bin");
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "remote_peer TASK URL FILE SECONDS SETTING\n");
    return 2;
  }
  try {
    const std::string task = argv[1], url = argv[2];
    const std::vector<std::byte> right = contents(argv[3]);
    const double seconds = std::atof(argv[4]);
    if (task == "parts") {
      parts(url, right, seconds, argv[5]);
    } else if (task == "objects") {
      const remote::Client client;
      const auto folder =
          FileFolder::from_files(client.folder(url), object_names(right.size() / kObject));
      samples(folder, right, true, seconds, Workers(argv[5]));
    } else if (task == "shards") {
      const remote::Client client;
      std::vector<File> files;
      for (int i = 0; i < kShards; ++i)
        files.push_back(client.file(url + "shard-" + std::to_string(i) + ".tar"));
      samples(TarShards(files), right, false, seconds, Workers(argv[5]));
    } else {
      throw std::invalid_argument("there is no task " + task);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
