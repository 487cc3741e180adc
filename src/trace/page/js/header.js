// SPDX-License-Identifier: Apache-2.0

// ---- The head of the page: the origin of the recording, and its main figures -----------------------

function showOrigin(recording) {
  const {origin, dropped, events} = recording.summary;
  const program = origin.program || 'a process';
  document.title = `${program.split('/').pop()} – penstock trace`;
  byId('program').textContent = program;
  byId('program').title = program;
  byId('emulated').hidden = !origin.emulated;
  byId('dropped').hidden = dropped === 0;
  byId('dropped').textContent = `${formatCount(dropped)} events dropped`;
  byId('dropped').title = 'The recording reached its bound, and what came later is missing.';
  const style = {dateStyle: 'medium', timeStyle: 'medium'};
  const facts = [
    ['host', origin.host],
    ['process', origin.process > 0 ? String(origin.process) : ''],
    ['rank', origin.rank >= 0 ? String(origin.rank) : ''],
    ['device', origin.device],
    ['recorded by', origin.recorder],
    ['started', origin.started > 0 ? new Date(origin.started * 1000).toLocaleString('en-GB', style) : ''],
    ['events', `${formatCount(events)} in ${formatDuration(recording.duration)}`],
  ];
  for (const [what, value] of facts) {
    if (value) byId('origin').append(make('div', {}, make('dt', {}, what), make('dd', {}, value)));
  }
}

function showFigures(app) {
  const {report, summary} = app.recording;
  const add = (label, value, note, onclick) => {
    const part = (className, text) => make('span', {className, title: text}, text);
    const figure = make(onclick ? 'button' : 'div', {className: 'figure'}, part('label', label), part('value', value),
      part('note', note));
    if (onclick) figure.addEventListener('click', onclick);
    byId('figures').append(figure);
    return figure;
  };
  if (report.steps > 0) {
    const rest = [`mean ${formatDuration(report.step_mean)}`, `p99 ${formatDuration(report.step_p99)}`,
      `${formatCount(report.steps)} × “${report.step_name}”`];
    add('Median step', formatDuration(report.step_median), rest.join(' · '));
  }
  if (report.samples_per_second > 0) {
    add('Samples a second', formatCount(Math.round(report.samples_per_second)), 'over the measured time');
  }
  addDeviceFigures(report, add);
  const dearest = summary.findings[0];
  if (dearest) {
    const figure = add('Dearest finding', ruleTitle(dearest.rule), dearest.evidence, () => app.goToFinding(dearest));
    figure.classList.add('verdict');
  } else {
    add('Findings', 'none', 'nothing here keeps the device waiting');
  }
}

// Shows the device with the most idle time. The table has all devices.
function addDeviceFigures(report, add) {
  if (report.devices.length === 0) return;
  const measured = report.end - report.begin;
  const worst = report.devices.reduce((a, b) => b.idle > a.idle ? b : a);
  const which = report.devices.length > 1 ? ` · device ${worst.device}, the idlest of ${report.devices.length}` : '';
  add('GPU idle', formatPercent(worst.idle), `of ${formatDuration(measured)} measured${which}`);
  const copy = report.devices.reduce((sum, one) => sum + one.copy, 0);
  const overlap = report.devices.reduce((sum, one) => sum + one.overlap, 0);
  const note = `${formatDuration(overlap)} of ${formatDuration(copy)} of copies`;
  if (copy > 0) add('Copies under kernels', formatPercent(overlap / copy), note);
  const engines = report.devices.reduce((most, one) => Math.max(most, one.video_engines ?? -1), -1);
  if (engines >= 0) add('Video engines', formatPercent(engines), report.devices.length > 1 ? 'the busiest of a device' : 'busy');
  const memory = report.memory.reduce((most, one) => Math.max(most, one.peak), 0);
  if (memory > 0) add('Memory', formatBytes(memory), report.memory.length > 1 ? 'the most of a device' : 'at most');
}

// Shows the stages that matter most. There is room for ten.
function showLegend(app) {
  for (const name of [...app.colours.stages.keys()].slice(0, 10)) {
    const chip = make('button', {className: 'chip', title: `Mark “${name}”`}, nameCell(app, name));
    chip.addEventListener('click', () => app.search.set(app.search.box.value === `"${name}"` ? '' : `"${name}"`));
    byId('legend').append(chip);
  }
}

