// SPDX-License-Identifier: Apache-2.0

// ---- Findings and tables ---------------------------------------------------------------------------

const MOST_ROWS = 1000;  // more rows of a table are not shown

const text = (title, value) => ({title, value, show: value, numeric: false});
const number = (title, value, show) => ({title, value, show: (row) => show(value(row)), numeric: true});
const yes = (flag) => flag ? 'yes' : '';
const note = (words) => make('p', {className: 'nothing'}, words);

// Returns the tables. Each has rows, columns, the column by which it is sorted at first (descending), and
// the function that a click on a row calls.
function tablesOf(app) {
  const {report} = app.recording;
  const measured = Math.max(report.end - report.begin, 1);
  const named = (title) => ({...text(title, (row) => row.name || '(no name)'), show: (row) => nameCell(app, row.name)});
  const count = number('count', (row) => row.count, formatCount);
  const total = number('total', (row) => row.total, formatDuration);
  const share = number('of measured', (row) => row.total / measured, formatPercent);
  const mean = number('mean', (row) => row.total / Math.max(row.count, 1), formatDuration);
  const longest = number('longest', (row) => row.longest, formatDuration);
  const mark = (row) => app.search.set(`"${row.name}"`);
  return {
    Ranges: {rows: report.ranges, sort: 2, click: mark, columns: [
      named('range'), count, total, share, mean,
      number('median', (row) => row.median, formatDuration), number('p99', (row) => row.p99, formatDuration), longest,
      number('on the device', (row) => row.device, formatDuration), text('domain', (row) => row.domain)]},
    Kernels: {rows: report.kernels, sort: 2, click: mark, columns: [
      named('kernel'), count, total, share, mean, longest]},
    Copies: {rows: report.copies, sort: 4, click: (row) => app.search.set(queryOfCopies(row)), columns: [
      text('direction', (row) => row.direction), text('pageable', (row) => yes(row.pageable)),
      text('synchronous', (row) => yes(row.synchronous)), count, total, share,
      number('bytes', (row) => row.bytes, formatBytes), number('mean bandwidth', (row) => row.bandwidth, formatRate),
      number('best there is', (row) => row.best, formatRate),
      number('of the best', (row) => row.best > 0 ? row.bandwidth / row.best : 0,
        (part) => part > 0 ? formatPercent(part) : '–')]},
    Calls: {rows: report.calls, sort: 2, click: mark, columns: [named('call'), count, total, share, mean, longest]},
    Gaps: {rows: report.gaps, sort: 2, click: (row) => app.goToGap(row), columns: [
      number('device', (row) => row.device, String), number('begin', (row) => row.begin, formatDuration),
      number('length', (row) => row.end - row.begin, formatDuration),
      number('of a step', (row) => (row.end - row.begin) / Math.max(report.step_median, 1),
        (part) => report.step_median > 0 ? formatPercent(part) : '–'),
      text('what the CPU was doing', (row) => row.cpu), text('ended by', (row) => row.next)]},
    Devices: {rows: report.devices, sort: 2, columns: [
      number('device', (row) => row.device, String), text('name', (row) => row.name),
      number('busy', (row) => row.busy, formatDuration), number('kernels', (row) => row.compute, formatDuration),
      number('copies', (row) => row.copy, formatDuration),
      number('copies under kernels', (row) => row.overlap, formatDuration),
      number('idle', (row) => row.idle, formatPercent)]},
    Memory: {rows: report.memory, sort: 1, columns: [
      number('device', (row) => row.device, String), number('at most', (row) => row.peak, formatBytes),
      number('reached at', (row) => row.peak_at, formatDuration), number('at first', (row) => row.begin, formatBytes),
      number('at the end', (row) => row.end, formatBytes),
      number('changes while measured', (row) => row.changes, formatCount)]},
  };
}

function queryOfCopies({direction, pageable, synchronous}) {
  return `"copy ${direction}" ${pageable ? '' : '-'}pageable ${synchronous ? '' : '-'}synchronous`;
}

function nameCell(app, name) {
  const colour = app.colours.stages.get(name);
  if (colour === undefined) return name || '(no name)';
  const swatch = make('span', {className: 'swatch'});
  swatch.style.background = colour;
  return make('span', {}, swatch, name);
}

// Returns the name of a rule as a heading: "Synchronous copy" for "synchronous-copy".
const ruleTitle = (rule) => rule[0].toUpperCase() + rule.slice(1).replaceAll('-', ' ');

