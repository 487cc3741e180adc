/* SPDX-License-Identifier: Apache-2.0
 *
 * Model 2 of 2: the whole way, include/penstock/detail/pipeline/prefetcher.hpp. Workers, the pump, copies,
 * consumers that call next, restore and the destructor, threads that end leases, the device.
 * A worker's waits for room and for a block are those that model 1 proves: they end when what they
 * wait for is there.
 */

#include "defaults.pml"
#ifdef INLINE /* 0 workers: next itself runs the source */
#define NO_WORKERS true
byte inline_next_;
#else
#define NO_WORKERS false
#endif
#define PUMP_LOCALS                           \
  byte served, n, slot = NONE, block;         \
  bool more, yes, ok, fails, looks, over;     \
  mtype kind = nothing;

bool all_over;
byte threads_ended;

#define ALL_BLOCKS ((1 << BLOCKS) - 1)
byte idle = ALL_BLOCKS, lost; /* PinnedPool: blocks as bits */
#ifdef DEVICE
byte in_flight, read_by_copies;
#define BLOCKS_AT_HAND (idle | (in_flight & ~read_by_copies))
#else
#define BLOCKS_AT_HAND idle /* Copies take no time; a worker that comes late is as good. */
#endif
bool stop_requested[WORKERS];

#include "calls.pml"
#include "event_count.pml"
#include "record_ring.pml"
#include "batch_producer.pml"
#include "device_arena.pml"
#include "staged_queue.pml"

bool paused_ = true, take_mutex_, constructed;
#if CONSUMERS > 1
#define LOCK_TAKE LOCK(take_mutex_)
#define UNLOCK_TAKE UNLOCK(take_mutex_)
#else
#define LOCK_TAKE skip
#define UNLOCK_TAKE skip
#endif
byte requests_;
byte reserved_ = NONE;
byte staged_number[SLOTS];
bool staged_error[SLOTS];

/* Within an atomic. HandOver::reserve_slot: `slot` is NONE when there is none; `ok` is false when it
 * threw. */
inline reserve_slot() {
  if
  :: reserved_ == NONE -> try_acquire_slot(slot)
  :: else -> ok = true; slot = reserved_
  fi;
  reserved_ = slot
}

#ifdef DEVICE
#define QUEUE_COPY read_by_copies = read_by_copies | block; copies!block, slot
#ifdef RELEASES_AT_ONCE
#define GIVE_BACK_BLOCK if :: fails -> idle = idle | block :: else -> in_flight = in_flight | block fi
#else
#define GIVE_BACK_BLOCK in_flight = in_flight | block
#endif
#else
#define QUEUE_COPY skip
#define GIVE_BACK_BLOCK idle = idle | block
#endif

/* Within an atomic. HandOver::copy. One that fails may be under way in part. The block goes back
 * when its event is reached, or, where that cannot be recorded, never. */
inline copy() {
  if
  :: MAY_WORK -> QUEUE_COPY
  :: MAY_FAIL -> IT_FAILS; fails = true
#ifdef DEVICE
  :: MAY_FAIL -> IT_FAILS; fails = true; QUEUE_COPY
#endif
  fi;
  if
  :: MAY_WORK -> GIVE_BACK_BLOCK
  :: MAY_FAIL -> IT_FAILS; fails = true; lost = lost | block
  fi
}

/* Within an atomic. */
inline take_back() {
#ifdef DEVICE
  idle = BLOCKS_AT_HAND;
  in_flight = in_flight & ~idle
#else
  skip
#endif
}

/* Within an atomic. HandOver::stage, up to line_.push_back: batch `n`, of `kind`, in `block`. */
inline stage() {
  fails = (kind == failed);
  if
  :: fails
  :: else -> copy()
  fi;
  reserved_ = NONE;
  MOVE(slot, is_reserved, is_staged);
  staged_number[slot] = n;
  staged_error[slot] = fails;
  line_!slot;
  n = 0; block = 0; fails = false; kind = nothing; slot = NONE
}

/* Within an atomic. Stages the batch that was found at the head, if there is a slot. Others see of
 * it: room, a block in flight, a copy; none of them sees two of these, nor their order. */
inline try_stage() {
  reserve_slot();
  if
  :: slot != NONE -> more = true; look_at_head(); pop(); stage()
  :: else
  fi
}

