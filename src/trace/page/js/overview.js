// SPDX-License-Identifier: Apache-2.0

// ---- Overview: a strip with the whole recording, and a window that shows where the view is ---------

class Overview {
  constructor(app, canvas) {
    this.app = app;
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.resize();
    this.listen();
  }

  resize() {
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(Math.round(this.canvas.clientWidth * this.ratio), 1);
    this.canvas.height = Math.max(Math.round(this.canvas.clientHeight * this.ratio), 1);
    this.forget();
  }

  // The strip is painted again, because colours, matches or sizes have changed.
  forget() { this.picture = null; }

  // The strip has the same times as a view after fit(): the recording with a margin on both sides.
  get begin() { return -this.app.view.margin; }
  get unit() { return (this.app.view.duration + 2 * this.app.view.margin) / this.canvas.width; }

  draw() {
    this.picture ??= this.paint();
    const {context, app} = this;
    const {width, height} = this.canvas;
    context.clearRect(0, 0, width, height);
    context.drawImage(this.picture, 0, 0);
    const x = Math.floor((app.view.begin - this.begin) / this.unit);
    const until = Math.max(Math.ceil((app.view.end - this.begin) / this.unit), x + 3 * this.ratio);
    context.fillStyle = `${app.colours.theme.back}b8`;
    context.fillRect(0, 0, x, height);
    context.fillRect(until, 0, width - until, height);
    context.strokeStyle = app.colours.theme.accent;
    context.lineWidth = 1.5 * this.ratio;
    context.strokeRect(x + this.ratio, this.ratio, until - x - 2 * this.ratio, height - 2 * this.ratio);
  }

  // Paints a band for each device. It is the higher, the busier the device was, and has the colours of the
  // stages.
  paint() {
    const picture = make('canvas', {width: this.canvas.width, height: this.canvas.height});
    const context = picture.getContext('2d');
    const idle = this.app.rows.filter((row) => row.kind === 'idle');
    const bands = Math.max(idle.length, 1);
    const height = Math.floor((picture.height - 4 * this.ratio) / bands);
    for (let band = 0; band < idle.length; ++band) {
      const bottom = 2 * this.ratio + (band + 1) * height;
      this.paintBand(context, idle[band], bottom, height - (bands > 1 ? this.ratio : 0));
    }
    if (this.app.matches !== null) this.paintMatches(context);
    return picture;
  }

  paintMatches(context) {
    const {recording, matches, colours} = this.app;
    context.fillStyle = colours.theme.accent;
    let last = -1;
    for (const event of matches) {
      const x = Math.floor((recording.begin[event] - this.begin) / this.unit);
      if (x !== last) context.fillRect(x, this.canvas.height - 5 * this.ratio, this.ratio, 5 * this.ratio);
      last = x;
    }
  }

  paintBand(context, idle, bottom, height) {
    const {recording, rows, colours} = this.app;
    const {report} = recording;
    const lanes = rows.filter((row) => row.kind === 'track' && recording.tracks[row.track].stream &&
      recording.tracks[row.track].device === idle.device).flatMap((row) => row.lanes);
    for (let x = 0; x < this.canvas.width; ++x) {
      const begin = this.begin + x * this.unit;
      const measured = Math.min(begin + this.unit, report.end) - Math.max(begin, report.begin);
      const gaps = idle.lanes[0].coverage(begin, begin + this.unit);
      const event = longestWithin(lanes, begin, begin + this.unit);
      if (event < 0) continue;
      // There are no gaps outside of the measured time, so the height is fixed there.
      const busy = measured > 0 ? Math.min(Math.max(1 - gaps / measured, 0), 1) : 0.4;
      const bar = Math.max(Math.round(busy * height), this.ratio);
      context.fillStyle = colours.ofClass[recording.classOf[event]];
      context.fillRect(x, bottom - bar, 1, bar);
    }
  }

  // The pointer drags the window. A click outside of it moves it there.
  listen() {
    const {canvas, app} = this;
    const timeAt = (pointer) => this.begin + pointer.offsetX * this.ratio * this.unit;
    let grip = null;  // the place at which the window is held, as time from its begin
    canvas.addEventListener('pointerdown', (pointer) => {
      const time = timeAt(pointer);
      const inside = time >= app.view.begin && time <= app.view.end;
      grip = inside ? time - app.view.begin : app.view.span / 2;
      canvas.setPointerCapture(pointer.pointerId);
      app.view.set(time - grip, time - grip + app.view.span);
    });
    canvas.addEventListener('pointermove', (pointer) => {
      if (grip === null) return;
      const begin = timeAt(pointer) - grip;
      app.view.set(begin, begin + app.view.span);
    });
    for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, () => { grip = null; });
    canvas.addEventListener('wheel', (wheel) => {
      wheel.preventDefault();
      app.view.zoom(1.0015 ** wheel.deltaY, (timeAt(wheel) - app.view.begin) / app.view.span);
    }, {passive: false});
  }
}

// Returns the longest event of [begin, end] in the lane that is covered most, or -1 if there is none.
function longestWithin(lanes, begin, end) {
  let best = null;
  let most = 0;
  for (const lane of lanes) {
    const covered = lane.coverage(begin, end);
    if (covered > most) [best, most] = [lane, covered];
  }
  if (best === null) return -1;
  const from = best.firstEndingAfter(begin);
  return best.events[best.longest(from, best.firstBeginningAt(end, from))];
}

