/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/detail/pipeline/batch_ring.hpp. A cell and what is in it are written in one step: nobody
 * else may touch a cell between its publication and its pop, which is asserted.
 */

mtype = { nothing, batch, failed, skipped, ending }; /* what a cell holds: ProducerCore::Item */

typedef Cell {
  byte filled; /* full: the position whose item is here, plus 1 */
  mtype kind = nothing;
  byte number;
  byte block
};

Cell cells[DEPTH];
byte end_, entered_, claimed_, published_, seen_taken_, taken_;
bool claimed_closed; /* kClosed in claimed_ */

#define CLOSED (entered_ >= end_)                          /* BatchRing::closed */
#define FULL (cells[taken_ % DEPTH].filled == taken_ + 1)  /* BatchRing::full */
#define OVER (taken_ == end_)                              /* BatchRing::over */

/* Who waits at the ring is the business of model 1. */
#ifdef MODEL_1
EventCount room_, ready_;
#define NOTIFY(how, ec) how(ec)
#else
#define NOTIFY(how, ec) skip
#endif

/* Within an atomic. BatchRing::claim; NONE: closed */
inline claim(number) {
  if
  :: claimed_closed -> number = NONE
  :: else -> number = claimed_; claimed_++
  fi
}

/* Within an atomic, the cell's part of BatchRing::publish. */
inline fill_cell(position, a_number, a_kind, a_block) {
  assert(cells[position % DEPTH].kind == nothing);
  cells[position % DEPTH].kind = a_kind;
  cells[position % DEPTH].number = a_number;
  cells[position % DEPTH].block = a_block;
  cells[position % DEPTH].filled = position + 1
}

/* BatchRing::publish */
inline publish(a_number, a_kind, a_block) {
#ifdef UNORDERED
  atomic { place_in_line = published_; published_++ };
  atomic { fill_cell(place_in_line, a_number, a_kind, a_block); place_in_line = 0 };
#else
  atomic { fill_cell(a_number, a_number, a_kind, a_block) };
#endif
#ifndef NO_NOTIFY_OF_PUBLISH
  NOTIFY(notify_one, ready_)
#endif
}

/* BatchRing::close */
inline ring_close() {
  atomic { claimed_closed = true; closing = claimed_ };
  atomic { end_ = closing; closing = 0 };
#ifndef NO_NOTIFY_OF_CLOSE
  NOTIFY(notify_all, room_);
#endif
  NOTIFY(notify_one, ready_)
}

/* BatchRing::pop: the item goes first, then the count that lets the next one in. */
inline pop() {
  atomic {
    assert(FULL);
    cells[taken_ % DEPTH].kind = nothing;
    cells[taken_ % DEPTH].number = 0;
    cells[taken_ % DEPTH].block = 0;
    taken_++
  };
#ifndef NO_NOTIFY_OF_POP
  NOTIFY(notify_one, room_)
#endif
}

/* BatchRing::reopen: no thread uses the ring meanwhile. The blocks of its items come back. */
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
    end_ = end; taken_ = first; seen_taken_ = first; published_ = first;
    entered_ = first; claimed_ = first; claimed_closed = false
  }
}
