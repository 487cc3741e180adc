/* SPDX-License-Identifier: Apache-2.0
 *
 * Model 1: ProducerCore::work (include/penstock/detail/pipeline/batch_producer.hpp), with every step that
 * its waits take.
 */

/* IndexStack::pop, of the free records */
inline pop_record(has) {
  atomic {
    if
    :: free_records_ > 0 -> free_records_--; has = true
    :: else -> has = false
    fi
  }
}

/* ProducerCore::acquire_record. The condition of its wait takes a record, so that wait is written out. */
inline acquire_record(has) {
  pop_record(has);
  if
  :: has
  :: else ->
     room_.waiters++;
     LOCK(room_.mutex);
     do
     :: pop_record(has);
        if
        :: has || claimed_closed -> break
        :: else -> sleep_in(room_)
        fi
     od;
     room_.waiters--;
     UNLOCK(room_.mutex)
  fi
}

inline work() {
  do
  :: atomic { reserve(inside) };
     if
     :: !inside -> break
     :: else
     fi;
     acquire_record(inside);
     if
     :: !inside -> break
     :: else
     fi;
#ifdef NUMBER_BEFORE_BLOCK
     atomic { claim(number) };
     if
     :: number == NONE -> give_back_record(); break
     :: else
     fi;
#endif
     try_acquire_block(block);
     if
     :: block == 0 -> acquire_slowly(block, exhausted)
     :: else
     fi;
     if
     :: block == 0 && !exhausted -> give_back_record(); break
     :: else
     fi;
#ifndef NUMBER_BEFORE_BLOCK
     atomic { claim(number) };
     if
     :: number == NONE && block == 0 -> give_back_record(); break
     :: number == NONE && block != 0 -> release_block(block); give_back_record(); break
     :: else
     fi;
#endif
     atomic { make(number, exhausted) };
     if
     :: kind != batch && block != 0 -> release_block(block)
     :: else
     fi;
     if
     :: kind == ending -> ring_close()
     :: else
     fi;
     publish(number, kind, block);
     atomic { number = NONE; kind = nothing; block = 0; exhausted = false }
  od
}

/* The w-th worker thread of each run. */
proctype Worker(byte w) {
  byte me = 1 << w, number = NONE, place_in_line, closing, block, asked, found;
  bool inside, exhausted, polls, wakes, fails;
  mtype kind = nothing;

  do
  :: running[w] ->
     work();
     atomic { number = NONE; inside = false; exhausted = false; running[w] = false }
  :: all_over -> break
  od
}