/* HandOver::stage_ready_batch */
inline stage_ready_batch() {
  ok = true;
  atomic {
    if
    :: paused_ || ended_ || NO_WORKERS
    :: else ->
       looks = true;
       ready(yes);
       if
       :: yes -> looks = false; try_stage()
       :: else
       fi
    fi;
    yes = false
  };
  if
  :: looks -> /* Nothing was there: at_end goes on, and then another look. */
     atomic {
       finished = (finished || OVER);
       looks = false;
       if
       :: finished -> over = true
       :: else ->
#ifdef READY_DOES_NOT_LOOK
          yes = FULL;
#else
          ready(yes);
#endif
          if
          :: yes -> try_stage()
          :: else
          fi
       fi;
       yes = false
     }
  :: else
  fi;
  if
  :: over -> over = false; line_end()
  :: !over && more -> pushed()
  :: !over && !more && !ok -> ok = true; fail()
  :: else
  fi;
  ok = false
}

/* HandOver::stage_ready */
inline pump() {
  atomic { served = (requests_ == 0); requests_++ };
  do
  :: served == 0 -> break
  :: else ->
     do
     :: stage_ready_batch();
        if
        :: more -> more = false
        :: else -> break
        fi
     od;
#ifdef NO_GO_AROUND
     atomic { requests_ = 0; served = 0 }
#else
     atomic { requests_ = requests_ - served; served = requests_ }
#endif
  od
}

/* ProducerCore::work. From the moment that it has a block to the end of the source nobody sees what
 * a worker does, so that is one step. */
inline work() {
  do
  :: atomic { /* reserve, acquire_record */
       if
       :: numbers_reserved >= end_ -> break
       :: else -> numbers_reserved++
       fi
     };
     atomic {
       if
       :: free_records_ > 0 -> free_records_--
       :: free_records_ == 0 && claimed_closed -> break
       fi
     };
     atomic { /* acquire, claim, make */
       BLOCKS_AT_HAND != 0 || stop_requested[w] || lost == ALL_BLOCKS ->
       take_back();
       if
       :: idle & 1 -> block = 1
       :: !(idle & 1) && (idle & 2) -> block = 2
       :: idle == 0 && stop_requested[w] -> free_records_++; break
       :: idle == 0 && !stop_requested[w] && lost == ALL_BLOCKS
       fi;
       idle = idle & ~block;
#ifdef DEVICE
       assert(!(block & read_by_copies));
#endif
       claim(number);
       if
       :: number == NONE -> idle = idle | block; block = 0; free_records_++; break
       :: else
       fi;
       make(number, (block == 0));
       if
       :: kind == batch
       :: else -> idle = idle | block; block = 0
       fi
     };
     if
     :: kind == ending -> ring_close()
     :: else
     fi;
     atomic { publish(number, kind, block); number = NONE; kind = nothing; block = 0 };
#ifndef NO_PUMP_OF_WORKERS
     pump() /* on_ready */
#endif
  od
}

/* The w-th worker thread of each run. */
proctype Worker(byte w) {
  byte number = NONE, place_in_line, closing;
  PUMP_LOCALS

  do
  :: running[w] -> work(); atomic { number = NONE; running[w] = false }
  :: all_over -> break
  od;
  threads_ended++
}

/* HandOver::take from line_.first() on, and throw_staged_error. */
inline take_first() {
  atomic {
    if
    :: empty(line_) -> came = nothing; check_end()
    :: nempty(line_) ->
       line_?<slot>;
       fails = staged_error[slot];
       ok = true;
       if
       :: fails
       :: !fails -> call(ok) /* cudaStreamWaitEvent: the batch stays first in line */
       fi;
       if
       :: ok -> line_?slot; size_--; check_delivery(staged_number[slot])
       :: else
       fi;
       if
       :: ok && !fails ->
          came = batch;
          MOVE(slot, is_staged, is_leased);
#ifdef DEVICE
          read_by_lease[slot] = true
#endif
       :: else
       fi
    fi
  };
  if
  :: fails ->
     fails = false;
     drop_slot(slot);
     pump()
  :: else
  fi;
  atomic { ok = false; slot = NONE }
}

#ifdef INLINE
/* HandOver::stage_inline, with ProducerCore::next_inline: a source that fails makes it throw. */
inline stage_inline() {
  if
  :: size_ != 0 || ended_
  :: else ->
     throw_failure(thrown);
     if
     :: thrown
     :: !thrown && lost_slots == SLOTS -> thrown = true; came = skipped /* require_slot */
     :: !thrown && lost_slots != SLOTS && inline_next_ == BATCHES -> line_end()
     :: else ->
#ifdef WAITS_FOR_A_SLOT_ALONE
        event_count_wait(changed_, (reserved_ != NONE || len(free_) != 0));
#else
        event_count_wait(changed_, (reserved_ != NONE || len(free_) != 0 || HAS_NEWS));
        throw_failure(thrown);
#endif
        atomic {
          if
          :: thrown
          :: else ->
             reserve_slot();
             if
             :: !ok -> thrown = true
             :: ok && slot != NONE ->
                n = inline_next_; inline_next_++;
                block = 1; idle = idle & ~1;
                make(n, false);
                if
                :: kind == batch -> more = true; stage()
                :: else -> thrown = true; check_delivery(n)
                fi;
                idle = idle | 1; block = 0; kind = nothing; slot = NONE; n = 0
             fi;
             ok = false
          fi
        };
        if
        :: more -> more = false; pushed()
        :: else
        fi
     fi
  fi
}
#endif

