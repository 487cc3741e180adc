/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/detail/memory/pinned_pool_core.hpp, for blocks of one size that were all reserved beforehand.
 * A block is a bit. FreeBlocks is one list here: its shards are the business of its own tests.
 */

#define ALL_BLOCKS ((1 << BLOCKS) - 1)

byte idle = ALL_BLOCKS;  /* idle_ */
byte in_flight, lost;    /* in_flight_, lost_ */
byte read_by_copies;     /* the device's: blocks whose copies are queued or run */
byte pool_waiters;       /* waiters_ */
bool pool_mutex, polling;
byte pool_asleep;        /* threads in returned_ */
bool stop_requested[WORKERS], stop_callback[WORKERS];

#define COPIED(blocks) (blocks & ~read_by_copies) /* those whose events are reached */

/* Within an atomic: FreeBlocks::pop */
inline pop_idle(block) {
  if
  :: idle & 1 -> block = 1
  :: !(idle & 1) && (idle & 2) -> block = 2
  :: idle == 0 -> block = 0
  fi;
  idle = idle & ~block;
  assert(!(block & read_by_copies))
}

/* PinnedPoolCore::try_acquire: passes over lists that somebody else is busy with. */
inline try_acquire_block(block) {
  atomic {
    if
    :: pop_idle(block)
    :: block = 0
    fi
  }
}

/* returned_.wait_until. A thread that polls wakes by its time-out only where its look will find
 * something: to look for nothing and to sleep again would change nothing. */
inline wait_for_return() {
  atomic {
    polls = (polling || in_flight != 0);
    pool_asleep = pool_asleep | me;
    UNLOCK(pool_mutex)
  };
  atomic {
    !pool_mutex && (!(pool_asleep & me) ||
                    (polls && !polling && (COPIED(in_flight) != 0 || idle != 0))) ->
    pool_asleep = pool_asleep & ~me;
    pool_mutex = true;
    polls = false
  }
}

/* PinnedPoolCore::poll_in_flight: blocks whose copies are done come back; where CUDA cannot tell,
 * they are lost. */
inline poll_in_flight() {
  if
  :: polling || in_flight == 0
  :: else ->
     atomic { polling = true; asked = in_flight; UNLOCK(pool_mutex) };
     atomic {
       if
       :: MAY_WORK -> asked = COPIED(asked)
       :: MAY_FAIL -> IT_FAILS; fails = true
       fi
     };
     LOCK(pool_mutex);
     atomic {
       polling = false;
       in_flight = in_flight & ~asked;
       if
       :: fails -> lost = lost | asked
       :: else -> idle = idle | asked
       fi;
       found = asked;
       asked = 0; fails = false
     };
#ifndef NO_NOTIFY_OF_POLL
     if
     :: found != 0 -> pool_asleep = 0
     :: else
     fi
#endif
  fi
}

/* PinnedPoolCore::acquire_slowly; `exhausted`: it threw; else no block: asked to stop. */
inline acquire_slowly(block, exhausted) {
  pool_waiters++;
  stop_callback[w] = true;
  LOCK(pool_mutex);
  do
  :: stop_requested[w] -> break
  :: else ->
     atomic { pop_idle(block) };
     if
     :: block != 0 -> break
     :: else
     fi;
     poll_in_flight();
     if
     :: found != 0 -> found = 0
     :: else -> /* Even where a block came back just now: who brought it wakes this thread. */
#ifndef WAITS_FOR_LOST_BLOCKS
        if
        :: lost == ALL_BLOCKS -> exhausted = true; break
        :: else
        fi;
#endif
        wait_for_return()
     fi
  od;
  UNLOCK(pool_mutex);
  stop_callback[w] = false;
  pool_waiters--
}

/* PinnedPoolCore::release. `wakes` is asked while the block's list is locked. */
inline release_block(block) {
  atomic { idle = idle | block; block = 0; wakes = (pool_waiters != 0) };
#ifndef NO_NOTIFY_OF_RELEASE
  if
  :: wakes -> atomic { !pool_mutex -> pool_asleep = 0 }
  :: else
  fi;
#endif
  wakes = false
}

/* PinnedPoolCore::release_after: `list` is in_flight, or lost where the event cannot be recorded. */
inline keep(list, block) {
  atomic {
    !pool_mutex -> list = list | block;
    block = 0;
#ifndef NO_NOTIFY_OF_KEEP
    if
    :: pool_waiters != 0 -> pool_asleep = 0
    :: else
    fi
#endif
  }
}
