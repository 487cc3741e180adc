// SPDX-License-Identifier: Apache-2.0

// One rank of a job, for communicator_test.py and rendezvous_test.py: rank_program
// sums|steps|unwinds|replays|slow|late|meet TIMEOUT [FAULT RANK]. Exit status 0; 3 when a rank is
// lost, 1 for another exception. In `steps` and `replays`, FAULT comes over RANK in its third step.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/common/check.hpp"
#include "examples/resnet/distributed/communicator.hpp"
#include "examples/resnet/distributed/cpu/numbers.hpp"
#include "examples/resnet/model/device_array.hpp"

namespace {

using examples::check;
using resnet::Communicator;
using resnet::Precision;

void require(bool good, const std::string& what) {
  if (!good) throw std::logic_error(what);
}

struct Stream {
  Stream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream); }
  cudaStream_t stream = nullptr;
};

/// What `rank` has at `i`: numbers whose sum depends on the order of the additions.
float value_of(int rank, std::int64_t i) {
  return std::ldexp(1.0f + static_cast<float>(i % 97) / 97.0f,
                    (rank * 7 + static_cast<int>(i)) % 9) *
         (i % 3 == 0 ? -1.0f : 1.0f);
}

std::vector<std::byte> values_of(int rank, std::int64_t count, Precision precision) {
  const std::size_t element = resnet::bytes_of(precision);
  std::vector<std::byte> values(static_cast<std::size_t>(count) * element);
  for (std::int64_t i = 0; i < count; ++i)
    resnet::store(value_of(rank, i), values.data() + static_cast<std::size_t>(i) * element,
                  precision);
  return values;
}

std::vector<std::byte> sums_of(int ranks, std::int64_t count, Precision precision) {
  const std::size_t element = resnet::bytes_of(precision);
  std::vector<std::vector<std::byte>> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(values_of(rank, count, precision));
  std::vector<std::byte> sums(parts[0].size());
  for (std::size_t at = 0; at < sums.size(); at += element) {
    float sum = resnet::load(parts[0].data() + at, precision);
    for (int rank = 1; rank < ranks; ++rank)
      sum += resnet::load(parts[static_cast<std::size_t>(rank)].data() + at, precision);
    resnet::store(sum, sums.data() + at, precision);
  }
  return sums;
}

void check_sums(Communicator& communicator, cudaStream_t stream) {
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16})
    for (const std::int64_t count : {0, 1, 3, 1000, 200'000}) {
      resnet::DeviceArray<std::byte> values(count *
                                            static_cast<std::int64_t>(resnet::bytes_of(precision)));
      if (count > 0) values.set(values_of(communicator.rank(), count, precision), stream);
      communicator.all_reduce(values.data(), count, precision, stream);
      communicator.synchronize(stream);
      if (count > 0)
        require(values.get(stream) == sums_of(communicator.world_size(), count, precision),
                "a sum of " + std::to_string(count));
    }
}

void check_broadcasts(Communicator& communicator, cudaStream_t stream) {
  for (int root = 0; root < communicator.world_size(); ++root)
    for (const std::int64_t bytes : {1, 7, 600'000}) {
      resnet::DeviceArray<std::byte> memory(bytes);
      const auto text = [&](int rank) {
        return std::vector<std::byte>(static_cast<std::size_t>(bytes), std::byte(rank + 1));
      };
      memory.set(text(communicator.rank()), stream);
      communicator.broadcast(memory.data(), bytes, root, stream);
      communicator.synchronize(stream);
      require(memory.get(stream) == text(root), "a broadcast from " + std::to_string(root));
    }
}

void check_gathers(Communicator& communicator) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{300'000}}) {
    const auto texts = communicator.all_gather(std::to_string(communicator.rank()) +
                                               std::string(size, static_cast<char>(size % 7)));
    require(texts.size() == static_cast<std::size_t>(communicator.world_size()), "a size");
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
      require(texts[rank] == std::to_string(rank) + std::string(size, static_cast<char>(size % 7)),
              "a text of " + std::to_string(rank));
  }
}

/// Of two sums.
struct Graph {
  Graph(Communicator& communicator, float* values, std::int64_t count, cudaStream_t stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    communicator.all_reduce(values, count / 2, Precision::fp32, stream);
    communicator.all_reduce(values + count / 2, count - count / 2, Precision::fp32, stream);
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    cudaGraphExecDestroy(launchable);
    cudaGraphDestroy(graph);
  }
  void launch(cudaStream_t stream) const {
    check(cudaGraphLaunch(launchable, stream), "cudaGraphLaunch");
  }

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launchable = nullptr;
};

