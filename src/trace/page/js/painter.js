// SPDX-License-Identifier: Apache-2.0

// ---- Painter: the canvas of the tracks -------------------------------------------------------------

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

class Painter {
  // `app` has the recording, the rows, the view, the colours and what is marked (app.js).
  constructor(app, canvas) {
    this.app = app;
    this.canvas = canvas;
    this.context = canvas.getContext('2d', {alpha: false});
    this.strips = new Strips();
    this.widths = new Map();  // widths of labels in CSS pixels
    this.resize();
  }

  resize() {
    this.ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.max(Math.round(this.width * this.ratio), 1);
    this.canvas.height = Math.max(Math.round(this.height * this.ratio), 1);
    const last = this.app.rows[this.app.rows.length - 1];
    this.app.view.lowest = Math.max(last.y + last.height + RULER + 8 - this.height, 0);
    this.app.view.scroll = Math.min(this.app.view.scroll, this.app.view.lowest);
    this.hatches = null;
  }

  px(length) { return Math.round(length * this.ratio); }

  draw() {
    const {context, app} = this;
    this.scale = new Scale(app.view, this.canvas.width);
    this.hatches ??= {copy: this.hatch('#ffffff38'), idle: this.hatch(`${app.colours.theme.idle}70`)};
    context.font = FONT.replace('11px', `${11 * this.ratio}px`);
    context.textBaseline = 'middle';
    context.fillStyle = app.colours.theme.back;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const rows = app.rows.filter((row) => this.top(row.y) < this.height && this.top(row.y) + row.height > RULER);
    this.drawGround(rows);
    this.drawStrips(rows);
    for (const row of rows) if (row.kind === 'memory') this.drawMemory(row);
    this.drawMarks();
    this.drawRuler();
    if (app.view.lowest > 0) this.drawThumb();
  }

  // Draws the thumb of a scroll bar.
  drawThumb() {
    const room = this.height - RULER;
    const length = room * room / (room + this.app.view.lowest);
    const y = RULER + (room - length) * this.app.view.scroll / this.app.view.lowest;
    this.context.fillStyle = `${this.app.colours.theme.muted}70`;
    this.context.fillRect(this.canvas.width - this.px(5), this.px(y), this.px(4), this.px(length));
  }

  // Converts the y of a row to the y of the canvas, in CSS pixels.
  top(y) { return RULER + y - this.app.view.scroll; }

  laneTop(row, lane) { return this.top(row.y) + (row.kind === 'idle' ? 2 : 3) + lane * LANE; }
  laneHeight(row) { return row.kind === 'idle' ? IDLE : LANE - 2; }

  hatch(colour) {
    const size = this.px(6);
    const tile = make('canvas', {width: size, height: size});
    const context = tile.getContext('2d');
    context.strokeStyle = colour;
    context.lineWidth = this.px(1.5);
    for (const shift of [-size, 0, size]) {
      context.beginPath();
      context.moveTo(shift - 1, size + 1);
      context.lineTo(shift + size + 1, -1);
      context.stroke();
    }
    return this.context.createPattern(tile, 'repeat');
  }

  // Draws what is behind the events: the rows, the edges of the steps, and shade over the times that are not
  // measured.
  drawGround(rows) {
    const {context} = this;
    const {theme} = this.app.colours;
    const {width} = this.canvas;
    for (const row of rows) {
      const y = this.px(this.top(row.y));
      if (row.kind === 'group') {
        context.fillStyle = theme.panel;
        context.fillRect(0, y, width, this.px(row.height));
      }
      context.fillStyle = theme.line;
      context.fillRect(0, y + this.px(row.height) - 1, width, 1);
    }
    this.forEachStep((from, until) => {
      context.fillStyle = theme.line;
      context.fillRect(from, 0, 1, this.canvas.height);
      context.fillRect(until, 0, 1, this.canvas.height);
    });
    const {begin, end} = this.app.recording.report;
    context.fillStyle = `${theme.muted}1c`;
    context.fillRect(0, 0, this.scale.pixelAt(begin), this.canvas.height);
    context.fillRect(this.scale.pixelAt(end), 0, width, this.canvas.height);
  }

