// SPDX-License-Identifier: Apache-2.0

#include "engine_pool.hpp"

#include <map>
#include <penstock/cuda.hpp>
#include <penstock/images/image_error.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::video {

std::shared_ptr<EnginePool> EnginePool::of_current_device(std::string& why_not) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<EnginePool>> pools;
  const std::lock_guard lock(mutex);
  std::weak_ptr<EnginePool>& known = pools[current_device()];
  if (std::shared_ptr<EnginePool> pool = known.lock()) return pool;
  std::unique_ptr<EngineMaker> maker = make_nvdec(why_not);
  if (maker == nullptr) return nullptr;
  auto pool = std::make_shared<EnginePool>(std::move(maker));
  known = pool;
  return pool;
}

std::string EnginePool::why_not(const VideoStream& stream) {
  const std::lock_guard lock(mutex_);
  return maker_->why_not(stream);
}

EnginePool::Lease EnginePool::take(const VideoStream& stream, bool waits,
                                   const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const int most = 2 * maker_->engines(stream);
  const auto is_free = [&] { return used_ < most; };
  if (!waits && !is_free()) return {};
  if (!is_free_.wait(lock, stop, is_free)) throw images::DecodeStopped();
  std::unique_ptr<FrameEngine> engine;
  if (free_.empty()) {
    engine = maker_->make();
  } else {
    engine = std::move(free_.back());
    free_.pop_back();
  }
  free_.reserve(static_cast<std::size_t>(most));  // give_back() cannot fail.
  ++used_;
  return Lease(engine.release(), {this});
}

void EnginePool::give_back(FrameEngine* engine) {
  {
    const std::lock_guard lock(mutex_);
    free_.emplace_back(engine);
    --used_;
  }
  is_free_.notify_one();
}

}  // namespace penstock::video
