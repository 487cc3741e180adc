/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/detail/sync/event_count.hpp. A thread is a bit: see `me` in the processes.
 *
 * The looks of spin() are left out: they only delay the moment of the first look, and every delay is
 * tried anyway. So are deadlines and the spurious wake-ups of a condition variable: each could wake a
 * thread that nobody notified, and would hide that.
 */

#define LOCK(mutex) atomic { !mutex -> mutex = true }
#define UNLOCK(mutex) mutex = false

typedef EventCount {
  byte waiters; /* state_: waiters, and calls that none of them has taken */
  byte calls;
  bool mutex;   /* mutex_ is locked */
  byte asleep   /* threads in wake_ */
};

/* A thread that waits or notifies has these. */
#define EVENT_COUNT_LOCALS byte answered; bool wakes_one

/* Within an atomic: std::condition_variable::notify_one, which may pick anybody. */
inline wake_one(sleepers) {
  if
  :: sleepers & 1 -> sleepers = sleepers & ~1
  :: sleepers & 2 -> sleepers = sleepers & ~2
  :: sleepers & 4 -> sleepers = sleepers & ~4
  :: sleepers & 8 -> sleepers = sleepers & ~8
  :: sleepers == 0
  fi
}

/* wake_.wait(lock) */
inline sleep_in(ec) {
  atomic { ec.asleep = ec.asleep | me; UNLOCK(ec.mutex) };
  atomic { !(ec.asleep & me) && !ec.mutex -> ec.mutex = true }
}

/* EventCount::take_calls. */
inline take_calls(ec) {
  atomic { answered = ec.calls; ec.calls = 0 }
}

/* EventCount::call_one. More calls than there are waiters are as good as so many. What nobody waits for
 * counts as one: more of them would wake threads that nobody notified. To lock the mutex and to wake is
 * one step: a waiter that leaves in between is woken by nobody, and needs it no more. */
#define MOST_CALLS WORKERS
inline call_one(ec, times) {
  atomic {
    wakes_one = (ec.waiters != 0 && ec.calls == 0);
    ec.calls = (ec.waiters == 0 -> 1 : (ec.calls + times < MOST_CALLS -> ec.calls + times : MOST_CALLS))
  };
  if
  :: wakes_one -> atomic { !ec.mutex -> wake_one(ec.asleep); wakes_one = false }
  :: else
  fi
}

/* Behind the wait of a thread whose condition holds. */
inline pass_on(ec) {
#ifndef NO_PASS_ON
  if
  :: answered > 1 -> call_one(ec, answered - 1)
  :: else
  fi;
#endif
  answered = 0
}

/* EventCount::wait_until. `condition` is an expression: what it reads is set by others only, and
 * reset by this thread only, so to read it at one moment is as good as one part after the other. */
inline event_count_wait(ec, condition) {
  if
  :: condition
  :: else ->
#ifdef ANNOUNCES_LATE
     LOCK(ec.mutex);
     do
     :: condition -> break
     :: else ->
        ec.waiters++;
        sleep_in(ec);
        take_calls(ec);
        ec.waiters--
     od;
     UNLOCK(ec.mutex);
#else
     ec.waiters++;
     LOCK(ec.mutex);
#ifdef SLEEPS_WITHOUT_A_LOOK
     sleep_in(ec);
#endif
     do
#ifdef TAKES_CALLS_LATE
     :: condition -> take_calls(ec); break
     :: else -> take_calls(ec); sleep_in(ec)
#else
     :: take_calls(ec);
        if
        :: condition -> break
        :: else -> sleep_in(ec)
        fi
#endif
     od;
     atomic { ec.waiters--; UNLOCK(ec.mutex) };
#endif
     pass_on(ec)
  fi
}

/* EventCount::notify_one */
inline notify_one(ec) {
  call_one(ec, 1)
}

/* EventCount::notify_all. To see no waiter is one step with the lock: see call_one. */
inline notify_all(ec) {
  atomic {
    ec.waiters == 0 || !ec.mutex ->
    if
    :: ec.waiters == 0
    :: else -> ec.asleep = 0
    fi
  }
}
