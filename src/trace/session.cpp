// SPDX-License-Identifier: Apache-2.0
#include <penstock/trace/session.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <penstock/detail/sync/owner_process.hpp>
#include <stdexcept>
#include <utility>

#include "backend.hpp"
#include "nvtx.hpp"
#include "origin.hpp"
#include "ranges.hpp"
#include "salvage.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

namespace {

using detail::Backend;
using detail::EventSink;

std::atomic<bool> recording_in_this_process{false};

/// The claim of a session on the process. There is at most one at a time.
class Claim {
 public:
  Claim() {
    if (recording_in_this_process.exchange(true))
      throw Unavailable(
          "there is another penstock::trace::Session in this process, and CUPTI allows one at a "
          "time: stop that one first");
  }
  ~Claim() { recording_in_this_process = false; }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
};

}  // namespace

struct Session::Recorder {
  /// Returns the recorder of this process.
  static std::atomic<Recorder*>& current() {
    static constinit std::atomic<Recorder*> the_current{nullptr};
    return the_current;
  }

  explicit Recorder(SessionOptions asked);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void resume();
  void pause();
  bool finish();
  Timeline stop();
  Timeline take();
  Timeline recent();

  const SessionOptions options;
  std::optional<Claim> claim = std::make_optional<Claim>();
  EventSink sink;

  // Any thread may call the switch, even within a CUDA call. So a thread that holds the lock must
  // not wait for such a call.
  std::mutex mutex;
  bool recording = false, ended = false;
  Time begin = 0, end = 0;  ///< begin of the first recorded period, end of the last one
  std::mutex taking;        ///< taken before `mutex`; keeps the backend while a timeline is taken
  std::unique_ptr<Backend> backend;
  const penstock::detail::OwnerProcess process;

 private:
  void close();
  Time first_moment(Time until) const;
  void complete(Timeline& timeline) const;
};

Session::Recorder::Recorder(SessionOptions asked)
    : options(asked), sink(options.max_events, options.last.count()) {
  const auto switch_recording = [](void* self, bool start) {
    auto& recorder = *static_cast<Recorder*>(self);
    if (!recorder.options.capture_range) return;
    start ? recorder.resume() : recorder.pause();
  };
  auto made = detail::emulated_runtime_is_linked()
                  ? detail::make_emulated_backend(sink, options, switch_recording, this)
                  : detail::make_cupti_backend(sink, options, switch_recording, this);
  {
    const std::lock_guard lock(mutex);  // The backend may have called the switch already.
    backend = std::move(made);
  }
  detail::start_names(sink, *backend);
  try {
    if (!options.capture_range) resume();
  } catch (...) {
    detail::stop_ranges(detail::now());
    detail::stop_names();
    throw;
  }
  current() = this;
}

Session::Recorder::~Recorder() {
  // In a forked child, neither CUDA nor the threads that the backend would wait for exist.
  if (!process.is_this()) static_cast<void>(backend.release());
  if (!process.is_this() || !finish()) return;
  current() = nullptr;
  detail::stop_names();
}

void Session::Recorder::resume() {
  const std::lock_guard lock(mutex);
  if (recording || ended || backend == nullptr) return;
  recording = true;
  const Time time = detail::now();
  if (begin == 0) begin = time;
  if (options.ranges) detail::start_ranges(sink, time);
  backend->resume();
}

void Session::Recorder::pause() {
  const std::lock_guard lock(mutex);
  close();
}

/// Ends recording permanently: a later cudaProfilerStart of another thread has no effect. Returns
/// false if it was ended before.
bool Session::Recorder::finish() {
  const std::lock_guard lock(mutex);
  if (std::exchange(ended, true)) return false;
  close();
  return true;
}

/// The lock is held.
void Session::Recorder::close() {
  if (!recording) return;
  recording = false;
  end = detail::now();
  detail::stop_ranges(end);
  backend->pause();
}

Timeline Session::Recorder::stop() {
  if (!finish()) throw std::logic_error("Session::stop: it was stopped before");
  const std::lock_guard lock(taking);
  current() = nullptr;
  backend->flush();  // Work that was submitted until now ends after `end`.
  detail::stop_names();
  Timeline timeline = take();
  timeline.origin.device = backend->device_name();
  timeline.engine_use = backend->engine_use(timeline);
  backend.reset();
  claim.reset();  // The next session may begin.
  return timeline;
}

/// Returns the first kept moment of a timeline that ends at `until`.
Time Session::Recorder::first_moment(Time until) const {
  return options.last.count() == 0 ? begin : std::max(begin, until - options.last.count());
}

Timeline Session::Recorder::take() {
  Timeline timeline = sink.take(first_moment(end), detail::now());
  timeline.end = std::max(timeline.begin, end);
  for (const Event& event : timeline.events) timeline.end = std::max(timeline.end, event.end);
  // The backend reads the memory once more when the recording ends, a moment later.
  for (MemoryLevel& level : timeline.memory) level.begin = std::min(level.begin, timeline.end);
  complete(timeline);
  return timeline;
}

Timeline Session::Recorder::recent() {
  if (options.last.count() == 0)
    throw std::logic_error("Session::recent: SessionOptions::last says how much is kept");
  const std::lock_guard lock(taking);
  std::unique_lock state(mutex);
  if (ended) throw std::logic_error("Session::recent: it was stopped before");
  const bool goes_on = recording;
  const Time last_end = end;
  state.unlock();  // CUPTI has locks of its own.
  detail::tell_names_again();
  backend->hand_over();
  const detail::RangesUnderWay open = detail::open_ranges();
  const Time until = goes_on ? open.moment : last_end;
  Timeline timeline = sink.copy(first_moment(until), std::max(begin, until), open);
  complete(timeline);
  timeline.origin.device = backend->device_name();
  timeline.engine_use = backend->engine_use(timeline);
  return timeline;
}

void Session::Recorder::complete(Timeline& timeline) const {
  backend->complete(timeline);
  timeline.origin = detail::this_origin(timeline.begin);
  timeline.origin.recorder = backend->name();
  timeline.origin.emulated = detail::emulated_runtime_is_linked();
  if (options.last.count() != 0)
    timeline.origin.excerpt = detail::excerpt(timeline, begin, options.last.count());
}

Session::Session(SessionOptions options) : recorder_(std::make_unique<Recorder>(options)) {}

Session::~Session() = default;

Timeline Session::stop() {
  return recorder_->stop();
}

Timeline Session::recent() {
  return recorder_->recent();
}

/// The part of a session that salvage() needs. It calls no CUDA function, which a forked copy must
/// not use.
struct detail::Salvage {
  static std::optional<Timeline> now() {
    Session::Recorder* const recorder = Session::Recorder::current();
    if (recorder == nullptr || recorder->begin == 0) return {};
    if (recorder->recording) {
      recorder->end = detail::now();
      stop_ranges(recorder->end);
    }
    return recorder->take();
  }
};

std::optional<Timeline> detail::salvage() {
  return Salvage::now();
}

}  // namespace penstock::trace
