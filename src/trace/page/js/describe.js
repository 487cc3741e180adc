// SPDX-License-Identifier: Apache-2.0

// ---- Texts about an event or a gap, for the tooltip and the details --------------------------------

// Returns {title, subtitle, colour, facts: [[what, text]...], relatives: events}.
function describe(app, target) {
  return target.event === undefined ? describeGap(app, target) : describeEvent(app, target);
}

function describeEvent(app, {event, relatives}) {
  const {recording} = app;
  const one = recording.of(event);
  const facts = [
    ['duration', formatExactly(recording.length(event))],
    ['begin', formatExactly(recording.begin[event])],
    ...transferFacts(recording, event, one),
  ];
  if (one.kind === 'range' && app.hasPayload[recording.classOf[event]]) {
    facts.push(['payload', recording.exactValue(event).toLocaleString('en-US')]);
  }
  if (one.failed) facts.push(['failed', `error ${recording.exactValue(event)}`]);
  if (one.domain) facts.push(['domain', one.domain]);
  if (one.stage && one.kind !== 'range') facts.push(['stage', one.stage]);
  const {lane} = recording.tracks[one.track];
  facts.push([one.onDevice ? 'stream' : lane ? 'lane' : 'thread', whereOf(recording, one.track)]);
  facts.push(...relativeFacts(recording, event, relatives));
  const subtitle = one.name && one.direction ? `${one.kind} ${one.direction}` : one.kind;
  const colour = app.colours.ofClass[recording.classOf[event]];
  return {title: one.label, subtitle, colour, facts, relatives};
}

function whereOf(recording, index) {
  const track = recording.tracks[index];
  if (track.lane) return track.title;
  const plain = track.stream ? `device ${track.device}, stream ${track.id}` : `thread ${track.id}`;
  return track.title === plain ? plain : `${track.title} (${plain})`;
}

function transferFacts(recording, event, one) {
  if (one.kind !== 'copy' && one.kind !== 'fill') return [];
  const bytes = recording.value[event];
  const length = recording.length(event);
  const facts = [['bytes', `${recording.exactValue(event).toLocaleString('en-US')} (${formatBytes(bytes)})`]];
  if (length > 0) facts.push(['bandwidth', formatRate(bytes / length * 1e9)]);
  if (one.pageable) facts.push(['host memory', 'pageable: not page-locked']);
  if (one.synchronous) facts.push(['host', 'waited for it']);
  return facts;
}

// Says how long after its call the work ran, or for a call when its work ran.
function relativeFacts(recording, event, relatives) {
  if (relatives.length === 0) return [];
  const onDevice = recording.of(event).onDevice;
  const other = recording.of(relatives[0]);
  const between = onDevice ? recording.begin[event] - recording.begin[relatives[0]] :
    recording.begin[relatives[0]] - recording.begin[event];
  const when = `${formatDuration(Math.abs(between))} ${(between >= 0) === onDevice ? 'before' : 'later'}`;
  const where = recording.tracks[other.track].title;
  const more = relatives.length > 1 ? `, and ${formatCount(relatives.length - 1)} more` : '';
  return [[onDevice ? 'submitted by' : 'submitted', `${other.label} on ${where}, ${when}${more}`]];
}

function describeGap(app, {device, place}) {
  const gaps = app.recording.gapsOf.get(device);
  const known = app.knownGap(device, place);
  const facts = [
    ['duration', formatExactly(gaps.end[place] - gaps.begin[place])],
    ['begin', formatExactly(gaps.begin[place])],
  ];
  if (known?.cpu) facts.push(['the CPU was in', known.cpu]);
  if (known?.next) facts.push(['ended by', known.next]);
  return {title: `device ${device} idle`, subtitle: 'gap', colour: app.colours.theme.idle, facts, relatives: []};
}

