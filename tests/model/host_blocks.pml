/* SPDX-License-Identifier: Apache-2.0
 *
 * The waits for a block of a Prefetcher: include/penstock/detail/memory/host_blocks.hpp, with every step
 * of them. Workers acquire blocks, of which one worker at a time asks CUDA for finished copies; the
 * thread that stages queues the copies, and the device runs them. All blocks are in use (`limited` is
 * false).
 *
 *   BATCHES for the WORKERS together; ERRORS: batches and calls of CUDA's that fail; CLOSES: the ring is
 *   closed some time; KEEPS: behind so many copies there is no slot until the workers are through.
 */

#include "defaults.pml"
#include "event_count.pml"
#include "calls.pml"

#define ALL_BLOCKS ((1 << BLOCKS) - 1)

byte idle = ALL_BLOCKS, lost; /* free_, lost_: blocks as bits */
byte copying_[BLOCKS];
byte issued_, polled_, done;  /* done: the device's: so many copies have run */
bool polling_, closed;
EventCount changed_;

chan filled = [BLOCKS] of { byte }; /* blocks that wait for their copies */
byte reserved, ended_workers, over; /* over: threads */

/* HostBlocks::release */
inline release(b) {
  atomic { assert(!(idle & b)); idle = idle | b; b = 0 };
#ifndef NO_NOTIFY_OF_RELEASE
  notify_one(changed_)
#endif
}

/* HostBlocks::lose */
inline lose(b) {
  atomic { lost = lost | b; b = 0 };
#ifndef NO_NOTIFY_OF_LOSE
  notify_all(changed_)
#endif
}

/* ---- Workers */

/* HostBlocks::try_take */
inline try_take() {
  atomic {
    if
    :: idle & 1 -> block = 1
    :: !(idle & 1) && (idle & 2) -> block = 2
    :: else
    fi;
    idle = idle & ~block
  }
}

/* The condition of the wait in HostBlocks::acquire */
inline look() {
  try_take();
  if
  :: block != 0 -> found = true
  :: else ->
     atomic { /* stopped, all_lost; begin_polling */
       found = (closed || lost == ALL_BLOCKS);
       if
       :: !found && polled_ != issued_ && !polling_ -> polling_ = true; polls = true; found = true
       :: else
       fi
     }
  fi
}

/* changed_.wait there */
inline wait_for_block() {
  look();
  if
  :: found
  :: else ->
     changed_.waiters++;
     LOCK(changed_.mutex);
     do
     :: take_calls(changed_);
        look();
        if
        :: found -> break
        :: else -> sleep_in(changed_)
        fi
     od;
     atomic { changed_.waiters--; UNLOCK(changed_.mutex) };
     pass_on(changed_)
  fi;
  found = false
}

/* HostBlocks::poll; `found`: there were some. */
inline poll() {
  do
  :: atomic {
       if
       :: polled_ == issued_ || (polled_ == done && !fails) -> break
       :: polled_ < done && MAY_WORK -> b = copying_[polled_ % BLOCKS]
       :: polled_ < issued_ && MAY_FAIL -> IT_FAILS; b = copying_[polled_ % BLOCKS]; fails = true
       fi;
       polled_++;
       found = true
     };
     if
     :: fails -> fails = false; lose(b)
     :: else -> release(b)
     fi
  od
}

/* changed_.wait_until in poll_for_block: until a block, the end, or the time-out. A time-out before the
 * oldest copy is done would only lead here again. */
inline wait_for_copy() {
  changed_.waiters++;
  LOCK(changed_.mutex);
  late = false;
  do
  :: take_calls(changed_);
     try_take();
     if
     :: block != 0 || closed -> found = true; break
     :: else
     fi;
     if
     :: late -> break
     :: else
     fi;
     atomic { changed_.asleep = changed_.asleep | me; UNLOCK(changed_.mutex) };
     atomic {
       !changed_.mutex && (!(changed_.asleep & me) || polled_ < done) ->
       changed_.mutex = true;
       if
       :: changed_.asleep & me -> changed_.asleep = changed_.asleep & ~me; late = true
       :: else
       fi
     }
  od;
  late = false;
  atomic { changed_.waiters--; UNLOCK(changed_.mutex) };
  if
  :: found -> pass_on(changed_)
  :: else -> answered = 0
  fi
}

/* HostBlocks::poll_for_block */
inline poll_for_block() {
  do
  :: poll();
     if
     :: found || polled_ == issued_ -> break
     :: else -> wait_for_copy()
     fi;
     if
     :: found -> break
     :: else
     fi
  od;
  found = false;
  polling_ = false; /* end_polling */
#ifndef NO_NOTIFY_OF_END_POLLING
  notify_one(changed_)
#endif
}

/* HostBlocks::acquire */
inline acquire() {
  do
  :: wait_for_block();
     if
     :: polls -> polls = false; poll_for_block()
     :: else
     fi;
     if
     :: block != 0 || closed || lost == ALL_BLOCKS -> break
     :: else
     fi
  od
}

proctype Worker(byte w) {
  byte me = 1 << w, block, b;
  bool found, polls, fails, late;
  EVENT_COUNT_LOCALS;

  do
  :: atomic { reserved < BATCHES && !closed -> reserved++ };
     acquire();
     if
     :: block == 0
     :: block != 0 -> filled!block; block = 0
     :: atomic { block != 0 && errors_left > 0 -> errors_left-- }; release(block) /* It failed. */
     fi
  :: atomic { reserved == BATCHES || closed } -> break
  od;
  ended_workers++
}

/* ---- The thread that stages, and the device */

#ifdef KEEPS
#define HAS_SLOT (issued_ < KEEPS || ended_workers == WORKERS)
#else
#define HAS_SLOT true
#endif

/* HostBlocks::release_after, behind a copy that may have failed */
proctype Stager() {
  byte b;
  bool ok;
  EVENT_COUNT_LOCALS;

  do
  :: atomic { nempty(filled) && HAS_SLOT -> filled?b };
     atomic { call(ok) };
     if
     :: ok ->
        atomic { assert(issued_ - polled_ < BLOCKS); copying_[issued_ % BLOCKS] = b; b = 0 };
        issued_++;
#ifndef NO_NOTIFY_OF_A_COPY
        notify_one(changed_)
#endif
     :: !ok -> done == issued_; release(b) /* wait_on_host */
     :: !ok -> lose(b)
     fi
  :: ended_workers == WORKERS && empty(filled) -> break
  od;
  over++
}

proctype Device() {
end:
  do
  :: atomic { done < issued_ -> done++ }
  od
}

#ifdef CLOSES
/* Pipeline::close_ring: BatchMemory::wake */
proctype Closer() {
  closed = true;
#ifndef NO_WAKE
  notify_all(changed_)
#endif
}
#endif

byte w;

init {
  atomic {
    for (w : 0 .. WORKERS - 1) { run Worker(w) };
    w = 0;
    run Stager();
    run Device();
#ifdef CLOSES
    run Closer()
#endif
  };
  over == 1;
  atomic { /* No block is missing. */
    do
    :: polled_ < issued_ -> idle = idle | copying_[polled_ % BLOCKS]; polled_++
    :: else -> break
    od;
    assert((idle | lost) == ALL_BLOCKS && !polling_)
  }
}

ltl it_comes_to_its_end { <> (over == 1) }