/* HandOver::take. What came: a batch, now leased; nothing: the end; failed: an exception; skipped:
 * the exception that every slot is lost, so there is no use in another call. */
inline take() {
  LOCK_TAKE;
  came = failed;
#ifdef INLINE
  stage_inline();
#endif
  if
  :: thrown
  :: else -> throw_failure(thrown)
  fi;
  if
  :: thrown
  :: else ->
#ifndef NO_SECOND_TRY
     if
     :: size_ == 0 -> pump()
     :: else
     fi;
#endif
     if
     :: lost_slots == SLOTS -> came = skipped
     :: else ->
        event_count_wait(changed_, HAS_NEWS);
        throw_failure(thrown);
        if
        :: thrown
        :: else -> take_first()
        fi
     fi
  fi;
  atomic { thrown = false; UNLOCK_TAKE }
}

/* HandOver::pause */
inline pause() {
  paused_ = true;
#ifndef PAUSE_DOES_NOT_WAIT
  requests_ == 0
#endif
}

/* HandOver::restore */
inline restore(first) {
  LOCK_TAKE;
  pause();
  clear();
  seek(first);
  paused_ = false;
  pump();
  UNLOCK_TAKE
}

/* A thread that calls next(). The first one makes and destroys the prefetcher; the others are
 * through by then. */
proctype Consumer(byte me) {
  byte i, closing;
  bool thrown, restored;
  mtype came = nothing;
  PUMP_LOCALS

  if
  :: me == 4 -> seek(0); paused_ = false; pump(); constructed = true
  :: else -> constructed
  fi;
  do
  :: take();
     atomic {
       if
       :: came == nothing || came == skipped -> came = nothing; break
       :: else -> came = nothing
       fi
     }
#ifdef RESTORES
  :: atomic { me == 4 && !restored -> restored = true }; restore(0)
  :: atomic { me == 4 && !restored -> restored = true }; restore(expected)
#endif
#ifdef CLOSES
  :: break
#endif
  od;
  if
  :: me == 4 -> /* HandOver::close */
     threads_ended == CONSUMERS - 1;
     pause();
     stop();
     all_over = true
  :: else
  fi;
  threads_ended++
}

/* HandOver::give_back */
inline give_back() {
  release_after_lease(leased);
  if
  :: ok
  :: else -> fail()
  fi;
  atomic { ok = false; leased = NONE };
#ifndef NO_PUMP_AT_THE_END_OF_A_LEASE
  pump();
#endif
#if defined(INLINE) && !defined(NO_NOTIFY_OF_A_LEASE)
  notify_one(changed_) /* line_.notify */
#endif
}

/* A thread that leases were given to: it ends each of them some time. */
proctype LeaseHolder() {
  byte leased = NONE;
  PUMP_LOCALS

  do
  :: atomic { place[0] == is_leased -> MOVE(0, is_leased, is_ending); leased = 0 }; give_back()
#if SLOTS > 1
  :: atomic { place[1] == is_leased -> MOVE(1, is_leased, is_ending); leased = 1 }; give_back()
#endif
  :: all_over && place[0] != is_leased && place[SLOTS - 1] != is_leased -> break
  od;
  threads_ended++
}

byte j;

/* Ghost: no block and no slot is missing, but those that CUDA lost. */
inline check_all_is_there() {
  atomic {
    for (j : 0 .. DEPTH - 1) {
      if
      :: cells[j].kind == batch -> idle = idle | cells[j].block
      :: else
      fi
    };
#ifdef DEVICE
    idle = idle | in_flight;
#endif
    assert((idle | lost) == ALL_BLOCKS);
    assert(len(free_) + len(line_) + lost_slots + (reserved_ != NONE) == SLOTS);
    assert(requests_ == 0)
  }
}

init {
  atomic {
    for (j : 0 .. SLOTS - 1) { free_!j };
#ifndef INLINE
    for (j : 0 .. WORKERS - 1) { run Worker(j) };
#endif
    for (j : 1 .. CONSUMERS) { run Consumer(4 * j) };
    for (j : 1 .. HOLDERS) { run LeaseHolder() };
#ifdef DEVICE
    run CopyStream();
    run ConsumerStreams();
#endif
    j = 0
  };
  threads_ended == CONSUMERS + HOLDERS + (NO_WORKERS -> 0 : WORKERS);
  check_all_is_there()
}

ltl it_comes_to_its_end { <> all_over }
