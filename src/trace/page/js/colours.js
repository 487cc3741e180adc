// SPDX-License-Identifier: Apache-2.0

// ---- Colours: a stage has the same colour everywhere on the page -----------------------------------

// People who cannot tell red from green can tell these colours apart. Red is reserved for idle time.
const STAGE_COLOURS = ['#4e79a7', '#f28e2b', '#59a14f', '#b07aa1', '#3fb6b2', '#e3b72f', '#9c755f', '#e687b5',
  '#7f8fe0', '#93b83d', '#c4743a', '#5fa8d8'];

function parseColour(text) {
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

class Colours {
  constructor(recording) {
    this.recording = recording;
    this.stages = new Map();
    this.assignStages();
    this.readTheme();
  }

  // A stage has the colour that the program gave to its range, as in other profilers. The other stages
  // get colours of the palette, those with the most device time first. The step's own range is no stage
  // and has a quiet colour.
  assignStages() {
    const step = this.recording.report.step_name;
    const {summary} = this.recording;
    const given = new Map(summary.colours.map(([name, colour]) => [summary.names[name], colour]));
    const free = STAGE_COLOURS.filter((colour) => ![...given.values()].includes(colour));
    const palette = free.length > 0 ? free : STAGE_COLOURS;
    let used = 0;
    const ranges = [...this.recording.report.ranges].sort((a, b) => b.device - a.device || b.total - a.total);
    const names = ranges.map((range) => range.name);
    for (const one of this.recording.classes) if (one.kind === 'range') names.push(one.name);
    for (const name of new Set(names)) {
      if (name !== step) this.stages.set(name, given.get(name) ?? palette[used++ % palette.length]);
    }
  }

  // Reads the page's own colours from the style sheet, which has a light and a dark theme.
  readTheme() {
    const style = getComputedStyle(document.documentElement);
    this.theme = {};
    for (const name of ['back', 'panel', 'line', 'text', 'muted', 'accent', 'idle', 'call', 'step', 'work']) {
      this.theme[name] = style.getPropertyValue(`--${name}`).trim();
    }
    const {classes} = this.recording;
    this.ofClass = classes.map((one) => this.colourOf(one));
    this.inkOfClass = this.ofClass.map(inkOn);
    this.packed = Uint32Array.from(this.ofClass, pack);
  }

  ofStage(name) { return this.stages.get(name) ?? this.theme.step; }

  colourOf(one) {
    if (one.kind === 'range') return this.ofStage(one.name);
    if (one.kind === 'call') return one.failed ? this.theme.idle : this.theme.call;
    return one.stage === '' ? this.theme.work : this.ofStage(one.stage);
  }
}

// Returns black or white, whichever is easier to read on the colour.
function inkOn(colour) {
  const [red, green, blue] = parseColour(colour).map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.28 ? '#10141a' : '#ffffff';
}

// Returns the colour, opaque, in the format of a canvas's pixels.
function pack(colour) {
  const [red, green, blue] = parseColour(colour);
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
}

