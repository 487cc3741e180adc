/* SPDX-License-Identifier: Apache-2.0
 *
 * Model 1 of 2: a BatchProducer alone. Workers, the ring, the pool, and one consumer that waits at
 * the ring; EventCount, mutexes and condition variables step by step. It proves what model 2 takes
 * for granted: a wait for room, for a block or for the ring ends when what it waits for is there.
 */

#define MODEL_1
#include "defaults.pml"

bool all_over;

#include "event_count.pml"
#include "calls.pml"
#include "pinned_pool.pml"
#include "record_ring.pml"
#include "batch_producer.pml"
#include "worker.pml"

/* ProducerCore::next; `kind` nothing: nullopt */
inline next() {
  do
#ifdef READY_DOES_NOT_LOOK
  :: at_end(yes);
     if
     :: yes -> break
     :: !yes && FULL -> atomic { look_at_head() }; pop(); break
     :: !yes && !FULL -> event_count_wait(delivery_, (FULL || OVER))
     fi
#else
  :: ready(yes);
     if
     :: yes -> atomic { look_at_head() }; pop(); break
     :: else
     fi;
     at_end(yes);
     if
     :: yes -> break
     :: else
     fi;
     event_count_wait(delivery_, (FULL || OVER)) /* ProducerCore::next */
#endif
  od;
  yes = false
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
       :: MAY_FAIL -> IT_FAILS; yes = true
       fi
     };
     if
     :: yes -> keep(lost, block); yes = false
     :: else -> keep(in_flight, block)
     fi
  fi
}

/* The constructor; next again and again, with seek and the destructor after any of them. */
proctype Consumer() {
  byte me = 8, i, n, block, closing;
  bool yes, wakes, sought;
  mtype kind = nothing;

  seek(0);
  do
  :: next();
     if
     :: kind == nothing -> atomic { check_end() }; break
     :: kind == failed -> atomic { check_delivery(n); kind = nothing; n = 0 }
     :: kind == batch -> atomic { check_delivery(n); kind = nothing; n = 0 }; give_back()
     fi
#ifdef RESTORES
  :: !sought -> sought = true; seek(expected)
#endif
#ifdef CLOSES
  :: break
#endif
  od;
  stop();
  all_over = true
}

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
    run CopyStream()
  }
}

ltl it_comes_to_its_end { <> all_over }
