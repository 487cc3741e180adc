// SPDX-License-Identifier: Apache-2.0

// ---- The recording: columns of numbers, one entry for each event -----------------------------------
//
// Events are ordered by their begins. Times are in nanoseconds since the recording's begin.

function takeText(id) {
  const element = byId(id);
  const text = element.textContent;
  element.remove();  // frees the text, which is large for a million events
  return text;
}

function takeBytes(id) {
  const text = takeText(id).trim();
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

// Decodes numbers that have 7 bits in each byte, the lowest bits first. The top bit of a byte says that
// another byte follows.
function decodeNumbers(bytes, count) {
  const numbers = new Float64Array(count);
  let at = 0;
  for (let i = 0; i < count; ++i) {
    let byte = bytes[at++];
    let number = byte & 127;
    for (let scale = 128; byte >= 128; scale *= 128) {
      byte = bytes[at++];
      number += (byte & 127) * scale;
    }
    numbers[i] = number;
  }
  if (at !== bytes.length) throw new Error('This page is damaged: a column of its events has another length.');
  return numbers;
}

// A payload may have 64 bits, but a number of JavaScript is exact up to 53 bits only. Returns the exact
// values of the larger ones.
function decodeLarge(bytes, numbers) {
  const large = new Map();
  let at = 0;
  for (let i = 0; i < numbers.length; ++i) {
    const first = at;
    while (bytes[at] >= 128) ++at;
    ++at;
    if (numbers[i] <= Number.MAX_SAFE_INTEGER) continue;
    let exact = 0n;
    for (let k = at - 1; k >= first; --k) exact = exact << 7n | BigInt(bytes[k] & 127);
    large.set(i, exact);
  }
  return large;
}

function decodeCorrelations(bytes, count, isOnDevice) {
  const differences = decodeNumbers(bytes, count);
  const correlations = new Uint32Array(count);
  const last = [0, 0];
  for (let i = 0; i < count; ++i) {
    if (differences[i] === 0) continue;
    const zigzag = differences[i] - 1;
    const side = isOnDevice(i) ? 1 : 0;
    last[side] += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    correlations[i] = last[side];
  }
  return correlations;
}

// Returns what the events of one class have in common, and the text that a search looks at.
function decodeClass(row, summary) {
  const [kind, direction, flags, name, track, domain, stage, works] = row;
  const one = {
    kind: summary.kinds[kind], direction: summary.directions[direction], name: summary.names[name], track,
    domain: summary.names[domain], stage: summary.names[stage],
    pageable: (flags & 1) !== 0, synchronous: (flags & 2) !== 0, failed: (flags & 4) !== 0, works: works === 1,
  };
  one.onDevice = one.kind !== 'call' && one.kind !== 'range';
  const plain = one.direction ? `${one.kind} ${one.direction}` : one.kind;
  one.label = one.name || plain;
  one.titles = [one.label.toLowerCase(), plain];
  const flagWords = ['pageable', 'synchronous', 'failed'].filter((flag) => one[flag]);
  // Names are cut, because a name may be nearly as long as the file and belong to many classes.
  const names = [one.label.slice(0, 10000), one.domain.slice(0, 1000)];
  one.text = [...names, one.kind, one.direction, ...flagWords].join(' ').toLowerCase();
  return one;
}

class Recording {
  constructor() {
    this.summary = JSON.parse(takeText('summary'));
    this.count = this.summary.events;
    this.duration = this.summary.duration;
    this.tracks = this.summary.tracks;
    this.report = this.summary.report;
    this.classes = this.summary.classes.map((row) => decodeClass(row, this.summary));
    this.classOf = Uint32Array.from(decodeNumbers(takeBytes('column-classes'), this.count));
    this.decodeTimes();
    const values = takeBytes('column-values');
    this.value = decodeNumbers(values, this.count);
    this.large = decodeLarge(values, this.value);
    this.correlation = decodeCorrelations(takeBytes('column-correlations'), this.count, (i) => this.of(i).onDevice);
    this.gapsOf = new Map();  // maps a device to the columns {begin, end} of its gaps
    this.findGaps();
    this.findSteps();
    this.memoryOf = new Map();  // maps a device to {time, bytes}: from each time on, so many are taken
    this.takeMemory();
  }

  of(event) { return this.classes[this.classOf[event]]; }
  length(event) { return this.end[event] - this.begin[event]; }
  exactValue(event) { return this.large.get(event) ?? this.value[event]; }

  decodeTimes() {
    this.begin = decodeNumbers(takeBytes('column-begins'), this.count);
    this.end = decodeNumbers(takeBytes('column-durations'), this.count);
    let now = 0;
    for (let i = 0; i < this.count; ++i) {
      now += this.begin[i];
      this.begin[i] = now;
      this.end[i] += now;
    }
  }

  // Finds the gaps: the times within the measured time in which a device did nothing. As in the report, a
  // gap ends where work begins. If there are no steps, the time before a device's first work is no gap.
  findGaps() {
    const {begin, end, steps} = this.report;
    const found = new Map();
    for (let i = 0; i < this.count; ++i) {
      const one = this.of(i);
      if (!one.works || this.begin[i] > end) continue;
      const {device} = this.tracks[one.track];
      if (!found.has(device)) found.set(device, {idleSince: steps > 0 ? begin : this.begin[i], begin: [], end: []});
      const gaps = found.get(device);
      if (this.begin[i] > gaps.idleSince) {
        gaps.begin.push(gaps.idleSince);
        gaps.end.push(this.begin[i]);
      }
      gaps.idleSince = Math.max(gaps.idleSince, this.end[i]);
    }
    for (const [device, gaps] of found) {
      this.gapsOf.set(device, {begin: Float64Array.from(gaps.begin), end: Float64Array.from(gaps.end)});
    }
  }

  takeMemory() {
    for (const [device, time, bytes] of this.summary.memory) {
      if (!this.memoryOf.has(device)) this.memoryOf.set(device, {time: [], bytes: []});
      const levels = this.memoryOf.get(device);
      levels.time.push(time);
      levels.bytes.push(bytes);
    }
  }

  // Finds the steps of the thread that has the most of them. Where steps nest, the outermost counts. The
  // library's own range "next" marks a point of a loop, so a step lasts from one "next" to the following.
  findSteps() {
    const {step_name: name} = this.report;
    const isStep = this.classes.map((one) => one.kind === 'range' && one.name === name && name !== '');
    const counts = this.tracks.map(() => 0);
    for (let i = 0; i < this.count; ++i) if (isStep[this.classOf[i]]) ++counts[this.of(i).track];
    const track = counts.indexOf(counts.reduce((most, one) => Math.max(most, one), 0));
    const [begin, end] = [[], []];
    for (let i = 0; i < this.count; ++i) {
      const last = end.length - 1;
      if (!isStep[this.classOf[i]] || this.of(i).track !== track || this.begin[i] < end[last]) continue;
      if (last >= 0 && this.of(i).domain === 'penstock') end[last] = this.begin[i];
      begin.push(this.begin[i]);
      end.push(this.end[i]);
    }
    this.steps = {begin, end};
  }

  // Returns the other side of an event: for a call what it put on streams, for work on a stream its call.
  // Both have the same correlation.
  relatives(event) {
    const wanted = this.correlation[event];
    const found = [];
    if (wanted === 0) return found;
    for (let i = this.correlation.indexOf(wanted); i >= 0; i = this.correlation.indexOf(wanted, i + 1)) {
      if (i !== event && this.of(i).onDevice !== this.of(event).onDevice) found.push(i);
    }
    return found;
  }
}