/// The sum of sums, and so on: a graph that is launched again and again.
void check_graph(Communicator& communicator, cudaStream_t stream) {
  resnet::DeviceArray<float> values(1000);
  values.set(std::vector<float>(1000, 1.0f), stream);
  const Graph graph(communicator, values.data(), 1000, stream);
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  communicator.synchronize(stream);
  const auto sum = std::pow(static_cast<float>(communicator.world_size()), 3.0f);
  require(values.get(stream) == std::vector<float>(1000, sum), "a sum of a graph");
}

// ---- Faults

[[noreturn]] void hang() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void come_over(const std::string& fault, cudaStream_t stream) {
  if (fault == "killed") ::raise(SIGKILL);
  if (fault == "stopped") ::raise(SIGSTOP);
  if (fault == "exits") std::_Exit(0);
  if (fault == "throws") throw std::runtime_error("the data set is gone");
  if (fault == "hangs") hang();
  if (fault == "stream_hangs")
    check(cudaLaunchHostFunc(
              stream, [](void*) { hang(); }, nullptr),
          "cudaLaunchHostFunc");
}

constexpr int kAll = -2;

void run_steps(Communicator& communicator, cudaStream_t stream, const std::string& fault,
               int faulty) {
  resnet::DeviceArray<float> values(10'000);
  for (int step = 0; step < 6; ++step) {
    communicator.check();
    const bool here = step == 3 && (communicator.rank() == faulty || faulty == kAll);
    if (here && fault == "leaves") return;
    if (here && fault == "other_call")
      communicator.broadcast(values.data(), 4, 0, stream);
    else if (here)
      come_over(fault, stream);
    communicator.all_reduce(values.data(), 10'000, Precision::fp32, stream);
    if (step % 2 == 1) communicator.synchronize(stream);
  }
  if (fault == "gather_hangs" && communicator.rank() == faulty) hang();
  communicator.all_gather("end");
}

/// With the graph still there when a rank is lost.
void replay_steps(Communicator& communicator, cudaStream_t stream, const std::string& fault,
                  int faulty) {
  resnet::DeviceArray<float> values(10'000);
  values.set(std::vector<float>(10'000, 0.0f), stream);
  const Graph graph(communicator, values.data(), 10'000, stream);
  for (int step = 0; step < 6; ++step) {
    communicator.check();
    if (step == 3 && communicator.rank() == faulty) come_over(fault, stream);
    graph.launch(stream);
    if (step % 2 == 1) communicator.synchronize(stream);
  }
  communicator.all_gather("end");
}

/// For seconds.
void run_slowly(Communicator& communicator, cudaStream_t stream) {
  resnet::DeviceArray<float> values(10);
  for (int step = 0; step < 30; ++step) {
    communicator.check();
    communicator.all_reduce(values.data(), 10, Precision::fp32, stream);
    communicator.synchronize(stream);
    if (step == 0) std::puts("under way"), std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

/// The others come to their end long after rank 0 has.
void end_late(Communicator& communicator, cudaStream_t stream) {
  check_graph(communicator, stream);
  if (communicator.rank() == 0) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  communicator.synchronize(stream);
  communicator.check();
}

void run(Communicator& communicator, const std::string& what, const std::string& fault,
         int faulty) {
  const Stream stream;
  if (what == "sums") {
    check_sums(communicator, stream.stream);
    check_broadcasts(communicator, stream.stream);
    check_gathers(communicator);
    check_graph(communicator, stream.stream);
  } else if (what == "late") {
    end_late(communicator, stream.stream);
  } else if (what == "slow") {
    run_slowly(communicator, stream.stream);
  } else if (what == "steps" || what == "unwinds") {
    run_steps(communicator, stream.stream, fault, faulty);
  } else if (what == "replays") {
    replay_steps(communicator, stream.stream, fault, faulty);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<Communicator> communicator;
  try {
    const std::string what = argv[1];
    auto made = resnet::make_communicator(penstock::Ranks::from_environment(),
                                          {.timeout = std::chrono::seconds(std::atoi(argv[2]))});
    Communicator& ranks = *made;
    if (what != "unwinds") communicator = std::move(made);
    run(ranks, what, argc > 3 ? argv[3] : "", argc > 4 ? std::atoi(argv[4]) : -1);
    std::printf("done\n");
    return 0;
  } catch (const resnet::RankError& error) {
    std::printf("lost %d: %s\n", error.rank(), error.what());
    std::fflush(stdout);  // What comes now may take too long, and be ended.
    return 3;
  } catch (const std::exception& error) {
    std::printf("failed: %s\n", error.what());
    if (communicator) communicator->fail(error.what());
    return 1;
  }
}
