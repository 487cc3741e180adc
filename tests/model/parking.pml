/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots that are given up while a stream that uses them is being captured: they are parked, and
 * given back when the capture is over, which nobody tells. DeviceArenaCore::acquire, retry_parked, park
 * and give_back of include/penstock/detail/memory/device_arena.hpp, with every step of their waits.
 *
 *   WORKERS threads acquire a slot and give it back; a holder has all SLOTS from the start; KEEPS: and
 *   keeps the last of them until the others are through.
 */

#include "defaults.pml"
#include "event_count.pml"

mtype = { in_use, parked, retried }; /* Slot::state */

mtype state[SLOTS] = in_use;
bool captured[SLOTS]; /* a stream that uses it is */
bool free_[SLOTS];
bool mutex_, retry_mutex_;
byte asleep;          /* threads in returned_ */
byte parked_, over;
bool is_taken[SLOTS]; /* ghost */

#define SOME_PARKED_IS_FREE ((state[0] == parked && !captured[0]) || \
                             (state[SLOTS - 1] == parked && !captured[SLOTS - 1]))

/* DeviceArenaCore::give_back; the slot is nobody's. */
inline give_back(slot) {
  LOCK(mutex_);
  atomic { /* unpark */
    if
    :: state[slot] == retried -> parked_--
    :: else
    fi;
    state[slot] = in_use
  };
  atomic { assert(!free_[slot] && !captured[slot]); free_[slot] = true };
  UNLOCK(mutex_);
#ifndef NO_NOTIFY_OF_GIVE_BACK
  atomic { wake_one(asleep) }
#endif
}

inline park(slot) {
  LOCK(mutex_);
  atomic { state[slot] = parked; parked_++ };
  UNLOCK(mutex_);
#ifndef NO_NOTIFY_OF_PARK
  atomic { asleep = 0 }
#endif
}

/* Called with mutex_ locked. */
inline retry_parked() {
  if
  :: parked_ == 0
  :: else ->
     UNLOCK(mutex_);
     LOCK(retry_mutex_);
     LOCK(mutex_);
     do
     :: parked_ == 0 || i == SLOTS -> break
     :: parked_ != 0 && i < SLOTS && state[i] != parked -> i++
     :: parked_ != 0 && i < SLOTS && state[i] == parked ->
        state[i] = retried;
        UNLOCK(mutex_);
#ifdef RETRIES_BLINDLY
        give_back(i);
#else
        if /* try_release */
        :: captured[i] -> again = true
        :: else -> give_back(i)
        fi;
#endif
        LOCK(mutex_);
        if
        :: again -> state[i] = parked; again = false
        :: else
        fi;
        i++
     od;
     i = 0;
     UNLOCK(retry_mutex_)
  fi
}

/* returned_.wait, or wait_until with a time-out that finds something. */
inline wait_for_slot() {
  atomic {
#ifdef NEVER_POLLS
    polls = false;
#else
    polls = (parked_ != 0);
#endif
    asleep = asleep | me;
    UNLOCK(mutex_)
  };
  atomic {
    !mutex_ && (!(asleep & me) || (polls && SOME_PARKED_IS_FREE)) ->
    asleep = asleep & ~me;
    mutex_ = true;
    polls = false
  }
}

/* acquire, use, release */
proctype Acquirer(byte w) {
  byte me = 1 << w, i, slot = NONE;
  bool again, polls;

  LOCK(mutex_);
  retry_parked();
  do
  :: slot != NONE -> break
  :: slot == NONE ->
     atomic {
       for (i : 0 .. SLOTS - 1) {
         if
         :: slot == NONE && free_[i] -> slot = i
         :: else
         fi
       };
       i = 0;
       if
       :: slot != NONE -> assert(!is_taken[slot]); free_[slot] = false; is_taken[slot] = true
       :: else
       fi
     };
     if
     :: slot != NONE
     :: slot == NONE && parked_ == SLOTS -> break /* require_slot_locked: the caller is told */
     :: slot == NONE && parked_ != SLOTS -> wait_for_slot(); retry_parked()
     fi
  od;
  UNLOCK(mutex_);
  if
  :: slot == NONE
  :: else -> is_taken[slot] = false; give_back(slot)
  fi;
  over++
}

/* Gives up what it has; the first slot while a capture runs, or after it. */
proctype Holder() {
  byte s;

  captured[0] = true;
  do
  :: s == SLOTS -> break
  :: s < SLOTS ->
#ifdef KEEPS
     if
     :: s == SLOTS - 1 -> over == WORKERS + 1
     :: else
     fi;
#endif
     if
     :: captured[s] -> park(s)
     :: !captured[s] -> give_back(s)
     fi;
     s++
  od;
  over++
}

proctype Capture() {
  captured[0];
  captured[0] = false;
  over++
}

byte w;

init {
  atomic {
    run Holder();
    run Capture();
    for (w : 0 .. WORKERS - 1) { run Acquirer(w) };
    w = 0
  };
  over == WORKERS + 2;
  assert(!mutex_ && !retry_mutex_);
  assert(parked_ == (state[0] == parked) + (SLOTS > 1 && state[SLOTS - 1] == parked));
  /* Whoever asks next finds it: nothing is lost. */
  assert(free_[0] || state[0] == parked);
  assert(free_[SLOTS - 1] || state[SLOTS - 1] == parked)
}

ltl it_comes_to_its_end { <> (over == WORKERS + 2) }
