/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/detail/pipeline/pipeline.hpp: what a BatchProducer and a Prefetcher (ROUTE) have in
 * common of a batch's route, and the ghosts, that is what no thread knows and the properties are about.
 */

bool running[WORKERS]; /* worker threads that were started and have not ended */
bool ended_, paused_ = true;
byte admitted_;

byte limit;        /* ghost: the first number that will not come */
byte expected;     /* ghost: the number that comes next */
byte made_skipped; /* ghost: numbers, as bits, that never come */
byte delivered;    /* ghost: numbers that came */
byte counted;      /* ghost: positions, as bits, that the failure policy was applied to */

#define ONES(count) ((1 << (count)) - 1)

/* Ghost: none from `expected` to a_number was to come. */
inline check_skipped(a_number) {
  assert(((made_skipped >> expected) & ONES(a_number - expected)) == ONES(a_number - expected))
}

/* Ghost: number a_number came, and it is in its place. */
inline check_delivery(a_number) {
#ifdef UNORDERED
  assert(!((delivered | made_skipped) & (1 << a_number)));
#else
  assert(a_number >= expected && a_number < limit);
  check_skipped(a_number);
  expected = a_number + 1;
#endif
  delivered = delivered | (1 << a_number)
}

/* Ghost: the end came, and everything before it. */
inline check_end() {
#ifdef UNORDERED
  assert((delivered | made_skipped) == (1 << claimed_) - 1)
#else
  assert(expected <= limit);
  check_skipped(limit)
#endif
}

/* ---- The worker */

/* Within an atomic. Pipeline::take_record, try_take. A turn and a record are two steps in the code:
 * nobody's turn depends on the records. */
inline try_take() {
  has_record = false;
  if
  :: !has_turn && !ALL_RESERVED && HAS_ROOM -> reserved_++; has_turn = true
  :: else
  fi;
  if
  :: has_turn -> try_take_record()
  :: else
  fi
}

/* Within an atomic. BatchFiller, on the record `taken`: the source fills the batch, throws, or says
 * that the data ends. `no_memory`: to wait for a block threw. */
inline fill(number, no_memory) {
  if
  :: no_memory -> records[taken].is = failed
  :: !no_memory -> records[taken].is = filled
  :: !no_memory && errors_left > 0 -> errors_left--; records[taken].is = failed
#ifdef ENDS
  :: !no_memory -> records[taken].is = ended;
     made_skipped = made_skipped | (1 << number);
#ifndef UNORDERED
     if
     :: number < limit -> limit = number
     :: else
     fi
#endif
#endif
  fi
}

/* ---- Staging */

/* Within an atomic. Pipeline::admit. A batch whose rows are there may have lost some of them, which
 * the policy minds, or not. */
inline admit(r) {
  assert(!(counted & (1 << staged_)));
  counted = counted | (1 << staged_);
  if
#ifdef UNORDERED
  :: records[r].is == ended -> records[r].is = passed
#else
  :: records[r].is == ended
#endif
  :: records[r].is == failed -> records[r].is = thrown
#ifdef SKIPS
  :: records[r].is == failed ->
     records[r].is = passed;
     made_skipped = made_skipped | (1 << records[r].number)
  :: records[r].is == filled && errors_left > 0 -> errors_left--; records[r].is = thrown
#endif
  :: records[r].is == filled
  fi;
  assert(records[r].is != failed)
}

/* Pipeline::stage_next, with the question of SerialTask::run whether it is paused; `more`: it staged
 * a batch. All that it does to one that can be staged is one step: others see of it a block in flight,
 * a copy, one slot less, and a batch that is staged; none of them sees two of these, nor their order. */
inline stage_next() {
  atomic {
    more = false;
    ok = true;
    if
    :: paused_ || ended_
    :: else ->
       if
       :: !HAS_FILLED -> over = ALL_STAGED
       :: else ->
          rec = cells[staged_ % RECORDS].record;
          if
          :: admitted_ == staged_ -> admit(rec); admitted_++
#ifdef ADMITS_TWICE
          :: else -> admit(rec)
#else
          :: else
#endif
          fi;
          if
          :: records[rec].is == ended -> over = true
          :: records[rec].is == filled -> copy(rec)
          :: else -> more = true
          fi;
          if
          :: more -> staged_++ /* RecordRing::stage */
          :: else
          fi
       fi;
       rec = NONE
    fi
  };
#ifdef ROUTE
  if
  :: over -> over = false; set_ended()
  :: !over && more -> /* stage_next */
#ifndef NO_NOTIFY_OF_STAGE
     notify_one(delivery_)
#endif
  :: !over && !more && !ok -> report()
  :: else
  fi;
#else
  if
  :: over -> atomic { over = false; ended_ = true }
  :: else
  fi;
#endif
  ok = false
}

/* ---- The consumer */

/* Pipeline::end_record. A slot goes first, then the block: the record is free when it has neither. */
inline end_record(r) {
#ifdef ROUTE
  atomic {
    slot = records[r].target;
    records[r].target = NONE;
    if
    :: slot == NONE -> release(records[r].memory); give_back_record(r); freed = true
    :: else
    fi
  };
  if
  :: freed
  :: else -> drop_slot(slot); atomic { release(records[r].memory); give_back_record(r) }
  fi;
  freed = false
#else
  release(records[r].memory);
  atomic { give_back_record(r) };
  room_notify_one()
#endif
}

/* Pipeline::staged_head, on whose records `rec` is then; NONE: none is staged. */
inline staged_head() {
  do
  :: atomic {
       if
       :: !HAS_STAGED -> rec = NONE; break
       :: else -> rec = cells[taken_ % RECORDS].record
       fi;
       if
       :: records[rec].is != passed -> break
       :: else -> take()
       fi
     };
#ifndef PASSED_KEEPS_ITS_RECORD
     end_record(rec)
#endif
  od
}

/* ---- Start and end: pipeline_control.hpp */

/* Pipeline::close_ring. HostBlocks, whose waiters it wakes, are the condition itself here. */
inline close_ring() {
  close();
#ifndef NO_NOTIFY_OF_CLOSE
  room_notify_all();
#endif
#ifndef NO_NOTIFY_OF_CLOSE_TO_NEXT
  notify_one(delivery_)
#endif
}

/* Pipeline::join */
inline join() {
  for (i : 0 .. WORKERS - 1) {
    !running[i]
  };
  i = 0
}

/* Pipeline::restart */
inline restart(first) {
  end_run();
  join();
  for (i : 0 .. RECORDS - 1) {
#ifdef RESTART_ENDS_LEASES
    if
    :: records[i].is != free
#else
    if
    :: records[i].is != free && records[i].is != leased
#endif
    -> end_record(i)
    :: else
    fi
  };
  atomic {
    i = 0;
#ifndef STACK
    returned_ = first;
#endif
    expected = first; made_skipped = 0; delivered = 0; counted = 0;
    admitted_ = first;
#ifndef RESTART_KEEPS_THE_END
    ended_ = false
#endif
  };
  reopen_all(first);
  atomic {
    for (i : 0 .. WORKERS - 1) { running[i] = true };
    i = 0
  }
}
