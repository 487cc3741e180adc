// SPDX-License-Identifier: Apache-2.0

// ---- The view: the times that are visible, and how far down the page is scrolled -------------------

const SHORTEST = 20;  // the least width of a view, in nanoseconds

class View {
  constructor(duration, onChange) {
    this.duration = Math.max(duration, SHORTEST);
    this.onChange = onChange;
    this.scroll = 0;
    this.lowest = 0;  // the largest value of `scroll`
    this.target = null;
    this.fitAtOnce();
  }

  get span() { return this.end - this.begin; }
  get margin() { return this.duration * 0.02; }

  fitAtOnce() { this.set(-this.margin, this.duration + this.margin); }
  fit() { this.goTo(-this.margin, this.duration + this.margin); }

  // Returns the span, moved and shortened so far that it lies within the recording and its margins.
  clamp(begin, end) {
    const longest = this.duration + 2 * this.margin;
    const span = Math.min(Math.max(end - begin, SHORTEST), longest);
    const middle = (begin + end) / 2;
    const from = Math.min(Math.max(middle - span / 2, -this.margin), this.duration + this.margin - span);
    return [from, from + span];
  }

  set(begin, end) {
    this.target = null;
    [this.begin, this.end] = this.clamp(begin, end);
    this.onChange();
  }

  // Does the same as set() within a fifth of a second, so that the eye can follow.
  goTo(begin, end) {
    const target = this.clamp(begin, end);
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.set(...target);
      return;
    }
    this.target = {from: [this.begin, this.end], to: target, started: null};
    this.onChange();
  }

  // Makes one frame of goTo(). Returns true while more frames follow.
  advance(now) {
    if (this.target === null) return false;
    const {from, to} = this.target;
    this.target.started ??= now;
    const part = Math.min((now - this.target.started) / 200, 1);
    const eased = 1 - (1 - part) ** 3;
    // The span changes by a factor in each frame, so that a zoom looks even. The begin moves so that both
    // ends arrive at the same time.
    const [oldSpan, newSpan] = [from[1] - from[0], to[1] - to[0]];
    const span = oldSpan * (newSpan / oldSpan) ** eased;
    const moved = oldSpan === newSpan ? eased : (oldSpan - span) / (oldSpan - newSpan);
    this.begin = from[0] + (to[0] - from[0]) * moved;
    this.end = this.begin + span;
    if (part === 1) {
      [this.begin, this.end] = to;
      this.target = null;
    }
    return true;
  }

  settled() { return this.target === null ? [this.begin, this.end] : this.target.to; }

  // `at`, 0 ... 1 of the width, is the place that keeps its time.
  zoom(factor, at = 0.5, smoothly = false) {
    const [begin, end] = this.settled();
    const [low, high] = this.clamp(0, (end - begin) * factor);
    const span = high - low;
    const from = begin + ((end - begin) - span) * at;
    if (smoothly) this.goTo(from, from + span);
    else this.set(from, from + span);
  }

  move(part, smoothly = false) {
    const [begin, end] = this.settled();
    const by = (end - begin) * part;
    if (smoothly) this.goTo(begin + by, end + by);
    else this.set(begin + by, end + by);
  }

  scrollTo(y) {
    this.scroll = Math.min(Math.max(y, 0), this.lowest);
    this.onChange();
  }

  // Goes to [begin, end] with a margin of a quarter of its length on both sides.
  show(begin, end) {
    const span = Math.max((end - begin) * 1.5, SHORTEST);
    const middle = (begin + end) / 2;
    this.goTo(middle - span / 2, middle + span / 2);
  }

  // Moves the view to [begin, end] without a zoom, unless that is too long or too short to be visible.
  reveal(begin, end) {
    const [from, to] = this.settled();
    const length = end - begin;
    const span = to - from;
    if (length > span || length < span / 200) {
      const wanted = Math.max(length * 8, SHORTEST);
      const middle = (begin + end) / 2;
      this.goTo(middle - wanted / 2, middle + wanted / 2);
    } else if (begin < from || end > to) {
      const middle = (begin + end) / 2;
      this.goTo(middle - span / 2, middle + span / 2);
    }
  }
}