  // Calls `act` for the steps that are wide enough to be told apart.
  forEachStep(act) {
    const {steps} = this.app;
    const last = this.scale.timeAt(this.canvas.width);
    let place = steps.firstEndingAfter(this.app.view.begin);
    while (place < steps.size && steps.begin[place] < last) {
      const from = this.scale.pixelAt(steps.begin[place]);
      const until = this.scale.pixelAt(steps.end[place]);
      if (until - from >= this.px(12)) {
        act(from, until, place);
        ++place;
      } else {  // skips to the next step that may be wide enough
        place = Math.max(steps.firstBeginningAt(this.scale.timeAt(from + this.px(12)), place), place + 1);
      }
    }
  }

  drawStrips(rows) {
    const lines = [];
    const boxes = [];
    this.strips.start(this.canvas.width, rows.reduce((sum, row) => sum + row.lanes.length, 0));
    for (const row of rows) {
      row.lanes.forEach((lane, index) => {
        const y = this.laneTop(row, index);
        const addBox = (place, x, width) => boxes.push({row, lane, place, x, y: this.px(y), width});
        // Short pauses between kernels are normal, so a pixel of the idle row may be as faint as it is idle.
        const least = row.kind === 'idle' ? 0 : 0.3;
        lines.push({row, y, line: this.strips.addLane(lane, this.scale, this.colourIn(row, lane), least, addBox)});
      });
    }
    this.strips.finish();
    this.context.imageSmoothingEnabled = false;
    for (const {row, y, line} of lines) {
      this.strips.draw(this.context, line, this.px(y), this.px(this.laneHeight(row)));
    }
    for (const box of boxes) this.drawBox(box);
  }

  // Draws how much of the device's memory is taken. The height of the row stands for the peak of the whole
  // recording. Within a pixel the highest level counts.
  drawMemory(row) {
    const {context, app} = this;
    const {time, bytes} = app.recording.memoryOf.get(row.device);
    const peak = bytes.reduce((most, one) => Math.max(most, one), 1);
    const top = this.px(this.top(row.y) + 3);
    const height = this.px(MEMORY);
    const last = Math.min(this.scale.pixelAt(app.recording.duration), this.canvas.width);
    const columns = new Map();  // maps a pixel to the highest level within it
    context.fillStyle = `${app.colours.theme.work}b0`;
    for (let i = 0; i < time.length; ++i) {
      const from = Math.max(this.scale.pixelAt(time[i]), 0);
      const until = Math.min(i + 1 < time.length ? this.scale.pixelAt(time[i + 1]) : last, last);
      if (until < 0 || from > last) continue;
      const level = Math.max(Math.round(height * bytes[i] / peak), bytes[i] > 0 ? 1 : 0);
      if (until - from >= 1) context.fillRect(from, top + height - level, until - from, level);
      else columns.set(Math.floor(from), Math.max(columns.get(Math.floor(from)) ?? 0, level));
    }
    for (const [x, level] of columns) context.fillRect(x, top + height - level, 1, level);
    this.drawText(`at most ${formatBytes(peak)}`, 0, top, this.canvas.width, this.px(14), app.colours.theme.text);
  }

  colourIn(row, lane) {
    const {app} = this;
    if (row.kind === 'idle') {
      const idle = pack(app.colours.theme.idle);
      return () => idle;
    }
    const {events} = lane;
    const {classOf} = app.recording;
    return (place) => app.packed[classOf[events[place]]];
  }

  drawBox({row, lane, place, x, y, width}) {
    const {context, app} = this;
    const height = this.px(this.laneHeight(row));
    const inner = width - (width > this.px(4) ? 1 : 0);  // leaves a pixel between neighbours
    if (row.kind === 'idle') {
      context.fillStyle = `${app.colours.theme.idle}26`;
      context.fillRect(x, y, inner, height);
      context.fillStyle = this.hatches.idle;
      context.fillRect(x, y, inner, height);
      this.drawText(app.gapLabel(row.device, place), x, y, inner, height, app.colours.theme.text);
      return;
    }
    const event = lane.events[place];
    const one = app.recording.of(event);
    const index = app.recording.classOf[event];
    context.globalAlpha = app.matching === null || app.matching[index] ? 1 : 0.22;
    context.fillStyle = app.colours.ofClass[index];
    context.fillRect(x, y, inner, height);
    if (one.kind === 'copy' || one.kind === 'fill') {
      context.fillStyle = this.hatches.copy;
      context.fillRect(x, y, inner, height);
    }
    this.drawText(one.label, x, y, inner, height, app.matching === null || app.matching[index] ?
      app.colours.inkOfClass[index] : app.colours.theme.text);
    context.globalAlpha = 1;
  }

