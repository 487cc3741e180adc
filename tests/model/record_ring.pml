/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/detail/pipeline/record_ring.hpp, and the free records of ProducerCore. A cell, and the record
 * that is in it, are written in one step: nobody else may touch a cell between its publication and its pop, which is
 * asserted.
 */

mtype = { nothing, batch, failed, skipped, ending }; /* what a cell holds: BatchRecord::stage */

typedef Cell {
  byte filled; /* full: the position whose item is here, plus 1 */
  mtype kind = nothing;
  byte number;
  byte block
};

Cell cells[DEPTH];
byte end_, numbers_reserved, claimed_, published_, taken_, free_records_ = DEPTH;
bool claimed_closed; /* kClosed in claimed_ */

#define FULL (cells[taken_ % DEPTH].filled == taken_ + 1)  /* RecordRing::has_filled */
#define OVER (taken_ == end_)                              /* RecordRing::all_staged */

/* Who waits at the ring is the business of model 1. */
#ifdef MODEL_1
EventCount room_, delivery_;
#define NOTIFY(how, ec) how(ec)
#else
#define NOTIFY(how, ec) skip
#endif

/* Within an atomic. RecordRing::reserve */
inline reserve(has) {
  if
  :: numbers_reserved < end_ -> numbers_reserved++; has = true
  :: else -> has = false
  fi
}

/* Within an atomic. RecordRing::claim; NONE: closed */
inline claim(number) {
  if
  :: claimed_closed -> number = NONE
  :: else -> number = claimed_; claimed_++
  fi
}

/* Within an atomic, the cell's part of RecordRing::publish. */
inline fill_cell(position, a_number, a_kind, a_block) {
  assert(cells[position % DEPTH].kind == nothing);
  cells[position % DEPTH].kind = a_kind;
  cells[position % DEPTH].number = a_number;
  cells[position % DEPTH].block = a_block;
  cells[position % DEPTH].filled = position + 1
}

/* RecordRing::publish */
inline publish(a_number, a_kind, a_block) {
#ifdef UNORDERED
  atomic { place_in_line = published_; published_++ };
  atomic { fill_cell(place_in_line, a_number, a_kind, a_block); place_in_line = 0 };
#else
  atomic { fill_cell(a_number, a_number, a_kind, a_block) };
#endif
#ifndef NO_NOTIFY_OF_PUBLISH
  NOTIFY(notify_one, delivery_)
#endif
}

/* ProducerCore::close_ring */
inline ring_close() {
  atomic { claimed_closed = true; closing = claimed_ };
  atomic { end_ = closing; closing = 0 };
#ifndef NO_NOTIFY_OF_CLOSE
  NOTIFY(notify_all, room_);
#endif
  NOTIFY(notify_one, delivery_)
}

/* ProducerCore::give_back */
inline give_back_record() {
  atomic { assert(free_records_ < DEPTH); free_records_++ };
#ifndef NO_NOTIFY_OF_POP
  NOTIFY(notify_one, room_)
#endif
}

/* ProducerCore::leave_ring, and the record is given back. */
inline pop() {
  atomic {
    assert(FULL);
    cells[taken_ % DEPTH].kind = nothing;
    cells[taken_ % DEPTH].number = 0;
    cells[taken_ % DEPTH].block = 0;
    taken_++
  };
  give_back_record()
}

/* ProducerCore::seek: no thread uses ring and records meanwhile. Their blocks come back. */
inline reopen(first, end) {
  atomic {
    for (i : 0 .. DEPTH - 1) {
      if
      :: cells[i].kind == batch -> idle = idle | cells[i].block
      :: else
      fi;
      cells[i].kind = nothing; cells[i].number = 0; cells[i].block = 0; cells[i].filled = 0
    };
    i = 0;
    end_ = end; taken_ = first; published_ = first; free_records_ = DEPTH;
    numbers_reserved = first; claimed_ = first; claimed_closed = false
  }
}
