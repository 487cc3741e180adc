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
  byte waiters; /* waiters_ */
  bool mutex;   /* mutex_ is locked */
  byte asleep   /* threads in wake_ */
};

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
        ec.waiters--
     od;
     UNLOCK(ec.mutex)
#else
     ec.waiters++;
     LOCK(ec.mutex);
#ifdef SLEEPS_WITHOUT_A_LOOK
     sleep_in(ec);
#endif
     do
     :: condition -> break
     :: else -> sleep_in(ec)
     od;
     atomic { ec.waiters--; UNLOCK(ec.mutex) }
#endif
  fi
}

/* EventCount::notify_one. To see no waiter and to lock the mutex is one step: a waiter that leaves in
 * between is woken by nobody, and needs it no more. */
inline notify_one(ec) {
  atomic {
    ec.waiters == 0 || !ec.mutex ->
    if
    :: ec.waiters == 0
    :: else -> wake_one(ec.asleep)
    fi
  }
}

inline notify_all(ec) {
  atomic {
    ec.waiters == 0 || !ec.mutex ->
    if
    :: ec.waiters == 0
    :: else -> ec.asleep = 0
    fi
  }
}