  // Draws as much of the text as there is room for, from the left edge of the visible part of the box.
  drawText(text, x, y, width, height, colour) {
    const left = Math.max(x, 0) + this.px(4);
    const room = Math.min(x + width, this.canvas.width) - left - this.px(3);
    if (room < this.px(14)) return;
    if (!this.widths.has(text)) this.widths.set(text, this.context.measureText(text).width / this.ratio);
    const wanted = this.widths.get(text) * this.ratio;
    const shown = wanted <= room ? text : `${text.slice(0, Math.floor(text.length * room / wanted) - 1)}…`;
    if (shown.length < 5 && shown !== text) return;
    this.context.fillStyle = colour;
    this.context.fillText(shown, left, y + height / 2 + this.ratio * 0.5, room);
  }

  // Returns where an event or a gap is drawn, in CSS pixels of the canvas. Returns null if no row has it.
  boxOf(target) {
    const row = target.event === undefined ?
      this.app.rows.find((one) => one.kind === 'idle' && one.device === target.device) :
      this.app.rows.find((one) => one.kind === 'track' && one.track === this.app.recording.of(target.event).track);
    if (!row) return null;
    const [begin, end] = this.app.timesOf(target);
    const lane = target.event === undefined ? 0 : this.laneOf(row, target.event);
    const scale = new Scale(this.app.view, this.canvas.width);
    const x = scale.pixelAt(begin) / this.ratio;
    const width = Math.max(scale.pixelAt(end) / this.ratio - x, 1 / this.ratio);
    return {x, y: this.laneTop(row, lane), width, height: this.laneHeight(row)};
  }

  laneOf(row, event) {
    const time = this.app.recording.begin[event];
    return row.lanes.findIndex((lane) => {
      let place = lane.firstBeginningAt(time);
      while (place < lane.size && lane.events[place] < event) ++place;
      return lane.events[place] === event;
    });
  }

  // Draws what is pinned, what is under the pointer, the relatives of both, and the selection.
  drawMarks() {
    const {context, app} = this;
    const {theme} = app.colours;
    for (const gap of [app.pinned, app.hovered].filter((one) => one?.device !== undefined)) {
      const box = this.boxOf(gap);
      context.fillStyle = `${theme.idle}18`;
      context.fillRect(this.px(box.x), 0, this.px(box.width), this.canvas.height);
    }
    if (app.pinned) this.drawRelatives(app.pinned, theme.accent);
    if (app.hovered) this.drawRelatives(app.hovered, theme.text);
    if (app.hovered) this.outline(app.hovered, theme.text, 1);
    if (app.pinned) this.outline(app.pinned, theme.accent, 2);
    if (app.selection) this.drawSelection(app.selection);
  }

  outline(target, colour, width) {
    const box = this.boxOf(target);
    if (!box) return;
    const {context} = this;
    context.strokeStyle = colour;
    context.lineWidth = this.px(width);
    const x = Math.max(this.px(box.x), -10);
    const until = Math.min(this.px(box.x + box.width), this.canvas.width + 10);
    context.strokeRect(x - 0.5, this.px(box.y) - 0.5, Math.max(until - x, this.px(2)), this.px(box.height) + 1);
  }

  // Draws lines between a call and its work on streams.
  drawRelatives(target, colour) {
    const {context} = this;
    const from = this.boxOf(target);
    if (!from || target.event === undefined) return;
    context.strokeStyle = colour;
    context.lineWidth = this.px(1.25);
    for (const event of target.relatives.slice(0, 200)) {
      const to = this.boxOf({event});
      if (!to) continue;
      this.outline({event}, colour, 1);
      const [x1, y1, x2, y2] = [from.x, from.y + from.height / 2, to.x, to.y + to.height / 2].map((at) => this.px(at));
      context.beginPath();
      context.moveTo(x1, y1);
      context.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
      context.stroke();
    }
  }

  drawSelection({begin, end}) {
    const {context} = this;
    const {theme} = this.app.colours;
    const x = this.scale.pixelAt(begin);
    const width = Math.max(this.scale.pixelAt(end) - x, 1);
    context.fillStyle = `${theme.accent}22`;
    context.fillRect(x, 0, width, this.canvas.height);
    context.fillStyle = theme.accent;
    context.fillRect(x, 0, this.px(1), this.canvas.height);
    context.fillRect(x + width - this.px(1), 0, this.px(1), this.canvas.height);
  }
}

