/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/device_arena.hpp, the copy stream, and the device. A slot is a number; where it is
 * is asserted at every move. What stands between lock and unlock of the arena's mutex is one step,
 * with the calls of CUDA's around it: nothing in there waits for another thread.
 */

mtype = { is_free, is_staged, is_leased, is_ending, is_lost };

chan free_ = [SLOTS] of { byte }; /* the first has been free for longest */
byte lost_slots;
mtype place[SLOTS] = is_free;

#ifdef DEVICE
#define FREE(slot) free_!slot
#else
#define FREE(slot) free_!!slot /* In their order: one is as good as the other. */
#endif

#define MOVE(slot, from, to) assert(place[slot] == from); place[slot] = to

#ifdef DEVICE
chan copies = [BLOCKS] of { byte, byte }; /* the copy stream: block, slot */
bool read_by_lease[SLOTS];    /* the consumer's kernels read it, or will */
bool read_before_copy[SLOTS]; /* the same; and the slot was acquired for its next copy since */

/* One copy after the other, behind the events that the copy stream waits for. */
proctype CopyStream() {
  byte block, slot;

end:
  do
  :: atomic { nempty(copies) -> copies?<block, slot> };
     atomic {
#ifndef NO_WAIT_FOR_READERS
       !read_before_copy[slot] ->
#endif
       copies?block, slot;
       assert(!read_before_copy[slot]);
       read_by_copies = read_by_copies & ~block; block = 0; slot = 0
     }
  od
}

/* What a lease was used for is through some time after its end. */
proctype ConsumerStreams() {
end:
  do
  :: atomic { read_by_lease[0] && place[0] != is_leased -> read_by_lease[0] = false }
  :: atomic { read_before_copy[0] -> read_before_copy[0] = false }
#if SLOTS > 1
  :: atomic { read_by_lease[1] && place[1] != is_leased -> read_by_lease[1] = false }
  :: atomic { read_before_copy[1] -> read_before_copy[1] = false }
#endif
  od
}
#endif

/* Within an atomic. DeviceArenaCore::try_acquire: `slot` stays NONE when none is free; `ok` is false
 * when the waits for its readers could not be queued: then it is put back. */
inline try_acquire_slot(slot) {
  ok = true;
  if
  :: empty(free_)
  :: nempty(free_) -> call(ok);
     if
     :: !ok && len(free_) > 1 -> free_?slot; FREE(slot); slot = NONE
     :: !ok && len(free_) == 1
     :: ok ->
        free_?slot;
        MOVE(slot, is_free, is_staged);
#ifdef DEVICE
        read_before_copy[slot] = read_before_copy[slot] || read_by_lease[slot];
        read_by_lease[slot] = false
#endif
     fi
  fi
}

/* DeviceArenaCore::release_after, for the streams of a lease; false: it threw. */
inline release_after_lease(slot) {
  atomic {
    call(ok);
    if
    :: ok -> MOVE(slot, is_ending, is_free); FREE(slot)
    :: else
    fi
  };
  if
  :: ok
  :: else -> /* wait_on_host */
     atomic { call(ok) };
     if
#ifdef DEVICE
     :: atomic { ok && !read_by_lease[slot] -> MOVE(slot, is_ending, is_free); FREE(slot) }
#else
     :: atomic { ok -> MOVE(slot, is_ending, is_free); FREE(slot) }
#endif
     :: atomic { !ok -> MOVE(slot, is_ending, is_lost); lost_slots++ }
     fi;
     ok = false
  fi
}

/* The same for the copy stream, in the destructor of DeviceSlot: what fails is told to nobody. */
inline drop_slot(slot) {
  atomic {
    call(ok);
    if
    :: ok -> MOVE(slot, is_staged, is_free); FREE(slot); slot = NONE
    :: else -> ok = true; call(ok)
    fi
  };
  if
  :: slot == NONE
  :: else ->
     if
#ifdef DEVICE
     :: atomic { ok && empty(copies) -> MOVE(slot, is_staged, is_free); FREE(slot) }
#else
     :: atomic { ok -> MOVE(slot, is_staged, is_free); FREE(slot) }
#endif
     :: atomic { !ok -> MOVE(slot, is_staged, is_lost); lost_slots++ }
     fi
  fi;
  atomic { ok = false; slot = NONE }
}
