// SPDX-License-Identifier: Apache-2.0
#include "shared_event.hpp"

#include <new>
#include <string>
#include <utility>

#include "report.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

std::unique_ptr<SharedEvent> SharedEvent::make(int device, std::uint64_t records,
                                               const Time* reached) {
  std::unique_ptr<SharedEvent> event(new SharedEvent);
  event->file_ = SharedFile::create(SharedKind::event, whole_pages(sizeof(State)));
  if (!event->file_) return nullptr;
  event->pages_ = SharedPages(*event->file_, 0, sizeof(State));
  if (!event->pages_) return nullptr;
  // The file is full of zeros, so only other values are written; it then uses few pages.
  State& state = event->state();
  state.magic = State::kMagic;
  state.owner = this_process();
  state.device = device;
  state.last.store(records, std::memory_order_relaxed);
  Record& last = event->slot(records);
  last.process.store(this_process().number, std::memory_order_relaxed);
  last.process_start.store(this_process().start, std::memory_order_relaxed);
  last.word.store(word(records, Progress::pending), std::memory_order_release);
  if (reached != nullptr) event->finish(records, false, *reached);
  return event;
}

std::unique_ptr<SharedEvent> SharedEvent::open(const SharedFile& file) {
  std::unique_ptr<SharedEvent> event(new SharedEvent);
  event->pages_ = SharedPages(file, 0, sizeof(State));
  if (!event->pages_ || event->state().magic != State::kMagic ||
      event->state().destroyed.load(std::memory_order_acquire) != 0)
    return nullptr;
  return event;
}

SharedEvent::~SharedEvent() {
  if (file_ && pages_) state().destroyed.store(1, std::memory_order_release);
}

InterprocessHandle SharedEvent::handle() const {
  InterprocessHandle handle(SharedKind::event, file_->place());
  handle.bytes = sizeof(State);
  return handle;
}

void SharedEvent::tell(const std::string& what) {
  if (!std::exchange(told_, true)) report(what);
}

bool SharedEvent::destroyed() {
  if (of_this_process() || state().destroyed.load(std::memory_order_acquire) == 0) return false;
  tell("an event of process " + std::to_string(state().owner.number) +
       " is used after that process has destroyed it: destroy it when every other process has "
       "destroyed its own");
  return true;
}

bool SharedEvent::full() const {
  const std::uint64_t before = slot(last() + 1).word.load(std::memory_order_acquire);
  return before != 0 && (before & 3) == static_cast<std::uint64_t>(Progress::pending);
}

std::uint64_t SharedEvent::begin() {
  std::uint64_t last = this->last();
  do {
    if (full()) return 0;
  } while (!state().last.compare_exchange_weak(last, last + 1, std::memory_order_acq_rel));
  // A process that reads the number before this writes the slot finds an older record there, which
  // means: not done.
  const std::uint64_t record = last + 1;
  Record& mine = slot(record);
  mine.process.store(this_process().number, std::memory_order_relaxed);
  mine.process_start.store(this_process().start, std::memory_order_relaxed);
  mine.word.store(word(record, Progress::pending), std::memory_order_release);
  return record;
}

void SharedEvent::finish(std::uint64_t record, bool failed, Time time) {
  Record& mine = slot(record);
  if (record == 0 || mine.word.load(std::memory_order_relaxed) != word(record, Progress::pending))
    return;  // It was recorded again before it was shared.
  mine.time.store(time.time_since_epoch().count(), std::memory_order_relaxed);
  mine.word.store(word(record, failed ? Progress::failed : Progress::done),
                  std::memory_order_release);
}

SharedEvent::Progress SharedEvent::progress(std::uint64_t record) {
  const std::uint64_t now = slot(record).word.load(std::memory_order_acquire);
  // The next record in the slot begins only after this one is done.
  if (now >> 2 > record) return Progress::done;
  if (now >> 2 == record && (now & 3) != static_cast<std::uint64_t>(Progress::pending)) {
    const auto progress = static_cast<Progress>(now & 3);
    if (progress == Progress::failed)
      tell("the work before a record of process " + std::to_string(slot(record).process.load()) +
           " has failed there, and this process waits for the record");
    return progress;
  }
  const Time time = Clock::now();
  if (now >> 2 != record || time - looked_ < kLookEvery) return Progress::pending;
  looked_ = time;
  const ProcessIdentity process{slot(record).process.load(std::memory_order_relaxed),
                                slot(record).process_start.load(std::memory_order_relaxed)};
  if (runs(process)) return Progress::pending;
  // The process may have completed the record just before it ended. Otherwise it never will.
  std::uint64_t expected = now;
  if (!slot(record).word.compare_exchange_strong(expected, word(record, Progress::failed)))
    return this->progress(record);
  tell("process " + std::to_string(process.number) +
       " has ended before it came to its record of an event for which this process waits");
  return Progress::failed;
}

Time SharedEvent::time(std::uint64_t record) const {
  return Time(Clock::duration(slot(record).time.load(std::memory_order_relaxed)));
}

}  // namespace penstock::emulation::detail
