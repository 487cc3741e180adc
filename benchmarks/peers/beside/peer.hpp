// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a program of benchmarks/peers/run does: it reads commands, a line of JSON each, from its
// standard input, and writes an answer to each, a line of JSON. beside/peer.py is the same for
// Python.
//
//   {"do": "measure", "setting": {...}, "warm": 0.3, "seconds": 1.5}     a rate
//   {"do": "epoch", "setting": {...}, "check": true}  one epoch, with its start
//   {"do": "accelerators", "setting": {...}, "number": 4, "batches": 8, "compute": 0.224}

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace peers {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Of all threads of this process.
inline double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

/// Bytes of memory that no file backs.
inline std::uint64_t private_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::uint64_t bytes = 0;
  for (std::string name; file >> name;)
    if (std::uint64_t kib = 0; (name == "Pss_Anon:" || name == "Pss_Shmem:") && file >> kib)
      bytes += 1024 * kib;
  return bytes;
}

/// What was delivered, to be compared with what there is: each sample once, and its values.
struct Digest {
  std::uint64_t samples = 0, numbers = 0, squares = 0, bytes = 0, values = 0;
  std::map<std::int32_t, std::uint64_t> labels;
  double sum = 0, sum_of_squares = 0;  // of pixels

  void number(std::uint64_t n) {
    ++samples;
    numbers += n;
    squares += n * n;
  }
  Json json() const {
    Json result{{"samples", samples},
                {"numbers", numbers},
                {"squares", squares},
                {"bytes", bytes},
                {"values", values}};
    if (!labels.empty()) {
      result["labels"] = Json::array();
      for (const auto& [label, count] : labels) result["labels"].push_back({label, count});
    }
    if (sum > 0) {
      const double mean = sum / static_cast<double>(values);
      result["mean"] = mean;
      result["variance"] = sum_of_squares / static_cast<double>(values) - mean * mean;
    }
    return result;
  }
};

/// Who consumes the batches of a run.
struct Consumer {
  Digest* digest = nullptr;  // of what is delivered, if it is asked for
  /// Gets the number of units (samples; tokens) of each batch. False: the run ends.
  std::function<bool(std::int64_t)> batch;
};
/// Starts a loader with these settings for so many epochs, and gives its batches to the consumer.
using Run =
    std::function<void(const Json& setting, std::uint64_t epochs, const Consumer& consumer)>;

inline constexpr std::uint64_t kEndless = std::uint64_t{1} << 32;

/// The rate from the end of the warm-up on, of time and of CPU time; the time to the first batch;
/// memory.
class Meter {
 public:
  Meter(double warm, double seconds) : warm_(warm), seconds_(seconds) {}

  bool add(std::int64_t units) {
    if (!measures_) return warm_up();
    units_ += units;
    const double seconds = seconds_since(begin_);
    if (seconds < seconds_) return true;
    result_ = {{"units", units_},
               {"seconds", seconds},
               {"cpu", cpu_seconds() - cpu_},
               {"first", first_},
               {"memory", private_bytes()}};
    return false;
  }
  const Json& result() const {
    if (result_.is_null()) throw std::runtime_error("there were too few batches");
    return result_;
  }

 private:
  bool warm_up() {
    const double now = seconds_since(begin_);
    if (first_ < 0) first_ = now;
    measures_ = now >= first_ + warm_;
    if (measures_) begin_ = Clock::now(), cpu_ = cpu_seconds();
    return true;
  }

  const double warm_, seconds_;
  Clock::time_point begin_ = Clock::now();
  bool measures_ = false;
  double first_ = -1, cpu_ = 0;
  std::int64_t units_ = 0;
  Json result_;
};

inline Json measure(const Run& run, const Json& command) {
  Meter meter(command.at("warm"), command.at("seconds"));
  run(command.at("setting"), kEndless,
      {nullptr, [&](std::int64_t units) { return meter.add(units); }});
  return meter.result();
}

inline Json epoch(const Run& run, const Json& command) {
  Digest digest;
  std::int64_t units = 0;
  double first = 0;
  std::uint64_t memory = 0;
  const double cpu = cpu_seconds();
  const auto begin = Clock::now();
  const auto add = [&](std::int64_t more) {
    if (units == 0) first = seconds_since(begin), memory = private_bytes();
    units += more;
    return true;
  };
  const bool check = command.value("check", false);
  run(command.at("setting"), 1, {check ? &digest : nullptr, add});
  Json result{{"units", units},
              {"seconds", seconds_since(begin)},
              {"cpu", cpu_seconds() - cpu},
              {"first", first},
              {"memory", memory}};
  if (check) result["digest"] = digest.json();
  return result;
}

/// A simulated accelerator: computes (sleeps) so long for each batch. Returns the seconds that all
/// took.
inline double accelerate(const Run& run, const Json& command, int ready, int go) {
  const int batches = command.at("batches");
  const std::chrono::duration<double> compute(command.at("compute").get<double>());
  int taken = 0;
  Clock::time_point begin;
  double seconds = 0;
  run(command.at("setting"), kEndless,
      {nullptr, [&](std::int64_t) {
         char byte = 0;
         if (taken == 0 && (::write(ready, &byte, 1) != 1 || ::read(go, &byte, 1) < 0))
           return false;
         if (taken == 0) begin = Clock::now();
         seconds = seconds_since(begin);
         if (taken++ == batches) return false;
         std::this_thread::sleep_for(compute);
         return true;
       }});
  return seconds;
}

/// So many of them, each a process; all begin when all have their first batch.
inline Json accelerators(const Run& run, const Json& command) {
  const int number = command.at("number");
  int ready[2], go[2], results[2];
  if (::pipe(ready) != 0 || ::pipe(go) != 0 || ::pipe(results) != 0)
    throw std::runtime_error("no pipe");
  std::vector<pid_t> children;
  for (int i = 0; i < number; ++i) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("cannot fork");
    if (child == 0) {
      ::close(go[1]);
      const double seconds = accelerate(run, command, ready[1], go[0]);
      const bool told = ::write(results[1], &seconds, sizeof seconds) == sizeof seconds;
      std::_Exit(told ? 0 : 1);
    }
    children.push_back(child);
  }
  ::close(go[0]), ::close(ready[1]), ::close(results[1]);
  char byte = 0;
  for (int i = 0; i < number && ::read(ready[0], &byte, 1) == 1; ++i) continue;
  ::close(go[1]);
  Json all = Json::array();
  for (double one = 0; ::read(results[0], &one, sizeof one) == sizeof one;) all.push_back(one);
  ::close(ready[0]), ::close(results[0]);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  if (all.size() != children.size()) throw std::runtime_error("an accelerator has ended early");
  return {{"seconds", all}};
}

inline Json answer(const Run& run, const Json& command) {
  const std::string what = command.at("do");
  if (what == "measure") return measure(run, command);
  if (what == "epoch") return epoch(run, command);
  if (what == "accelerators") return accelerators(run, command);
  throw std::invalid_argument("no such command: " + what);
}

/// Until the end of the standard input.
inline int serve(const Run& run) {
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      result = answer(run, Json::parse(line));
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump() << std::endl;
  }
  return 0;
}

}  // namespace peers
