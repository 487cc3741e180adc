/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole way of a batch, include/penstock/detail/pipeline/pipeline.hpp and
 * pipeline_control.hpp. Workers, the staging, copies, consumers that call next, stop, restore and the
 * destructor, threads that end leases, the device. A worker's waits for a record and for memory are
 * conditions here: producer.pml and host_blocks.pml prove that they end when what they wait for is
 * there.
 */

#include "defaults.pml"

#define ROUTE
#define STACK
#ifdef ON_DEVICE
#define RECORDS SLOTS
#else
#define RECORDS (BLOCKS + SLOTS)
#endif
#define LOCALS                                               \
  byte i, served, closing, rec = NONE, slot = NONE;          \
  bool more, ok, over, fails, freed;                         \
  EVENT_COUNT_LOCALS

mtype = { stopped, no_slot }; /* what may come of next(), beside stages */

bool all_over, constructed;
byte threads_ended;

#define ALL_BLOCKS ((1 << BLOCKS) - 1)
byte idle = ALL_BLOCKS, lost; /* HostBlocks: blocks as bits */
#ifdef DEVICE
byte in_flight, read_by_copies;
#define BLOCKS_AT_HAND (idle | (in_flight & ~read_by_copies))
#else
#define BLOCKS_AT_HAND idle /* Copies take no time; a worker that comes late is as good. */
#endif

#include "event_count.pml"
#include "calls.pml"
#include "record_ring.pml"
#include "device_arena.pml"

byte requests_; /* stage_task_ */
EventCount delivery_;
byte in_wait, called; /* calls_: consumers, as bits, that have read it, and those that it has changed for */
bool reported_, stopped_, closed_, stop_token;
bool take_mutex_, end_mutex_;
byte callers_;
#if CONSUMERS > 1 || defined(STOPS)
#define BEGIN_CALL(condition) atomic { (condition) && !closed_ -> callers_++ }
#define END_CALL callers_--
#else
#define BEGIN_CALL(condition) (condition) /* Who waits for the callers is the only one. */
#define END_CALL skip
#endif

#if CONSUMERS > 1
#define LOCK_TAKE LOCK(take_mutex_)
#define UNLOCK_TAKE UNLOCK(take_mutex_)
#else
#define LOCK_TAKE skip
#define UNLOCK_TAKE skip
#endif
#ifdef STOPS
#define LOCK_END LOCK(end_mutex_)
#define UNLOCK_END UNLOCK(end_mutex_)
#else
#define LOCK_END skip
#define UNLOCK_END skip
#endif

/* Who waits for a record waits for the condition itself. */
#define room_notify_all() skip
/* Within an atomic. HostBlock's destructor */
#define release(block) idle = idle | block; block = 0
#define reopen_all(first)         \
  LOCK_END;                       \
  atomic { reopen(first); stop_token = false; stopped_ = false }; \
  UNLOCK_END

/* ---- Staging */

#ifdef DEVICE
#define QUEUE_COPY(r) read_by_copies = read_by_copies | records[r].memory; copies!records[r].memory, slot
#define RELEASE_AFTER(r) in_flight = in_flight | records[r].memory
#else
#define QUEUE_COPY(r) skip
#define RELEASE_AFTER(r) idle = idle | records[r].memory
#endif
#ifdef RELEASES_AT_ONCE
#define RELEASE_WHAT_FAILED(r) idle = idle | records[r].memory
#else
#define RELEASE_WHAT_FAILED(r) RELEASE_AFTER(r)
#endif

/* Within an atomic. HostBlocks::copy and release_after, into `slot`. A copy that fails may be under way
 * in part, or it never began, and the record keeps the block. The block comes back when its event is
 * reached. Where that cannot be recorded, this thread waits for the copy, which is left out here: the
 * device goes on all the same; or the block is lost. */
inline copy_block(r) {
  if
  :: MAY_WORK -> QUEUE_COPY(r); RELEASE_AFTER(r); records[r].memory = 0
  :: MAY_WORK && MAY_FAIL -> IT_FAILS; fails = true; QUEUE_COPY(r); RELEASE_WHAT_FAILED(r);
     records[r].memory = 0
  :: MAY_FAIL -> IT_FAILS; fails = true; RELEASE_WHAT_FAILED(r); records[r].memory = 0
  :: MAY_FAIL -> IT_FAILS; fails = true
  :: MAY_FAIL -> IT_FAILS; fails = true; QUEUE_COPY(r); lost = lost | records[r].memory;
     records[r].memory = 0
  fi
}

