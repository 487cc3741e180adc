/* SPDX-License-Identifier: Apache-2.0
 *
 * The waits of a BatchProducer: pipeline.hpp without a DeviceRoute. Workers, the ring, the pool, and one
 * consumer that waits at the ring; EventCount, mutexes and condition variables step by step. It proves
 * what pipeline.pml takes for granted: a wait for a record or for the ring ends when what it waits for is
 * there. Batches that come UNORDERED have their free records in a stack, as those of a Prefetcher have.
 */

#include "defaults.pml"

#define RECORDS DEPTH
#ifdef UNORDERED
#define STACK
#endif

bool all_over;

#include "event_count.pml"
#include "calls.pml"
#include "pinned_pool.pml"
#include "record_ring.pml"

EventCount room_, delivery_;

#define copy(r) more = true
#ifdef NO_NOTIFY_OF_END_RECORD
#define room_notify_one() skip
#else
#define room_notify_one() notify_one(room_)
#endif
#define room_notify_all() notify_all(room_)
#define release(block)   \
  if                     \
  :: block == 0          \
  :: else -> release_block(block) \
  fi
#define reopen_all(first) \
  atomic { reopen(first); for (i : 0 .. WORKERS - 1) { stop_requested[i] = false }; i = 0 }

#include "route.pml"

/* ---- The worker */

#define NO_MORE ((has_turn && claims_closed) || (!has_turn && ALL_RESERVED)) /* `ended` there */

/* Pipeline::take_record. The condition of its wait takes a record, so that wait is written out. */
inline take_record() {
  atomic { has_turn = false; try_take() };
  if
  :: has_record || NO_MORE
  :: else ->
     room_.waiters++;
     LOCK(room_.mutex);
     do
     :: take_calls(room_);
        atomic { try_take() };
        if
        :: has_record || NO_MORE -> break
        :: else -> sleep_in(room_)
        fi
     od;
     room_.waiters--;
     UNLOCK(room_.mutex);
     pass_on(room_)
  fi;
  if
  :: has_record
  :: else -> notify_one(room_)
  fi
}

/* Pipeline::run, open_next and finish, for a source of whole batches */
inline run_worker() {
  do
  :: take_record();
     if
     :: !has_record -> break
     :: else
     fi;
#ifdef NUMBER_BEFORE_BLOCK
     atomic { claim(number) };
     if
     :: number == NONE -> atomic { put_back() }; break
     :: else
     fi;
#endif
     try_acquire_block(block);
     if
     :: block == 0 -> acquire_slowly(block, exhausted)
     :: else
     fi;
     if
     :: block == 0 && !exhausted -> atomic { put_back() }; break
     :: else
     fi;
#ifndef NUMBER_BEFORE_BLOCK
     atomic { claim(number) };
     if
     :: number == NONE ->
        atomic { put_back() };
        release(block);
        break
     :: else
     fi;
#endif
     atomic {
       open(number);
       fill(number, exhausted);
       exhausted = false;
       if
       :: records[taken].is == filled -> records[taken].memory = block; block = 0
       :: else
       fi
     };
     release(block);
     if
     :: records[taken].is == ended -> close_ring()
     :: else
     fi;
     publish(number, taken);
     atomic { number = NONE; taken = 0 };
#ifndef NO_NOTIFY_OF_PUBLISH
     notify_one(delivery_)
#endif
  od
}

/* The w-th worker thread of each run. */
proctype Worker(byte w) {
  byte me = 1 << w, number = NONE, taken, position, closing, block, asked, found;
  bool has_turn, has_record, exhausted, polls, wakes, fails;
  EVENT_COUNT_LOCALS;

  do
  :: running[w] ->
     run_worker();
     atomic {
       number = NONE; taken = 0; has_turn = false; has_record = false; exhausted = false;
       running[w] = false
     }
  :: all_over -> break
  od
}

/* ---- The consumer */

/* Pipeline::ready; on which of the records `rec` is then, or NONE. */
inline ready() {
  do
  :: staged_head();
     if
     :: rec != NONE -> break
     :: else -> stage_next()
     fi;
     if
     :: more -> more = false
     :: else -> break
     fi
  od
}

/* Pipeline::next_filled; `came` nothing: nullopt */
inline next_filled() {
  do
  :: ready();
     if
     :: rec != NONE || ended_ -> break
     :: else
     fi;
#ifdef WAITS_FOR_FILLED_ALONE
     event_count_wait(delivery_, (HAS_FILLED))
#else
     event_count_wait(delivery_, (HAS_FILLED || ALL_STAGED))
#endif
  od;
  came = nothing;
  if
  :: rec == NONE -> atomic { check_end() }
  :: else ->
     atomic {
       came = records[rec].is;
       check_delivery(records[rec].number);
       if
       :: came == filled -> block = records[rec].memory; records[rec].memory = 0
       :: else
       fi;
       take()
     };
     end_record(rec)
  fi;
  rec = NONE
}

/* HostBatch: its destructor, or release_after with a copy that is under way. */
inline give_back() {
  if
  :: release_block(block)
  :: atomic { !(read_by_copies & block) -> read_by_copies = read_by_copies | block };
     atomic {
       !pool_mutex ->
       if
       :: MAY_WORK
       :: MAY_FAIL -> IT_FAILS; fails = true
       fi
     };
     if
     :: fails -> keep(lost, block); fails = false
     :: else -> keep(in_flight, block)
     fi
  fi
}

/* Pipeline::end_run */
inline end_run() {
  close_ring();
  for (i : 0 .. WORKERS - 1) {
    stop_requested[i] = true;
#ifndef NO_STOP_CALLBACK
    if
    :: stop_callback[i] -> atomic { !pool_mutex -> pool_asleep = 0 }
    :: else
    fi
#endif
  };
  i = 0
}

/* The constructor; next again and again, with seek and the destructor after any of them. */
proctype Consumer() {
  byte me = 8, i, rec = NONE, block, closing, taken;
  bool more, ok, over, wakes, fails, sought;
  EVENT_COUNT_LOCALS;
  mtype came = nothing;

  restart(0);
  paused_ = false;
  do
  :: next_filled();
     if
     :: came == nothing -> break
     :: came == thrown -> came = nothing
     :: came == filled -> came = nothing; give_back()
     fi
#ifdef RESTORES
  :: !sought -> sought = true; restart(expected)
#endif
#ifdef CLOSES
  :: break
#endif
  od;
  end_run(); /* Pipeline::stop_and_join */
  join();
  all_over = true
}

#ifdef STOPS
/* Pipeline::stop_and_join, of a thread that is not the consumer's */
proctype Stopper() {
  byte i, closing;
  EVENT_COUNT_LOCALS;

  running[0] || all_over;
  end_run();
  join()
}
#endif

/* The device: copies end some time. */
proctype CopyStream() {
end:
  do
  :: atomic { read_by_copies & 1 -> read_by_copies = read_by_copies & ~1 }
  :: atomic { read_by_copies & 2 -> read_by_copies = read_by_copies & ~2 }
  od
}

byte w;

init {
  atomic {
    run Consumer();
    for (w : 0 .. WORKERS - 1) { run Worker(w) };
    w = 0;
#ifdef STOPS
    run Stopper();
#endif
    run CopyStream()
  }
}

ltl it_comes_to_its_end { <> all_over }
