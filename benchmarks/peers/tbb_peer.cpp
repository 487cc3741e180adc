// SPDX-License-Identifier: Apache-2.0

// oneTBB's side of benchmarks/peers/run: its parallel_pipeline, with a parallel_for over the
// samples of a batch.
//
//   tbb_peer TASK DATA          commands on the standard input: beside/peer.hpp

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>

#include "beside/peer.hpp"

namespace {

using peers::Json;
using Numbers = std::vector<std::int64_t>;

struct Task {
  std::uint64_t samples;
  std::size_t batch;
  bool slow;
  std::vector<std::uint64_t> order{};  // of the slow task: shuffled, the same in each epoch

  std::uint64_t batches() const { return (samples + batch - 1) / batch; }
  void fill(std::uint64_t number, Numbers& out) const {
    const std::uint64_t begin = number % batches() * batch;
    out.resize(std::min<std::uint64_t>(batch, samples - begin));
    const auto sample = [&](std::size_t i) {
      const std::uint64_t index = slow ? order[begin + i] : begin + i;
      if (slow)
        std::this_thread::sleep_for(std::chrono::milliseconds(index % 500 == 499 ? 100 : 1));
      out[i] = static_cast<std::int64_t>(index);
    };
    if (!slow) return sample(0);
    tbb::parallel_for(std::size_t{0}, out.size(), sample, tbb::simple_partitioner());
  }
};

void run(const Task& task, const Json& setting, std::uint64_t epochs,
         const peers::Consumer& consumer) {
  const int threads = setting.at("threads");
  const std::size_t depth = setting.at("depth");
  tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                            static_cast<std::size_t>(threads));
  tbb::task_arena arena(threads);
  std::vector<Numbers> buffers(depth, Numbers(task.batch));
  std::uint64_t next = 0;
  std::atomic<bool> done = false;
  const auto number = tbb::make_filter<void, std::uint64_t>(
      tbb::filter_mode::serial_in_order, [&](tbb::flow_control& control) {
        if (next == epochs * task.batches() || done) control.stop();
        return next++;
      });
  const auto fill =
      tbb::make_filter<std::uint64_t, Numbers*>(tbb::filter_mode::parallel, [&](std::uint64_t n) {
        Numbers& buffer = buffers[n % depth];  // Batches leave in order, so it is free.
        task.fill(n, buffer);
        return &buffer;
      });
  const auto take = tbb::make_filter<Numbers*, void>(
      tbb::filter_mode::serial_in_order, [&](const Numbers* batch) {
        if (done) return;
        if (consumer.digest != nullptr)
          for (const std::int64_t one : *batch)
            consumer.digest->number(static_cast<std::uint64_t>(one));
        if (!consumer.batch(static_cast<std::int64_t>(batch->size()))) done = true;
      });
  arena.execute([&] { tbb::parallel_pipeline(depth, number & fill & take); });
}

peers::Run task(const std::string& name, const Json& sizes) {
  const bool slow = name == "slow_sample";
  if (!slow && name != "loop") throw std::invalid_argument("no such task: " + name);
  Task its{sizes.at(slow ? "slow_samples" : "loop_samples"), slow ? 64u : 1u, slow};
  if (slow) {
    its.order.resize(its.samples);
    std::iota(its.order.begin(), its.order.end(), std::uint64_t{0});
    std::shuffle(its.order.begin(), its.order.end(), std::mt19937_64(7));
  }
  return [its](const Json& setting, std::uint64_t epochs, const peers::Consumer& consumer) {
    run(its, setting, epochs, consumer);
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "tbb_peer TASK DATA, of which benchmarks/peers/run made the data\n");
    return 2;
  }
  try {
    std::ifstream about(std::string(argv[2]) + "/data.json");
    return peers::serve(task(argv[1], Json::parse(about).at("sizes")));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tbb_peer: %s\n", error.what());
    return 1;
  }
}