// Sums up the events of the selected time. An event that is partly outside counts with its part inside.
function describeSelection(app, {begin, end}) {
  const {recording} = app;
  const sums = new Map();
  const last = firstAtLeast(recording.begin, (time) => time, end);
  for (let i = 0; i < last; ++i) {
    if (recording.end[i] <= begin) continue;
    const {kind} = recording.of(i);
    const sum = sums.get(kind) ?? {count: 0, time: 0};
    ++sum.count;
    sum.time += Math.min(recording.end[i], end) - Math.max(recording.begin[i], begin);
    sums.set(kind, sum);
  }
  const facts = [['duration', formatExactly(end - begin)], ['begin', formatExactly(begin)]];
  for (const row of app.rows) {
    if (row.kind !== 'idle') continue;
    const measured = Math.min(end, recording.report.end) - Math.max(begin, recording.report.begin);
    const idle = row.lanes[0].coverage(begin, end);
    if (measured > 0) facts.push([`device ${row.device} idle`, formatPercent(idle / measured)]);
  }
  for (const kind of recording.summary.kinds) {
    const sum = sums.get(kind);
    const many = {copy: 'copies', graph: 'graph launches'}[kind] ?? `${kind}s`;
    if (sum) facts.push([many, `${formatCount(sum.count)} · ${formatDuration(sum.time)}`]);
  }
  return {title: 'Selection', subtitle: '', colour: app.colours.theme.accent, facts, relatives: []};
}

function factList(facts) {
  const list = make('dl', {className: 'facts'});
  for (const [what, text] of facts) list.append(make('dt', {}, what), make('dd', {}, text));
  return list;
}

function headingOf({title, subtitle, colour}) {
  const swatch = make('span', {className: 'swatch'});
  swatch.style.background = colour;
  const quiet = make('span', {className: 'quiet'}, subtitle);
  return make('div', {className: 'heading'}, swatch, make('strong', {}, title), quiet);
}

// Shows the tooltip beside the pointer, on the side that has room.
function showTooltip(app, pointer) {
  const tip = byId('tooltip');
  tip.hidden = app.hovered === null;
  if (tip.hidden) return;
  const text = describe(app, app.hovered);
  tip.replaceChildren(headingOf(text), factList(text.facts));
  const {width, height} = tip.getBoundingClientRect();
  const left = pointer.clientX + 16 + width > innerWidth ? pointer.clientX - width - 12 : pointer.clientX + 16;
  const top = pointer.clientY + 18 + height > innerHeight ? pointer.clientY - height - 12 : pointer.clientY + 18;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.max(top, 4)}px`;
}

function showDetails(app) {
  const aside = byId('details');
  const target = app.selection ?? app.pinned;
  aside.hidden = target === null;
  if (aside.hidden) return;
  const text = app.selection ? describeSelection(app, app.selection) : describe(app, app.pinned);
  const close = make('button', {className: 'close', title: 'Let go (Esc)', onclick: () => app.letGo()}, '×');
  close.setAttribute('aria-label', 'Close the details');
  const buttons = make('div', {className: 'buttons'});
  const [begin, end] = app.selection ? [app.selection.begin, app.selection.end] : app.timesOf(app.pinned);
  buttons.append(make('button', {onclick: () => app.view.show(begin, end)}, 'Zoom to it'));
  if (!app.selection && app.pinned.event !== undefined) {
    const same = (title, direction, text) => make('button', {title, onclick: () => app.pinSameName(direction)}, text);
    buttons.append(same('Previous of this name (,)', -1, '‹ previous'), same('Next of this name (.)', 1, 'next ›'));
  }
  for (const event of text.relatives.slice(0, 5)) {
    const {label} = app.recording.of(event);
    const properties = {className: 'relative', title: `Go to ${label}`, onclick: () => app.goToEvent(event)};
    buttons.append(make('button', properties, `→ ${label}`));
  }
  aside.replaceChildren(close, headingOf(text), factList(text.facts), buttons);
}

