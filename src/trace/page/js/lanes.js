// SPDX-License-Identifier: Apache-2.0

// ---- Lanes: events that do not overlap, prepared for drawing at any zoom ---------------------------
//
// For each pixel a frame asks a lane at most a few questions: which event of a time span is the longest,
// and how much of the span is covered. Each answer takes O(log n), so a frame costs O(pixels), not
// O(events).

class Lane {
  // The columns are ordered by the begins. `events` has the number of each entry, an event's or a gap's.
  constructor(begins, ends, events) {
    this.begin = begins;
    this.end = ends;
    this.events = events;
    this.covered = new Float64Array(begins.length + 1);  // by all entries before
    for (let i = 0; i < begins.length; ++i) this.covered[i + 1] = this.covered[i] + (ends[i] - begins[i]);
    this.buildLongest();
  }

  get size() { return this.begin.length; }

  // Builds a tournament tree in an array: node k is the longer one of the nodes 2k and 2k + 1, and leaf i is
  // node size + i.
  buildLongest() {
    const {size} = this;
    this.winners = new Uint32Array(2 * size);
    for (let i = 0; i < size; ++i) this.winners[size + i] = i;
    for (let k = size - 1; k > 0; --k) {
      this.winners[k] = this.longer(this.winners[2 * k], this.winners[2 * k + 1]);
    }
  }

  longer(a, b) {
    return this.end[b] - this.begin[b] > this.end[a] - this.begin[a] ? b : a;
  }

  // Returns the longest of the places [from, to). There must be at least one.
  longest(from, to) {
    let best = from;
    for (let low = from + this.size, high = to + this.size; low < high; low >>= 1, high >>= 1) {
      if (low & 1) best = this.longer(best, this.winners[low++]);
      if (high & 1) best = this.longer(best, this.winners[--high]);
    }
    return best;
  }

  // Returns the first place whose event ends after `time`.
  firstEndingAfter(time) {
    let low = 0;
    let high = this.size;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // Returns the first place from `from` on whose event begins at `time` or later. The search is faster, the
  // nearer that place is.
  firstBeginningAt(time, from = 0) {
    let step = 1;
    while (from + step < this.size && this.begin[from + step] < time) step *= 2;
    let low = from + (step >> 1);
    let high = Math.min(from + step, this.size);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.begin[middle] >= time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // Returns how much of [begin, end] is covered.
  coverage(begin, end) {
    const from = this.firstEndingAfter(begin);
    const to = this.firstBeginningAt(end, from);
    if (to <= from) return 0;
    return this.covered[to] - this.covered[from] - Math.max(0, begin - this.begin[from]) -
      Math.max(0, this.end[to - 1] - end);
  }

  // Returns the place of the event at `time`, or else of the longest event within `tolerance` of `time`.
  // Returns -1 if there is none.
  placeNear(time, tolerance) {
    const from = this.firstEndingAfter(time);
    if (from < this.size && this.begin[from] <= time) return from;
    const near = this.firstEndingAfter(time - tolerance);
    const to = this.firstBeginningAt(time + tolerance, near);
    return near < to ? this.longest(near, to) : -1;
  }
}

// Puts each event of a track into the lane below the events that have not ended when it begins.
class LaneBuilder {
  constructor(recording) {
    this.recording = recording;
    this.open = recording.tracks.map(() => []);     // for each track, the ends of the events that have not ended
    this.lanesOf = recording.tracks.map(() => []);  // for each track, the numbers of its lanes
    this.counts = [];                               // the number of events of each lane
  }

  // Returns the lanes of each track, the outermost first.
  build() {
    const laneOf = this.assign();
    const {begin, end, count} = this.recording;
    const columns = this.counts.map((size) => ({
      begins: new Float64Array(size), ends: new Float64Array(size), events: new Uint32Array(size), filled: 0,
    }));
    for (let i = 0; i < count; ++i) {
      const column = columns[laneOf[i]];
      column.begins[column.filled] = begin[i];
      column.ends[column.filled] = end[i];
      column.events[column.filled++] = i;
    }
    const lanes = columns.map((column) => new Lane(column.begins, column.ends, column.events));
    return this.lanesOf.map((numbers) => numbers.map((number) => lanes[number]));
  }

  assign() {
    const {recording} = this;
    const laneOf = new Uint32Array(recording.count);
    for (let i = 0; i < recording.count; ++i) {
      const {track} = recording.of(i);
      const open = this.open[track];
      while (open.length > 0 && open[open.length - 1] <= recording.begin[i]) open.pop();
      const depth = open.length;
      open.push(recording.end[i]);
      if (depth === this.lanesOf[track].length) this.lanesOf[track].push(this.counts.push(0) - 1);
      laneOf[i] = this.lanesOf[track][depth];
      ++this.counts[laneOf[i]];
    }
    return laneOf;
  }
}

