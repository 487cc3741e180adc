// SPDX-License-Identifier: Apache-2.0

// ---- The view: which stretch of time is seen, and how far down -------------------------------------

const SHORTEST = 20;  // nanoseconds across the whole view

class View {
  constructor(duration, onChange) {
    this.duration = Math.max(duration, SHORTEST);
    this.onChange = onChange;
    this.scroll = 0;
    this.lowest = 0;  // how far it can be scrolled down
    this.target = null;
    this.fitAtOnce();
  }

  get span() { return this.end - this.begin; }
  get margin() { return this.duration * 0.02; }

  fitAtOnce() { this.set(-this.margin, this.duration + this.margin); }
  fit() { this.goTo(-this.margin, this.duration + this.margin); }

  // Keeps the span where it can, moves it to where there is something.
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

  // As set(), in a fifth of a second, so that the eye can follow.
  goTo(begin, end) {
    const target = this.clamp(begin, end);
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.set(...target);
      return;
    }
    this.target = {from: [this.begin, this.end], to: target, started: null};
    this.onChange();
  }

  // One frame of goTo(). True while there is more to come.
  advance(now) {
    if (this.target === null) return false;
    const {from, to} = this.target;
    this.target.started ??= now;
    const part = Math.min((now - this.target.started) / 200, 1);
    const eased = 1 - (1 - part) ** 3;
    // Spans change by factors, not by differences: a zoom looks even. The ends follow so that both arrive.
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

  // `at`: 0 ... 1 of the width, the place that stays.
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

  // With a quarter of it as air on both sides, at least.
  show(begin, end) {
    const span = Math.max((end - begin) * 1.5, SHORTEST);
    const middle = (begin + end) / 2;
    this.goTo(middle - span / 2, middle + span / 2);
  }

  // Moves there without a change of the zoom, unless it is too long or too short to be seen.
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

