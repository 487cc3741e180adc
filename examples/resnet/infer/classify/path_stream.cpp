// SPDX-License-Identifier: Apache-2.0

// Paths that come on a stream: batches take them in turn, each what is there when its turn comes,
// and waits for one at least.

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>

#include "inputs.hpp"
#include "programs/interrupt.hpp"

namespace resnet::classify {
namespace {

class PathStream final : public Inputs {
 public:
  explicit PathStream(int descriptor) : descriptor_(descriptor) {}

  std::vector<Input> take(std::uint64_t batch, std::size_t most,
                          const std::stop_token& stop) override {
    {
      std::unique_lock lock(mutex_);
      if (!turn_.wait(lock, stop, [&] { return turn_of_ == batch; })) return {};
    }
    // Nobody else comes here before the turn goes on: no lock is held while paths are waited for.
    std::vector<Input> inputs;
    do {
      for (; inputs.size() < most && !lines_.empty(); lines_.pop_front())
        inputs.push_back({std::move(lines_.front())});
    } while (inputs.size() < most && !ended_ && read_more(inputs.empty(), stop));
    {
      const std::lock_guard lock(mutex_);
      ++turn_of_;
    }
    turn_.notify_all();
    return inputs;
  }

  std::optional<std::uint64_t> count() const override { return std::nullopt; }

 private:
  bool readable(int milliseconds) const {
    pollfd waited{descriptor_, POLLIN, 0};
    return poll(&waited, 1, milliseconds) > 0;
  }

  /// What is there; with `wait`, when something is. False: nothing is.
  bool read_more(bool wait, const std::stop_token& stop) {
    constexpr int patience = 50;  // milliseconds between looks at `stop`: it does not wake poll
    while (!readable(wait ? patience : 0)) {
      if (!wait) return false;
      ended_ = stop.stop_requested() || penstock::programs::interrupted();
      if (ended_) return false;
    }
    std::array<char, 65536> bytes;
    const ssize_t count = read(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "cannot read paths");
    for (ssize_t i = 0; i < count; ++i) add(bytes[static_cast<std::size_t>(i)]);
    if (count == 0) {
      add('\n');  // A last line needs none.
      ended_ = true;
    }
    return true;
  }

  void add(char c) {
    if (c != '\n') {
      // No path is longer. What is left of a longer line cannot be opened, and is told so.
      if (line_.size() <= PATH_MAX) line_.push_back(c);
      return;
    }
    if (line_.ends_with('\r')) line_.pop_back();
    if (!line_.empty()) lines_.push_back(std::move(line_));
    line_.clear();
  }

  const int descriptor_;
  std::mutex mutex_;
  std::condition_variable_any turn_;
  std::uint64_t turn_of_ = 0;  // a batch's number; the rest belongs to that batch
  std::deque<std::string> lines_;
  std::string line_;  // its end is yet to come
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<Inputs> read_paths(int descriptor) {
  return std::make_unique<PathStream>(descriptor);
}

}  // namespace resnet::classify