class Panel {
  constructor(app) {
    this.app = app;
    this.tables = tablesOf(app);
    this.tabs = new Map();
    const {findings} = app.recording.summary;
    this.addTab('Findings', findings.length, () => this.showFindings(findings));
    for (const [name, table] of Object.entries(this.tables)) {
      this.addTab(name, table.rows.length, () => this.showTable(table));
    }
    this.open(findings.length > 0 ? 'Findings' : 'Ranges');
  }

  addTab(name, count, show) {
    const shown = make('span', {className: 'quiet'}, ` ${formatCount(count)}`);
    const tab = make('button', {onclick: () => this.open(name)}, name, shown);
    tab.setAttribute('role', 'tab');
    tab.setAttribute('aria-controls', 'table');
    tab.addEventListener('keydown', (key) => {
      const next = {ArrowRight: tab.nextElementSibling, ArrowLeft: tab.previousElementSibling}[key.key];
      if (next) {
        next.focus();
        next.click();
        key.stopPropagation();
      }
    });
    this.tabs.set(name, {tab, show});
    byId('tabs').append(tab);
  }

  open(name) {
    for (const [other, {tab}] of this.tabs) {
      tab.setAttribute('aria-selected', String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
    }
    byId('table').setAttribute('aria-label', name);
    this.tabs.get(name).show();
    byId('table').scrollTop = 0;
  }

  showFindings(findings) {
    const list = make('ol', {className: 'findings'});
    for (const finding of findings) list.append(this.findingItem(finding));
    const none = note('No findings: nothing in this recording keeps the device waiting.');
    byId('table').replaceChildren(findings.length > 0 ? list : none);
  }

  findingItem(finding) {
    const bar = make('span', {className: 'bar'});
    bar.style.width = `${Math.min(Math.max(finding.share * 100, 1), 100)}%`;
    const cost = finding.cost > 0 ? `${formatDuration(finding.cost)} · ${formatPercent(finding.share)}` : '';
    const head = make('div', {className: 'head'},
      make('strong', {title: `--fail-on ${finding.rule}`}, ruleTitle(finding.rule)),
      make('span', {className: 'quiet'}, `${formatCount(finding.count)} ×`), make('span', {className: 'cost'}, cost),
      make('button', {onclick: () => this.app.goToFinding(finding)}, 'Show the worst'));
    return make('li', {}, make('div', {className: 'share', title: 'of the measured time'}, bar), head,
      make('p', {}, finding.evidence), make('p', {className: 'remedy'}, finding.remedy));
  }

  showTable(table) {
    table.column ??= table.sort;
    table.falling ??= true;
    const {value} = table.columns[table.column];
    const sign = table.falling ? -1 : 1;
    const rows = [...table.rows].sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
    const body = make('tbody');
    for (const row of rows.slice(0, MOST_ROWS)) body.append(this.tableRow(table, row));
    const element = make('table', {}, this.tableHead(table), body);
    const rest = rows.length - MOST_ROWS;
    byId('table').replaceChildren(element);
    if (rows.length === 0) byId('table').append(note('None in this recording.'));
    if (rest > 0) byId('table').append(note(`and ${formatCount(rest)} more, in this order`));
  }

  tableHead(table) {
    const head = make('tr');
    table.columns.forEach((column, index) => {
      const sort = () => {
        table.falling = table.column === index ? !table.falling : column.numeric;
        table.column = index;
        this.showTable(table);
      };
      const cell = make('th', {scope: 'col', className: column.numeric ? 'numeric' : ''},
        make('button', {onclick: sort}, column.title));
      if (index === table.column) cell.setAttribute('aria-sort', table.falling ? 'descending' : 'ascending');
      head.append(cell);
    });
    return make('thead', {}, head);
  }

  tableRow(table, row) {
    const line = make('tr');
    for (const column of table.columns) {
      const shown = column.show(row);
      const cell = make('td', {className: column.numeric ? 'numeric' : ''}, shown);
      if (!column.numeric && typeof shown === 'string') cell.title = shown;
      line.append(cell);
    }
    if (!table.click) return line;
    line.className = 'clickable';
    line.tabIndex = 0;
    line.addEventListener('click', () => table.click(row));
    line.addEventListener('keydown', (key) => { if (key.key === 'Enter') table.click(row); });
    return line;
  }
}

