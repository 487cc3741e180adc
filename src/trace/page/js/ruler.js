// SPDX-License-Identifier: Apache-2.0

// ---- The ruler over the tracks: times, steps, matches of the search, the selection's length --------

// Returns 1, 2 or 5 times a power of ten, the smallest that is not less than `atLeast`.
function roundStep(atLeast) {
  const power = 10 ** Math.floor(Math.log10(atLeast));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= atLeast * 0.999);
}

// Returns the ticks of a view: {anchor, size, unit, digits, times}. If the view is far from zero and zoomed
// in, the labels count from an anchor, which is shown in the corner at their left. So a label has five
// digits or so at most.
function ticksOf(view, pixels) {
  const step = Math.max(roundStep(view.span * 90 / Math.max(pixels, 90)), 1);
  const anchor = Math.abs(view.begin) > 2000 * step ? Math.floor(view.begin / (1000 * step)) * 1000 * step : 0;
  const reach = Math.max(Math.abs(view.begin - anchor), Math.abs(view.end - anchor));
  const [size, unit] = DURATION_UNITS.find(([one]) => reach >= one) ?? [1, 'ns'];
  const digits = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
  const times = [];
  for (let time = Math.ceil(view.begin / step) * step; time <= view.end; time += step) times.push(time);
  return {anchor, size, unit, digits, times};
}

Painter.prototype.drawRuler = function () {
  const {context, app} = this;
  const {theme} = app.colours;
  const height = this.px(RULER);
  context.fillStyle = theme.panel;
  context.fillRect(0, 0, this.canvas.width, height);
  this.forEachStep((from, until, place) => {
    context.fillStyle = place % 2 ? `${theme.muted}14` : `${theme.muted}2c`;
    context.fillRect(from, 0, until - from, height);
  });
  const {anchor, size, unit, digits, times} = ticksOf(app.view, this.width);
  for (const time of times) {
    const x = this.scale.pixelAt(time);
    context.fillStyle = theme.line;
    context.fillRect(x, height - this.px(6), this.px(1), this.px(6));
    context.fillStyle = theme.muted;
    const text = `${anchor ? '+' : ''}${((time - anchor) / size).toFixed(digits)} ${unit}`;
    context.fillText(text, x + this.px(4), height / 2);
  }
  app.showAnchor(anchor);
  this.drawMatches(height);
  this.drawPointer(height);
  if (app.selection) this.drawSelectionLength(height);
  context.fillStyle = theme.line;
  context.fillRect(0, height - 1, this.canvas.width, 1);
};

// Draws one mark for each pixel that has matches.
Painter.prototype.drawMatches = function (height) {
  const {context, app} = this;
  if (app.matches === null) return;
  context.fillStyle = app.colours.theme.accent;
  const {begin} = app.recording;
  let place = firstAtLeast(app.matches, (event) => begin[event], app.view.begin);
  while (place < app.matches.length && begin[app.matches[place]] <= app.view.end) {
    const x = this.scale.pixelAt(begin[app.matches[place]]);
    context.fillRect(x - 1, height - this.px(4), this.px(2), this.px(4));
    const next = firstAtLeast(app.matches, (event) => begin[event], this.scale.timeAt(x + 2));
    place = Math.max(next, place + 1);
  }
};

Painter.prototype.drawSelectionLength = function (height) {
  const {context, app} = this;
  const {begin, end} = app.selection;
  const text = formatDuration(end - begin);
  const x = this.scale.pixelAt(begin);
  const width = Math.max(this.scale.pixelAt(end) - x, context.measureText(text).width + this.px(14));
  context.fillStyle = app.colours.theme.accent;
  context.fillRect(x, this.px(3), width, height - this.px(6));
  context.fillStyle = inkOn(app.colours.theme.accent);
  const middle = Math.min(Math.max(x + width / 2, this.px(40)), this.canvas.width - this.px(40));
  context.textAlign = 'center';
  context.fillText(text, middle, height / 2);
  context.textAlign = 'left';
};

Painter.prototype.drawPointer = function (height) {
  const {context, app} = this;
  if (app.pointerTime === null) return;
  const x = this.scale.pixelAt(app.pointerTime);
  context.fillStyle = `${app.colours.theme.muted}80`;
  context.fillRect(x, height, 1, this.canvas.height - height);
  const text = formatExactly(Math.round(app.pointerTime));
  const width = context.measureText(text).width + this.px(10);
  const left = Math.min(Math.max(x - width / 2, 0), this.canvas.width - width);
  context.fillStyle = app.colours.theme.text;
  context.fillRect(left, this.px(4), width, height - this.px(9));
  context.fillStyle = app.colours.theme.back;
  context.fillText(text, left + this.px(5), height / 2);
};

// Returns the first place of a column whose key is not less than `value`. The keys must be ascending.
function firstAtLeast(column, key, value) {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(column[middle]) >= value) high = middle;
    else low = middle + 1;
  }
  return low;
}

