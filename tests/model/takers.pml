/* SPDX-License-Identifier: Apache-2.0
 *
 * Who else is woken, where each waiter takes one thing and is gone: WORKERS threads take one thing each,
 * and as many things are made, by two threads.
 */

#include "defaults.pml"
#include "event_count.pml"

byte things, made, over; /* over: threads */
EventCount made_one;

/* The condition of the wait takes a thing, so that wait is written out. */
inline try_take() {
  atomic {
    if
    :: things > 0 -> things--; has = true
    :: else
    fi
  }
}

proctype Taker(byte w) {
  byte me = 1 << w;
  bool has;
  EVENT_COUNT_LOCALS;

  try_take();
  if
  :: has
  :: else ->
     made_one.waiters++;
     LOCK(made_one.mutex);
     do
     :: take_calls(made_one);
        try_take();
        if
        :: has -> break
        :: else -> sleep_in(made_one)
        fi
     od;
     atomic { made_one.waiters--; UNLOCK(made_one.mutex) };
     pass_on(made_one)
  fi;
  over++
}

proctype Maker() {
  EVENT_COUNT_LOCALS;

  do
  :: atomic { made < WORKERS -> made++; things++ };
     notify_one(made_one)
  :: made == WORKERS -> break
  od
}

byte w;

init {
  atomic {
    for (w : 0 .. WORKERS - 1) { run Taker(w) };
    w = 0;
    run Maker();
    run Maker()
  };
  over == WORKERS;
  assert(things == 0)
}
