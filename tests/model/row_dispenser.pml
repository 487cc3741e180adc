/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers that fill batches together: include/penstock/detail/pipeline/row_dispenser.hpp,
 * Pipeline::open_next, finish and equip of pipeline.hpp, and worker_errors.hpp. A wait for a record, or
 * for memory, is one that producer.pml and host_blocks.pml prove: it ends when that is there.
 *
 *   ROWS of a batch; WHOLE: each worker opens batches for itself, as for a source of whole batches and
 *   for one on the device, where the BLOCKS are slots; LOSES: a worker may have no source.
 */

#include "defaults.pml"
#include "event_count.pml"
#include "calls.pml"

#ifndef ROWS
#define ROWS 2
#endif

typedef OpenBatch {
  bool open;     /* open_ */
  byte number;
  byte rows;     /* rows_ */
  byte left;     /* left_ */
  byte unfilled; /* unfilled_ */
  byte filled    /* ghost: rows, as bits */
};

OpenBatch batches[WORKERS];
byte offered_ = NONE;
bool opening_;
EventCount changed_, ready_;

byte memory = BLOCKS, entered_, claimed_, taken_;
bool published[BATCHES], closed_, all_over;
byte lost_, unreported_, reported, ended_workers;

/* RowDispenser::take, of one row of the batch on offer */
inline take(b) {
  b = offered_;
  if
  :: b == NONE
  :: else ->
     atomic { /* compare_exchange */
       if
       :: batches[b].left == 0 -> b = NONE
       :: else -> row = batches[b].rows - batches[b].left; rows = 1; batches[b].left--
       fi
     }
  fi
}

inline acquire_memory() {
  if
  :: atomic { memory > 0 -> memory--; has = true }
  :: closed_ -> has = false
  fi
}
inline claim() {
  atomic {
    if
    :: closed_ -> number = NONE
    :: else -> number = claimed_; claimed_++
    fi
  }
}

/* Pipeline::open_next; `b` is NONE at the end. */
inline open_next(b) {
  if
  :: atomic { entered_ < BATCHES && entered_ < taken_ + DEPTH -> entered_++; has = true }
  :: closed_ || entered_ == BATCHES -> has = false
  fi;
  if
  :: !has
  :: else ->
#ifdef NUMBER_BEFORE_MEMORY
     claim();
     acquire_memory();
#else
     acquire_memory();
     if
     :: has -> claim()
     :: else
     fi;
#endif
     if
     :: has && number == NONE -> memory++; has = false
     :: else
     fi
  fi;
  if
  :: !has -> b = NONE
  :: else ->
     atomic { /* A record: its rows are used again once all are filled, which is sooner than in the code. */
       for (i : 0 .. WORKERS - 1) {
         if
         :: b == NONE && !batches[i].open -> b = i
         :: else
         fi
       };
       i = 0;
       assert(b != NONE);
       batches[b].open = true
     };
     atomic {
#ifndef WHOLE
       for (i : 0 .. WORKERS - 1) { assert(batches[i].left == 0) }; /* the oldest batch first */
       i = 0;
#endif
       if /* BatchFiller::begin, which may fail */
       :: rows = ROWS
       :: errors_left > 0 -> errors_left--; rows = 0
       fi;
       batches[b].number = number;
       batches[b].rows = rows;
       batches[b].unfilled = rows;
       batches[b].filled = 0;
       number = NONE
     }
  fi;
  has = false
}

/* RowDispenser::next, one row at a time */
inline next_piece(b) {
#ifdef WHOLE
  open_next(b);
  row = 0
#else
  do
  :: take(b);
     if
     :: b != NONE -> break
     :: else
     fi;
     atomic { was = opening_; opening_ = true };
#ifdef OPENS_BESIDE
     was = false;
#endif
     if
     :: !was ->
#ifndef NO_SECOND_LOOK
        take(b);
#endif
        if
        :: b == NONE ->
           open_next(b);
           if
           :: b != NONE -> /* offer */
              row = 0;
              rows = (batches[b].rows > 0 -> 1 : 0);
              batches[b].left = batches[b].rows - rows;
              offered_ = b
           :: else
           fi
        :: else
        fi;
        opening_ = false;
#ifndef NO_NOTIFY_OF_OPENING
        notify_all(changed_);
#endif
        break
     :: else ->
        event_count_wait(changed_, (!opening_ || (offered_ != NONE && batches[offered_].left > 0)))
     fi
  od
#endif
}

inline fill(b) {
  if
  :: rows == 0
  :: else ->
     atomic {
       for (i : row .. row + rows - 1) {
         assert(!(batches[b].filled & (1 << i)));
         batches[b].filled = batches[b].filled | (1 << i)
       };
       i = 0
     }
  fi
}

/* BatchRows::count_filled, then Pipeline::finish */
inline count_and_hand_on(b) {
#ifdef COUNTS_IN_TWO_STEPS
  seen = batches[b].unfilled;
  batches[b].unfilled = seen - rows;
  last = (seen == rows);
#else
  atomic { last = (batches[b].unfilled == rows); batches[b].unfilled = batches[b].unfilled - rows };
#endif
  if
  :: !last
  :: else ->
     atomic {
       assert(batches[b].filled == (1 << batches[b].rows) - 1);
       number = batches[b].number
     };
     batches[b].open = false; /* its rows are */
     atomic { assert(!published[number]); published[number] = true; number = NONE };
     notify_one(ready_)
  fi;
  atomic { b = NONE; row = 0; rows = 0; last = false; seen = 0 }
}

proctype Worker(byte w) {
  byte me = 1 << w, b = NONE, row, rows, number = NONE, i, seen;
  bool was, has, last;
  EVENT_COUNT_LOCALS;

#ifdef LOSES
  if
  :: true
  :: atomic { lost_++; unreported_++ }; /* WorkerErrors::add */
#ifndef NO_NOTIFY_OF_LOSS
     notify_one(ready_);
#endif
     goto over
  fi;
#endif
  do
  :: next_piece(b);
     if
     :: b == NONE -> break
     :: else -> fill(b); count_and_hand_on(b)
     fi
  od;
over:
  atomic { row = 0; rows = 0; ended_workers++ }
}

proctype Consumer() {
  byte me = 8, i;
  EVENT_COUNT_LOCALS;

  do
  :: taken_ == BATCHES -> break
  :: taken_ < BATCHES ->
     event_count_wait(ready_, (published[taken_] || unreported_ > 0 || lost_ == WORKERS));
     if
     :: unreported_ > 0 -> atomic { unreported_--; reported++ }
     :: unreported_ == 0 && published[taken_] -> atomic { taken_++; memory++ }
     :: unreported_ == 0 && !published[taken_] && lost_ == WORKERS -> break
     fi
#ifdef CLOSES
  :: break
#endif
  od;
  closed_ = true;
  atomic {
    ended_workers == WORKERS -> /* join */
#if !defined(CLOSES)
    assert(taken_ == BATCHES || (lost_ == WORKERS && reported == lost_));
#endif
    for (i : taken_ .. BATCHES - 1) { /* what was not taken */
      if
      :: i < BATCHES && published[i] -> memory++
      :: else
      fi
    };
    assert(memory == BLOCKS);
    all_over = true
  }
}

byte w;

init {
  atomic {
    for (w : 0 .. WORKERS - 1) { run Worker(w) };
    w = 0;
    run Consumer()
  }
}

ltl it_comes_to_its_end { <> all_over }
