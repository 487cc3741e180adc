// SPDX-License-Identifier: Apache-2.0

// ---- App: the recording, the part of it that is in view, and what is marked ------------------------
//
// A target is what the pointer or a click marks. For an event it is {event, relatives}, for a gap
// {device, place}.

class App {
  constructor(recording) {
    this.recording = recording;
    this.rows = buildRows(recording);
    this.colours = new Colours(recording);
    this.steps = new Lane(Float64Array.from(recording.steps.begin), Float64Array.from(recording.steps.end),
      Uint32Array.from(recording.steps.begin.keys()));
    this.hovered = this.pinned = this.selection = this.pointerTime = null;
    this.matching = this.matches = null;
    this.frames = {count: 0, last: 0, longest: 0};  // drawing times are in milliseconds
    this.hasPayload = new Uint8Array(recording.classes.length);
    for (let i = 0; i < recording.count; ++i) if (recording.value[i] > 0) this.hasPayload[recording.classOf[i]] = 1;
    this.findKnownGaps();
    this.view = new View(recording.duration, () => this.requestDraw());
    this.painter = new Painter(this, byId('tracks'));
    this.overview = new Overview(this, byId('overview'));
    this.search = new Search(this);
    this.panel = new Panel(this);
    this.input = new Input(this, byId('tracks'));
    this.showLabels();
  }

  // ---- Drawing -------------------------------------------------------------------------------------

  requestDraw() {
    if (this.waiting || !this.painter) return;
    this.waiting = true;
    requestAnimationFrame((now) => {
      this.waiting = false;
      const more = this.view.advance(now);
      this.draw();
      if (more) this.requestDraw();
    });
  }

  draw() {
    const started = performance.now();
    this.painter.draw();
    this.overview.draw();
    byId('label-list').style.transform = `translateY(${-this.view.scroll}px)`;
    this.showStepNumber();
    this.frames.last = performance.now() - started;
    this.frames.longest = Math.max(this.frames.longest, this.frames.last);
    ++this.frames.count;
  }

  // Computes the events' colours again after a change of the theme or of the search. Events that do not
  // match the search are faint.
  recolour() {
    const back = pack(this.colours.theme.back);
    const mix = (a, b, shift) => Math.round((a >>> shift & 255) * 0.2 + (b >>> shift & 255) * 0.8) << shift;
    const faint = (colour) => (255 << 24 | mix(colour, back, 16) | mix(colour, back, 8) | mix(colour, back, 0)) >>> 0;
    const {packed} = this.colours;
    this.packed = this.matching === null ? packed :
      packed.map((colour, i) => this.matching[i] ? colour : faint(colour));
    this.overview.forget();
    this.requestDraw();
  }

  changeTheme() {
    this.colours.readTheme();
    this.painter.hatches = null;
    this.recolour();
  }

  resize() {
    this.painter.resize();
    this.overview.resize();
    this.requestDraw();
  }

  showLabels() {
    for (const row of this.rows) {
      const label = make('div', {className: `row ${row.kind}`, title: row.title}, row.title);
      label.style.height = `${row.height}px`;
      byId('label-list').append(label);
    }
  }

  showAnchor(anchor) {
    const shown = anchor ? `${formatExactly(anchor)} +` : '';
    if (byId('anchor').textContent !== shown) byId('anchor').textContent = shown;
  }

  // ---- Marking -------------------------------------------------------------------------------------

  target(event) { return {event, relatives: this.recording.relatives(event)}; }

  timesOf(target) {
    const {recording} = this;
    if (target.event !== undefined) return [recording.begin[target.event], recording.end[target.event]];
    const gaps = recording.gapsOf.get(target.device);
    return [gaps.begin[target.place], gaps.end[target.place]];
  }

  hover(target, pointer) {
    this.hovered = target;
    showTooltip(this, pointer);
    this.requestDraw();
  }

  pin(target) {
    this.pinned = target;
    this.selection = null;
    showDetails(this);
    this.requestDraw();
  }

  select(begin, end) {
    this.selection = {begin, end};
    showDetails(this);
    this.requestDraw();
  }

  letGo() {
    if (this.matching !== null && !this.pinned && !this.selection) this.search.set('');
    this.pin(null);
  }

