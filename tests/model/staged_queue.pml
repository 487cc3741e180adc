/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/detail/pipeline/staged_queue.hpp. What stands between lock and unlock of its mutex is one
 * step: nothing in there waits.
 */

chan line_ = [SLOTS] of { byte }; /* slots, in order */
byte size_;
bool ended_, failed_, failure_;
EventCount changed_;

#define HAS_NEWS (size_ != 0 || ended_ || failed_) /* StagedQueue::has_news */

/* StagedQueue::push, its line_.push_back before it */
inline pushed() {
  size_++;
#ifndef NO_NOTIFY_OF_PUSH
  notify_one(changed_)
#endif
}

/* StagedQueue::end */
inline line_end() {
  ended_ = true;
#ifndef NO_NOTIFY_OF_END
  notify_one(changed_)
#endif
}

/* StagedQueue::fail: of several failures, the first. */
inline fail() {
#ifdef FAILS_IN_TWO_STEPS
  failure_ = true;
  failed_ = true;
#else
  atomic { failure_ = true; failed_ = true };
#endif
#ifndef NO_NOTIFY_OF_FAIL
  notify_one(changed_)
#endif
}

/* StagedQueue::throw_failure */
inline throw_failure(thrown) {
  atomic {
    if
    :: !failed_
    :: else -> thrown = failure_; failure_ = false; failed_ = false
    fi
  }
}

/* StagedQueue::clear: nobody pushes meanwhile. */
inline clear() {
  do
  :: atomic { nempty(line_) -> line_?slot };
     drop_slot(slot)
  :: empty(line_) -> break
  od;
  atomic {
    size_ = 0;
#ifndef CLEAR_KEEPS_THE_END
    ended_ = false
#endif
  }
}