/* Within an atomic. Pipeline::copy, DeviceStage::stage. */
inline copy(r) {
#ifdef ON_DEVICE
  more = true
#else
  try_acquire_slot(slot);
  if
  :: slot == NONE
  :: else ->
     copy_block(r);
     if
     :: fails -> records[r].is = thrown; fails = false
     :: else
     fi;
     records[r].target = slot;
     slot = NONE;
     more = true
  fi
#endif
}

/* Pipeline::call_all */
inline call_all() {
  atomic { called = in_wait };
  notify_all(delivery_)
}

/* Pipeline::end */
inline set_ended() {
  ended_ = true;
#ifndef NO_CALL_OF_END
  call_all()
#endif
}

/* Pipeline::report */
inline report() {
  reported_ = true; /* PendingError::set: of several, the first */
#ifndef NO_CALL_OF_REPORT
  call_all()
#endif
}

#include "route.pml"

/* Pipeline::stage: SerialTask::run */
inline stage() {
  atomic { served = (requests_ == 0); requests_++ };
  do
  :: served == 0 -> break
  :: else ->
     do
     :: stage_next();
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

/* ---- The worker */

/* Within an atomic. BatchMemory::acquire; `has` is false: the ring is closed. */
#ifdef ON_DEVICE
#define MEMORY_OR_END (nempty(free_) || stop_token || lost_slots == SLOTS)
inline acquire_memory() {
  if
  :: nempty(free_) -> try_acquire_slot(slot); ok = false; has = true
  :: else -> has = !stop_token
  fi;
  no_memory = (slot == NONE)
}
#define HOLD_MEMORY records[taken].target = slot; slot = NONE
#else
#define MEMORY_OR_END (BLOCKS_AT_HAND != 0 || claims_closed || lost == ALL_BLOCKS)
inline acquire_memory() {
#ifdef DEVICE
  idle = BLOCKS_AT_HAND;
  in_flight = in_flight & ~idle;
#endif
  if
  :: idle & 1 -> block = 1
  :: !(idle & 1) && (idle & 2) -> block = 2
  :: else
  fi;
  idle = idle & ~block;
#ifdef DEVICE
  assert(!(block & read_by_copies));
#endif
  has = (block != 0 || !claims_closed);
  no_memory = (block == 0)
}
#define HOLD_MEMORY records[taken].memory = block; block = 0
#endif

/* Within an atomic. What holds blocks only gives them back in one step; a slot takes calls of CUDA's. */
#ifdef ON_DEVICE
#define GIVE_BACK_MEMORY skip
#else
#define GIVE_BACK_MEMORY idle = idle | block; block = 0
#endif

/* Pipeline::open_next, run and finish, for a source of whole batches. From the moment that it has
 * memory to the end of the source nobody sees what a worker does, so that is one step. */
inline run_worker() {
  do
  :: atomic { has_turn = false; try_take() };
     if
     :: has_record
     :: !has_record && !has_turn -> break
     :: !has_record && has_turn ->
        atomic { records_left != 0 || claims_closed -> try_take_record() };
        if
        :: has_record
        :: else -> break
        fi
     fi;
     atomic {
       MEMORY_OR_END ->
       acquire_memory();
       number = NONE;
       if
       :: has -> claim(number)
       :: else
       fi;
       if
       :: number == NONE -> put_back(); GIVE_BACK_MEMORY
       :: else ->
          open(number);
          fill(number, no_memory);
          if
          :: records[taken].is == filled -> HOLD_MEMORY
          :: else -> GIVE_BACK_MEMORY
          fi;
          closes = (records[taken].is == ended)
       fi;
       has = false; no_memory = false
     };
#ifdef ON_DEVICE
     if
     :: slot != NONE -> drop_slot(slot)
     :: else
     fi;
#endif
     if
     :: number == NONE -> break
     :: else
     fi;
     if
     :: closes -> closes = false; close_ring()
     :: else
     fi;
     publish(number, taken);
     number = NONE;
     taken = 0;
#ifndef NO_STAGE_OF_WORKERS
     stage()
#endif
  od
}

/* The w-th worker thread of each run. */
proctype Worker(byte w) {
  byte number = NONE, taken, block, position;
  bool has_turn, has_record, has, no_memory, closes;
  LOCALS;

  do
  :: running[w] ->
     run_worker();
     atomic { number = NONE; taken = 0; has_turn = false; has_record = false; running[w] = false }
  :: all_over -> break
  od;
  threads_ended++
}

/* ---- The consumer */

/* Pipeline::wait_for_staged; `rec` is NONE where `came` says what came. The lock is open while it
 * waits. */
inline wait_for_staged() {
  do
  :: atomic {
#ifndef READS_CALLS_LATE
       in_wait = in_wait | me;
       called = called & ~me;
#endif
       if
       :: stopped_ || closed_ -> came = stopped; break
       :: !stopped_ && !closed_ && lost_slots == SLOTS -> came = no_slot; break /* require_slot */
#ifdef NO_SECOND_TRY
       :: else
#else
       :: else -> retries = !HAS_STAGED
#endif
       fi
     };
     if
     :: retries -> retries = false; stage()
     :: else
     fi;
#ifdef LOOKS_BEFORE_THE_END
     staged_head();
#endif
     atomic { /* PendingError::throw_error, and ended_ */
       if
       :: reported_ -> reported_ = false; came = thrown; break
       :: else -> has_ended = ended_
       fi
     };
#ifndef LOOKS_BEFORE_THE_END
     staged_head();
#endif
     if
     :: rec != NONE -> break
     :: rec == NONE && has_ended -> atomic { came = nothing; check_end() }; break
     :: else
     fi;
     UNLOCK_TAKE;
#ifdef READS_CALLS_LATE
     atomic { in_wait = in_wait | me; called = called & ~me };
#endif
     event_count_wait(delivery_, (HAS_STAGED || ended_ || reported_ || (called & me)));
     LOCK_TAKE
  od
}

/* Pipeline::next. What came: a batch, now leased; nothing: the end; stopped: the end, since somebody
 * called stop; thrown: an exception; no_slot: the exception that every slot is lost, so there is no
 * use in another call. */
inline next() {
  LOCK_TAKE;
  came = nothing;
  wait_for_staged();
  has_ended = false;
  atomic {
    in_wait = in_wait & ~me;
    called = called & ~me;
    if
    :: rec == NONE
    :: rec != NONE && records[rec].is == thrown -> came = thrown;
       check_delivery(records[rec].number);
       take()
    :: rec != NONE && records[rec].is != thrown ->
       call(ok); /* cudaStreamWaitEvent: where it fails, the batch stays the first. */
       if
       :: ok ->
          came = leased;
          assert(records[rec].is == filled);
          check_delivery(records[rec].number);
          MOVE(records[rec].target, is_staged, is_leased);
#ifdef DEVICE
          read_by_lease[records[rec].target] = true;
#endif
          records[rec].is = leased;
          take()
       :: else -> came = thrown
       fi;
       ok = false;
#ifdef FREES_AT_DELIVERY
       if
       :: came == leased -> give_back_record(rec)
       :: else
       fi;
#endif
       rec = NONE
    fi
  };
  if
  :: rec != NONE -> /* throw_in_place_of */
     end_record(rec);
     rec = NONE;
     stage()
  :: else
  fi;
  UNLOCK_TAKE;
  if
  :: came == thrown || came == no_slot -> notify_one(delivery_)
  :: else
  fi
}

/* SerialTask::pause */
inline pause() {
  paused_ = true;
#ifndef PAUSE_DOES_NOT_WAIT
  requests_ == 0
#endif
}

/* Pipeline::end_run. HostBlocks ask whether the ring is closed; who waits for a slot, for the token. */
inline end_run() {
  LOCK_END;
  close_ring();
  UNLOCK_END;
#ifdef ON_DEVICE
  stop_token = true
#endif
}

/* Pipeline::request_stop */
inline request_stop() {
  LOCK_END;
  stopped_ = true;
  UNLOCK_END;
  end_run()
}

/* Pipeline::stop */
inline stop() {
  request_stop();
#ifndef NO_CALL_OF_STOP
  call_all()
#endif
}

/* Pipeline::restart, with what comes before and behind it for a Prefetcher */
inline restart_all(first) {
  pause();
  restart(first);
  paused_ = false;
  stage()
}

/* Pipeline::restore */
inline restore(first) {
  LOCK_TAKE;
  restart_all(first);
  UNLOCK_TAKE
}

/* Pipeline::close */
inline close_all() {
  atomic { closed_ = true; stopped_ = true }; /* Either will do. */
  end_run();
  call_all();
  callers_ == 0;
  pause();
  join(); /* stop_and_join: no restart is under way, and the ring is closed already. */
  all_over = true
}

/* A thread that calls next(). The first one makes and destroys the prefetcher: the others may be in a
 * call then, but begin none. */
proctype Consumer(byte me) {
  bool has_ended, retries, at_end, restored;
  mtype came = nothing;
  LOCALS;

  if
  :: me == 4 -> restart_all(0); constructed = true
  :: else -> constructed
  fi;
  do
  :: BEGIN_CALL(!at_end); /* At the end it restores only: calls that end at once only add requests. */
     next();
     END_CALL;
     if
     :: came == nothing || came == no_slot || came == stopped -> came = nothing; break
     :: came == leased || came == thrown -> came = nothing
#ifdef RESTORES
     :: (came == nothing || came == stopped) && me == 4 && !restored -> came = nothing; at_end = true
#endif
     fi
#if CONSUMERS > 1
  :: closed_ -> break
#endif
#ifdef RESTORES
  :: atomic { me == 4 && !restored -> restored = true; at_end = false }; restore(0)
  :: atomic { me == 4 && !restored -> restored = true; at_end = false }; restore(expected)
#endif
#ifdef CLOSES
  :: break
#endif
  od;
  if
  :: me == 4 -> close_all()
  :: else
  fi;
  threads_ended++
}

#ifdef STOPS
/* Another thread that calls stop(). */
proctype Stopper() {
  byte closing;
  EVENT_COUNT_LOCALS;

  constructed;
  if
  :: BEGIN_CALL(true); stop(); END_CALL
  :: closed_
  fi;
  threads_ended++
}
#define STOPPERS 1
#else
#define STOPPERS 0
#endif

/* ---- The end of a lease */

/* Pipeline::end_lease, of the record `rec` with `slot`. Nobody sees both that the slot is free and that
 * the record is: so that is one step. */
inline end_lease() {
  atomic {
    release_after_lease(slot);
    assert(records[rec].is == leased);
    slot = NONE;
    if
    :: ok -> ok = false; release(records[rec].memory); give_back_record(rec); rec = NONE
    :: else
    fi
  };
  if
  :: rec == NONE
  :: else -> report(); end_record(rec); rec = NONE
  fi;
#ifndef NO_STAGE_OF_END_LEASE
  stage()
#endif
}

/* Nobody ends it yet. */
#define IS_LEASED(r) (records[r].is == leased && records[r].target != NONE)
#if RECORDS > 2
#define SOME_LEASE (IS_LEASED(0) || IS_LEASED(1) || IS_LEASED(2) || IS_LEASED(RECORDS - 1))
#else
#define SOME_LEASE (IS_LEASED(0) || IS_LEASED(RECORDS - 1))
#endif

/* A thread that leases were given to: it ends each of them some time. */
proctype LeaseHolder() {
  LOCALS;

  do
  :: atomic {
       if
       :: IS_LEASED(0) -> rec = 0
       :: IS_LEASED(RECORDS - 1) -> rec = RECORDS - 1
#if RECORDS > 2
       :: IS_LEASED(1) -> rec = 1
#endif
#if RECORDS > 3
       :: IS_LEASED(2) -> rec = 2
#endif
       fi;
       slot = records[rec].target;
       records[rec].target = NONE;
       MOVE(slot, is_leased, is_ending)
     };
     end_lease()
  :: all_over && !SOME_LEASE -> break
  od;
  threads_ended++
}

byte j, in_ring;

/* Ghost: no block, slot or record is missing, but those that CUDA lost. */
inline check_all_is_there() {
  atomic {
    for (j : 0 .. RECORDS - 1) {
      idle = idle | records[j].memory;
      assert((records[j].is == free) == (IS_FREE(j) != 0));
      if
      :: records[j].is != free && records[j].target != NONE -> in_ring++
      :: else
      fi
    };
#ifdef DEVICE
    idle = idle | in_flight;
#endif
#ifndef ON_DEVICE
    assert((idle | lost) == ALL_BLOCKS);
#endif
    assert(len(free_) + in_ring + lost_slots == SLOTS);
    in_ring = 0;
    for (j : 0 .. RECORDS - 1) {
      if
      :: cells[j].record != NONE -> in_ring++; assert(!IS_FREE(cells[j].record))
      :: else
      fi;
      if
      :: IS_FREE(j) -> in_ring++
      :: else
      fi
    };
    assert(in_ring == RECORDS);
    assert(requests_ == 0 && callers_ == 0)
  }
}

init {
  atomic {
    for (j : 0 .. SLOTS - 1) { free_!j };
    for (j : 0 .. WORKERS - 1) { run Worker(j) };
    for (j : 1 .. CONSUMERS) { run Consumer(4 * j) };
    for (j : 1 .. HOLDERS) { run LeaseHolder() };
#ifdef STOPS
    run Stopper();
#endif
#ifdef DEVICE
    run CopyStream();
    run ConsumerStreams();
#endif
    j = 0
  };
  threads_ended == WORKERS + CONSUMERS + HOLDERS + STOPPERS;
  check_all_is_there()
}

ltl it_comes_to_its_end { <> all_over }
