/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/detail/pipeline/batch_producer.hpp: what both models need of it, and the ghosts, that is
 * what no thread knows and the properties are about.
 */

bool running[WORKERS]; /* worker threads that were started and have not ended */
bool finished;         /* finished_ */

byte limit;        /* ghost: the first number that will not come */
byte expected;     /* ghost: the number that comes next */
byte made_skipped; /* ghost: numbers, as bits, that never come */
byte delivered;    /* ghost: numbers that came */

/* Within an atomic. ProducerCore::make: the source fills the batch, throws, throws what the policy
 * deals with, or says that the data ends. `no_block`: the pool threw. */
inline make(number, no_block) {
  if
  :: no_block -> kind = failed
  :: !no_block -> kind = batch
  :: !no_block && errors_left > 0 -> errors_left--; kind = failed
#ifdef SKIPS
  :: !no_block && errors_left > 0 ->
     errors_left--; kind = skipped; made_skipped = made_skipped | (1 << number)
#endif
#ifdef ENDS
  :: !no_block -> kind = ending; made_skipped = made_skipped | (1 << number);
#ifndef UNORDERED
     if
     :: number < limit -> limit = number
     :: else
     fi
#endif
#endif
  fi
}

/* ProducerCore::ready: drops what is not for the consumer. */
inline ready(yes) {
  do
  :: atomic {
       if
       :: finished || !FULL -> yes = false; break
       :: else -> kind = cells[taken_ % DEPTH].kind
       fi
     };
     atomic {
       if
       :: kind == batch || kind == failed -> yes = true; kind = nothing; break
       :: else
       fi
     };
     pop();
     atomic {
#ifndef UNORDERED
       finished = (kind == ending);
#endif
       kind = nothing
     }
  od
}

/* ProducerCore::at_end */
inline at_end(yes) {
#ifdef READY_DOES_NOT_LOOK
  do
  :: !finished && FULL && (cells[taken_ % DEPTH].kind == ending || cells[taken_ % DEPTH].kind == skipped) ->
     finished = (cells[taken_ % DEPTH].kind == ending);
     pop()
  :: else -> break
  od;
  yes = (!finished && FULL);
#else
  ready(yes);
#endif
  if
  :: yes -> yes = false
  :: else -> atomic { finished = (finished || OVER); yes = finished }
  fi
}

/* Within an atomic: what stands at the head of a ring that is ready(), to be popped. */
inline look_at_head() {
  assert(FULL);
  kind = cells[taken_ % DEPTH].kind;
  n = cells[taken_ % DEPTH].number;
  block = cells[taken_ % DEPTH].block;
  assert(kind == batch || kind == failed)
}

#define ONES(count) ((1 << (count)) - 1)

/* Ghost: none from `expected` to a_number was to come. */
inline check_skipped(a_number) {
  assert(((made_skipped >> expected) & ONES(a_number - expected)) == ONES(a_number - expected))
}

/* Ghost: number a_number came, and it is in its place. */
inline check_delivery(a_number) {
#ifdef UNORDERED
  assert(!((delivered | made_skipped) & (1 << a_number)));
#else
  assert(a_number >= expected && a_number < limit);
  check_skipped(a_number);
  expected = a_number + 1;
#endif
  delivered = delivered | (1 << a_number)
}

/* Ghost: the end came, and everything before it. */
inline check_end() {
#ifdef UNORDERED
  assert((delivered | made_skipped) == (1 << claimed_) - 1)
#else
  assert(expected <= limit);
  check_skipped(limit)
#endif
}

/* ProducerCore::stop */
inline stop() {
  for (i : 0 .. WORKERS - 1) {
    stop_requested[i] = true;
#if defined(MODEL_1) && !defined(NO_STOP_CALLBACK)
    if
    :: stop_callback[i] -> atomic { !pool_mutex -> pool_asleep = 0 }
    :: else
    fi
#endif
  };
  ring_close();
  for (i : 0 .. WORKERS - 1) {
    !running[i] /* join */
  };
  i = 0
}

/* ProducerCore::seek, with start */
inline seek(first) {
  stop();
  atomic {
    limit = BATCHES; expected = first; made_skipped = 0; delivered = 0;
    finished = false;
    reopen(first, BATCHES);
#ifdef INLINE
    inline_next_ = first
#else
    for (i : 0 .. WORKERS - 1) { stop_requested[i] = false; running[i] = true };
    i = 0
#endif
  }
}
