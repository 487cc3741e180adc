/* SPDX-License-Identifier: Apache-2.0
 *
 * include/penstock/detail/pipeline/record_ring.hpp, free_records.hpp and batch_record.hpp. There are
 * RECORDS records, and as many cells. A record that nobody needs is in `free_records_`, or, where
 * batches end in the order of their numbers, counted in `returned_`.
 */

mtype = { nothing, free, filled, failed, ended, passed, thrown, leased }; /* Stage, but for `open` */

typedef BatchRecord {
  mtype is = free; /* stage() */
  byte number;
  byte memory;       /* a block as a bit, ... */
  byte target = NONE /* ... and a slot */
};
typedef Cell {
  byte full_; /* the position whose record is here, plus 1 */
  byte record = NONE
};

BatchRecord records[RECORDS];
Cell cells[RECORDS];
byte end_, reserved_, claimed_, published_, staged_, taken_;
bool claims_closed; /* kClosed in claimed_ */

#define HAS_FILLED (cells[staged_ % RECORDS].full_ == staged_ + 1) /* RecordRing::has_filled */
#define ALL_STAGED (staged_ == end_)                               /* RecordRing::all_staged */
#define ALL_RESERVED (reserved_ >= end_)                           /* RecordRing::all_reserved */
#define HAS_STAGED (taken_ != staged_)                             /* RecordRing::has_staged */

/* Within an atomic. RecordRing::claim; NONE: closed */
inline claim(number) {
  if
  :: claims_closed -> number = NONE
  :: else -> number = claimed_; claimed_++
  fi
}

/* Within an atomic: the cell's part of RecordRing::publish. The record that was here has left. */
inline fill_cell(position, a_record) {
  assert(cells[position % RECORDS].record == NONE);
  cells[position % RECORDS].record = a_record;
  cells[position % RECORDS].full_ = position + 1
}

/* RecordRing::publish */
inline publish(number, a_record) {
#ifdef UNORDERED
  atomic { position = published_; published_++ };
  atomic { fill_cell(position, a_record); position = 0 }
#else
  atomic { fill_cell(number, a_record) }
#endif
}

/* Within an atomic. RecordRing::take */
inline take() {
  assert(HAS_STAGED);
  cells[taken_ % RECORDS].record = NONE;
  taken_++
}

/* RecordRing::close. `limit` is a ghost: see route.pml. */
inline close() {
  atomic { claims_closed = true; closing = claimed_ };
  atomic {
    end_ = closing;
    if
    :: closing < limit -> limit = closing
    :: else
    fi;
    closing = 0
  }
}

/* Within an atomic. RecordRing::reopen: no thread uses the ring meanwhile. */
inline reopen(first) {
  for (i : 0 .. RECORDS - 1) { cells[i].full_ = 0; cells[i].record = NONE };
  i = 0;
  taken_ = first; staged_ = first; published_ = first; reserved_ = first; claimed_ = first;
  end_ = BATCHES; limit = BATCHES; claims_closed = false
}

/* FreeRecords. Nobody looks at a record before it is opened: so which one of the stack a worker has
 * taken is chosen then. */
#ifdef STACK
byte free_records_ = (1 << RECORDS) - 1, records_left = RECORDS;
#define HAS_ROOM true
#define IS_FREE(r) (free_records_ & (1 << (r)))
#else
byte returned_;
#define HAS_ROOM (reserved_ < returned_ + RECORDS) /* FreeRecords::has_room */
#endif

/* Within an atomic. FreeRecords::try_take */
inline try_take_record() {
#ifdef STACK
  if
  :: records_left == 0 -> has_record = false
  :: else -> records_left--; has_record = true
  fi
#else
  has_record = true
#endif
}

/* Within an atomic. FreeRecords::put_back */
inline put_back() {
#ifdef STACK
  records_left++
#else
  skip
#endif
}

/* Within an atomic. FreeRecords::index, and BatchRecord::open: `taken` is the record. */
inline open(number) {
#ifdef STACK
  taken = 0;
  do
  :: IS_FREE(taken) -> break
  :: else -> taken++
  od;
  free_records_ = free_records_ & ~(1 << taken);
#else
  taken = number % RECORDS;
#endif
  assert(taken < RECORDS && records[taken].is == free);
  records[taken].number = number
}

/* Within an atomic. BatchRecord::clear, but for the memory, and FreeRecords::give_back */
inline give_back_record(r) {
  assert(records[r].is != free);
  records[r].is = free;
  records[r].number = 0;
#ifdef STACK
  assert(!IS_FREE(r));
  free_records_ = free_records_ | (1 << r);
  records_left++
#else
  returned_++
#endif
}
