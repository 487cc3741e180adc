/* SPDX-License-Identifier: Apache-2.0
 *
 * Model 1: ProducerCore::work (include/penstock/detail/pipeline/batch_producer.hpp), with every step that
 * its waits take.
 */

/* BatchRing::try_enter, with has_room */
inline try_enter(inside) {
  mine = entered_;
  do
  :: mine >= end_ -> inside = false; break
  :: else ->
     if
     :: mine < seen_taken_ + DEPTH -> inside = true
     :: else ->
        seen = taken_;
        seen_taken_ = seen;
        inside = (mine < seen + DEPTH);
        seen = 0
     fi;
     if
     :: !inside -> break
     :: else ->
        atomic { /* compare_exchange_weak */
          if
          :: entered_ == mine -> entered_ = mine + 1
          :: else -> mine = entered_; inside = false
          fi
        };
        if
        :: inside -> break
        :: else
        fi
     fi
  od;
  mine = 0
}

/* BatchRing::enter. The condition of its wait takes room, so that wait is written out. */
inline enter(inside) {
  try_enter(inside);
  if
  :: inside
  :: else ->
     room_.waiters++;
     LOCK(room_.mutex);
     do
     :: try_enter(inside);
        if
        :: inside || CLOSED -> break
        :: else -> sleep_in(room_)
        fi
     od;
     room_.waiters--;
     UNLOCK(room_.mutex);
     if
     :: CLOSED -> notify_all(room_)
     :: else
     fi
  fi
}

inline work() {
  do
  :: enter(inside);
     if
     :: !inside -> break
     :: else
     fi;
#ifdef NUMBER_BEFORE_BLOCK
     atomic { claim(number) };
     if
     :: number == NONE -> break
     :: else
     fi;
#endif
     try_acquire_block(block);
     if
     :: block == 0 -> acquire_slowly(block, exhausted)
     :: else
     fi;
     if
     :: block == 0 && !exhausted -> break
     :: else
     fi;
#ifndef NUMBER_BEFORE_BLOCK
     atomic { claim(number) };
     if
     :: number == NONE && block == 0 -> break
     :: number == NONE && block != 0 -> release_block(block); break
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
  byte me = 1 << w, mine, seen, number = NONE, place_in_line, closing, block, asked, found;
  bool inside, exhausted, polls, wakes, fails;
  mtype kind = nothing;

  do
  :: running[w] ->
     work();
     atomic { number = NONE; inside = false; exhausted = false; running[w] = false }
  :: all_over -> break
  od
}
