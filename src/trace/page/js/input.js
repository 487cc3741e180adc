// SPDX-License-Identifier: Apache-2.0

// ---- Pointer and keys ------------------------------------------------------------------------------

const CLICK = 4;  // in CSS pixels: a drag shorter than this is a click

class Input {
  constructor(app, canvas) {
    this.app = app;
    this.canvas = canvas;
    this.drag = null;
    canvas.addEventListener('pointerdown', (event) => this.down(event));
    canvas.addEventListener('pointermove', (event) => this.move(event));
    canvas.addEventListener('pointerup', (event) => this.up(event));
    canvas.addEventListener('pointercancel', () => { this.drag = null; });
    canvas.addEventListener('pointerleave', () => this.leave());
    canvas.addEventListener('dblclick', () => app.view.fit());
    canvas.addEventListener('wheel', (event) => this.wheel(event), {passive: false});
    byId('labels').addEventListener('wheel', (event) => {
      event.preventDefault();
      app.view.scrollTo(app.view.scroll + pixelsOf(event));
    }, {passive: false});
    document.addEventListener('keydown', (event) => this.key(event));
    this.listenToButtons();
    this.listenToSplitter();
  }

  timeAt(event) { return this.app.view.begin + this.app.view.span * event.offsetX / this.canvas.clientWidth; }

  down(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    const selects = event.shiftKey || event.offsetY < RULER;
    const {begin, end, scroll} = this.app.view;
    this.drag = {selects, x: event.offsetX, y: event.offsetY, time: this.timeAt(event), begin, end, scroll, far: false};
  }

  move(event) {
    const {app, drag} = this;
    app.pointerTime = this.timeAt(event);
    if (drag === null) {
      app.hover(this.targetAt(event), event);
      return;
    }
    drag.far ||= Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) >= CLICK;
    if (!drag.far) return;
    app.hover(null, event);
    if (drag.selects) {
      app.select(Math.min(drag.time, app.pointerTime), Math.max(drag.time, app.pointerTime));
    } else {
      this.canvas.style.cursor = 'grabbing';
      const by = (drag.x - event.offsetX) / this.canvas.clientWidth * (drag.end - drag.begin);
      app.view.scroll = Math.min(Math.max(drag.scroll + drag.y - event.offsetY, 0), app.view.lowest);
      app.view.set(drag.begin + by, drag.end + by);
    }
  }

  up(event) {
    const {drag} = this;
    this.drag = null;
    this.canvas.style.cursor = '';
    if (drag === null || drag.far) return;
    if (drag.selects) this.app.letGo();
    else this.app.pin(this.targetAt(event));
  }

  leave() {
    this.app.pointerTime = null;
    this.app.hover(null, null);
  }

  // Returns the event or the gap under the pointer, or else the one close to it.
  targetAt({offsetX, offsetY}) {
    const {app} = this;
    if (offsetY < RULER) return null;
    const y = offsetY - RULER + app.view.scroll;
    const row = app.rows.find((one) => y >= one.y && y < one.y + one.height);
    const lane = row?.lanes[row.kind === 'idle' ? 0 : Math.floor((y - row.y - 3) / LANE)];
    if (!lane) return null;
    const unit = app.view.span / this.canvas.clientWidth;
    const place = lane.placeNear(app.view.begin + offsetX * unit, 3 * unit);
    if (place < 0) return null;
    return row.kind === 'idle' ? {device: row.device, place} : app.target(lane.events[place]);
  }

  wheel(event) {
    event.preventDefault();
    const {view} = this.app;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.move(event.deltaX / this.canvas.clientWidth);
      return;
    }
    // A browser reports a pinch as wheel events with the control key, in small steps.
    const factor = (event.ctrlKey ? 1.01 : 1.0018) ** pixelsOf(event);
    view.zoom(factor, event.offsetX / this.canvas.clientWidth);
    this.app.pointerTime = this.timeAt(event);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId('help').open) return;
    const act = this.commands()[event.key];
    if (!act || (event.target.closest('#panel') && event.key.startsWith('Arrow'))) return;
    event.preventDefault();
    act();
  }

  commands() {
    const {app} = this;
    const {view} = app;
    // The zoom keeps the place of the pointer if the pointer is over the tracks, else the middle.
    const at = app.pointerTime === null ? 0.5 : (app.pointerTime - view.begin) / view.span;
    const zoomIn = () => view.zoom(1 / 1.6, at, true);
    const zoomOut = () => view.zoom(1.6, at, true);
    const left = () => view.move(-0.2, true);
    const right = () => view.move(0.2, true);
    return {
      w: zoomIn, '+': zoomIn, '=': zoomIn, s: zoomOut, '-': zoomOut,
      a: left, ArrowLeft: left, d: right, ArrowRight: right,
      ArrowUp: () => view.scrollTo(view.scroll - 3 * LANE), ArrowDown: () => view.scrollTo(view.scroll + 3 * LANE),
      f: () => view.fit(), 0: () => view.fit(), z: () => app.zoomToMarked(), Escape: () => app.letGo(),
      '[': () => app.goToStep(-1), ']': () => app.goToStep(1),
      ',': () => app.pinSameName(-1), '.': () => app.pinSameName(1),
      '/': () => byId('search').select(), '?': () => byId('help').showModal(),
    };
  }

  listenToButtons() {
    const {app} = this;
    const on = (id, act) => byId(id).addEventListener('click', act);
    on('zoom-in', () => app.view.zoom(1 / 1.6, 0.5, true));
    on('zoom-out', () => app.view.zoom(1.6, 0.5, true));
    on('fit', () => app.view.fit());
    on('help-button', () => byId('help').showModal());
    on('previous-step', () => app.goToStep(-1));
    on('next-step', () => app.goToStep(1));
  }

  listenToSplitter() {
    const splitter = byId('splitter');
    const resize = (height) => {
      const allowed = Math.max(Math.min(height, innerHeight - 260), 60);
      document.documentElement.style.setProperty('--panel-height', `${allowed}px`);
    };
    let dragging = false;
    splitter.addEventListener('pointerdown', (event) => {
      dragging = true;
      splitter.setPointerCapture(event.pointerId);
    });
    splitter.addEventListener('pointermove', (event) => { if (dragging) resize(innerHeight - event.clientY); });
    splitter.addEventListener('pointerup', () => { dragging = false; });
    splitter.addEventListener('keydown', (event) => {
      const by = {ArrowUp: 24, ArrowDown: -24}[event.key];
      if (!by) return;
      resize(byId('panel').clientHeight + by);
      event.preventDefault();
      event.stopPropagation();
    });
  }
}

function pixelsOf(wheel) {
  return wheel.deltaY * (wheel.deltaMode === 1 ? 20 : wheel.deltaMode === 2 ? 300 : 1);
}