  zoomToMarked() {
    const marked = this.selection ?? this.pinned ?? this.hovered;
    if (marked === null) return;
    const [begin, end] = this.selection ? [marked.begin, marked.end] : this.timesOf(marked);
    if (this.selection) this.view.goTo(begin, end);
    else this.view.show(begin, end);
  }

  // ---- Going to places -----------------------------------------------------------------------------

  goToEvent(event) {
    const target = this.target(event);
    this.pin(target);
    this.scrollToRow((row) => row.kind === 'track' && row.track === this.recording.of(event).track);
    this.view.reveal(...this.timesOf(target));
  }

  scrollToRow(isIt) {
    const row = this.rows.find(isIt);
    if (!row) return;
    const room = this.painter.height - RULER;
    const {scroll} = this.view;
    if (row.y < scroll) this.view.scrollTo(row.y);
    else if (row.y + row.height > scroll + room) this.view.scrollTo(row.y + Math.min(row.height, room) - room);
  }

  goToGap(gap) {
    const place = this.placeOfGap(gap);
    if (place >= 0) this.pin({device: gap.device, place});
    else this.select(gap.begin, gap.end);
    this.scrollToRow((row) => row.kind === 'idle' && row.device === gap.device);
    this.view.goTo(gap.begin - 2 * (gap.end - gap.begin), gap.end + 2 * (gap.end - gap.begin));
  }

  goToFinding(finding) {
    this.panel.open('Findings');
    this.select(finding.begin, finding.end);
    this.scrollToRow((row) => row.kind === 'track' && row.track === finding.track);
    const air = Math.max(finding.end - finding.begin, SHORTEST);
    this.view.goTo(finding.begin - air, finding.end + air);
  }

  pinSameName(direction) {
    const {recording, pinned} = this;
    if (pinned?.event === undefined) return;
    const {label, kind} = recording.of(pinned.event);
    const same = recording.classes.map((one) => one.label === label && one.kind === kind);
    for (let i = pinned.event + direction; i >= 0 && i < recording.count; i += direction) {
      if (same[recording.classOf[i]]) return this.goToEvent(i);
    }
  }

  // ---- Steps ---------------------------------------------------------------------------------------

  // Returns the step in the middle of the view, or the one before it. Returns -1 before the first step.
  currentStep() {
    const [begin, end] = this.view.settled();
    return this.steps.firstBeginningAt((begin + end) / 2) - 1;
  }

  goToStep(direction) {
    const {steps} = this;
    if (steps.size === 0) return;
    const [begin, end] = this.view.settled();
    const last = steps.size - 1;
    let place = direction > 0 ? 0 : last;  // used if the view shows the whole recording
    if (end - begin < this.view.duration) place = Math.min(Math.max(this.currentStep() + direction, 0), last);
    const air = (steps.end[place] - steps.begin[place]) * 0.1;
    this.view.goTo(steps.begin[place] - air, steps.end[place] + air);
  }

  showStepNumber() {
    if (this.steps.size === 0) return;
    byId('steps').hidden = false;
    const step = this.currentStep();
    const near = step >= 0 && this.view.span < 4 * (this.steps.end[step] - this.steps.begin[step]);
    const all = formatCount(this.steps.size);
    const shown = near ? `step ${formatCount(step + 1)} of ${all}` : `${all} steps`;
    if (byId('step-number').textContent !== shown) byId('step-number').textContent = shown;
  }

  // ---- Gaps ----------------------------------------------------------------------------------------

  // The report says for the longest gaps what the CPU was doing.
  findKnownGaps() {
    this.knownGaps = new Map();
    for (const gap of this.recording.report.gaps) {
      const place = this.placeOfGap(gap);
      if (place >= 0) this.knownGaps.set(`${gap.device}:${place}`, gap);
    }
  }

  placeOfGap({device, begin, end}) {
    const gaps = this.recording.gapsOf.get(device);
    if (!gaps) return -1;
    const place = firstAtLeast(gaps.begin, (time) => time, begin);
    return gaps.begin[place] === begin && gaps.end[place] === end ? place : -1;
  }

  knownGap(device, place) { return this.knownGaps.get(`${device}:${place}`); }

  gapLabel(device, place) {
    const gaps = this.recording.gapsOf.get(device);
    const length = formatDuration(gaps.end[place] - gaps.begin[place]);
    const cpu = this.knownGap(device, place)?.cpu;
    return cpu ? `${length} · CPU in ${cpu}` : length;
  }
}

