// SPDX-License-Identifier: Apache-2.0
#include "cupti_visits.hpp"

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// All threads that ever visited. It is never destroyed, because callbacks come until the process
/// ends.
struct Threads {
  std::mutex mutex;
  std::vector<std::unique_ptr<VisitingThread>> all;
  std::vector<VisitingThread*> free;  // entries of threads that ended
};

Threads& threads() {
  static Threads& instance = *new Threads;  // NOLINT(cppcoreguidelines-owning-memory)
  return instance;
}

std::atomic<CuptiBackend*> current{nullptr};

VisitingThread* enrol() {
  Threads& list = threads();
  const std::lock_guard lock(list.mutex);
  if (!list.free.empty()) {
    VisitingThread* const thread = list.free.back();
    list.free.pop_back();
    return thread;
  }
  return list.all.emplace_back(std::make_unique<VisitingThread>()).get();
}

std::vector<const VisitingThread*> everyone() {
  Threads& list = threads();
  const std::lock_guard lock(list.mutex);
  std::vector<const VisitingThread*> found;
  for (const auto& thread : list.all) found.push_back(thread.get());
  return found;
}

/// These are plain thread-local words, which may be read while a thread ends and afterwards.
thread_local constinit VisitingThread* enrolled = nullptr;
thread_local constinit bool ended = false;

/// Returns the entry when its thread ends.
struct Leaver {
  ~Leaver() {
    ended = true;
    VisitingThread* const thread = enrolled;
    enrolled = nullptr;
    if (thread == nullptr) return;
    thread->window = 0;
    Threads& list = threads();
    const std::lock_guard lock(list.mutex);
    list.free.push_back(thread);
  }
};

}  // namespace

VisitingThread* Visit::this_thread() {
  if (enrolled == nullptr && !ended) {
    thread_local Leaver leaver;
    static_cast<void>(leaver);
    enrolled = enrol();
  }
  return enrolled;
}

// Either this thread sees that there is no backend any more, or lead_to() sees that this thread is
// inside: both write before they read, in one order for all threads.
Visit::Visit() : thread_(this_thread()) {
  if (thread_ == nullptr) return;
  thread_->depth.store(thread_->depth.load(std::memory_order_relaxed) + 1,
                       std::memory_order_seq_cst);
  backend_ = current.load(std::memory_order_seq_cst);
}

Visit::~Visit() {
  if (thread_ == nullptr) return;
  thread_->depth.store(thread_->depth.load(std::memory_order_relaxed) - 1,
                       std::memory_order_release);
}

void Visit::lead_to(CuptiBackend* backend) {
  current.store(backend, std::memory_order_seq_cst);
  if (backend != nullptr) return;
  // This does not hold the lock, because a thread inside may itself wait for a thread that visits
  // for the first time.
  for (const VisitingThread* const thread : everyone())
    while (thread != enrolled && thread->depth.load(std::memory_order_seq_cst) != 0)
      std::this_thread::yield();
}

}  // namespace penstock::trace::detail
