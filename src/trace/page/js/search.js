// SPDX-License-Identifier: Apache-2.0

// ---- Search: it tests the classes of events, so a million events cost a few milliseconds -----------

// Every part of a query must match. A "name in quotes" matches a whole name. Another word matches if it is
// anywhere in the name, kind, direction, domain or flags, and a -word matches if it is not there.
function matcherOf(query) {
  const parts = query.toLowerCase().match(/"[^"]+"|\S+/g);
  if (parts === null) return null;
  const tests = parts.map((part) => {
    if (/^".+"$/.test(part)) return (one) => one.titles.includes(part.slice(1, -1));
    if (/^-./.test(part)) return (one) => !one.text.includes(part.slice(1));
    return (one) => one.text.includes(part);
  });
  return (one) => tests.every((test) => test(one));
}

class Search {
  constructor(app) {
    this.app = app;
    this.box = byId('search');
    this.box.addEventListener('input', () => this.update());
    this.box.addEventListener('keydown', (key) => {
      if (key.key === 'Enter') this.go(key.shiftKey ? -1 : 1);
      if (key.key === 'Escape') {
        this.set('');
        this.box.blur();
      }
      key.stopPropagation();  // here letters are text, not commands
    });
    byId('previous-match').addEventListener('click', () => this.go(-1));
    byId('next-match').addEventListener('click', () => this.go(1));
    this.update();
  }

  set(query) {
    this.box.value = query;
    this.update();
  }

  update() {
    const {app} = this;
    const {recording} = app;
    const matches = matcherOf(this.box.value);
    app.matching = matches === null ? null : recording.classes.map(matches);
    app.matches = null;
    if (app.matching !== null) {
      let count = 0;
      for (let i = 0; i < recording.count; ++i) if (app.matching[recording.classOf[i]]) ++count;
      app.matches = new Uint32Array(count);
      for (let i = 0, at = 0; i < recording.count; ++i) if (app.matching[recording.classOf[i]]) app.matches[at++] = i;
    }
    this.showCount();
    app.recolour();
  }

  // Goes to the next match from the pinned match, or else from the middle of the view.
  go(direction) {
    const {app} = this;
    if (!app.matches?.length) return;
    const {begin} = app.recording;
    const [from, to] = app.view.settled();
    const pinned = app.pinned?.event;
    let place;
    if (pinned !== undefined && app.matching[app.recording.classOf[pinned]]) {
      place = firstAtLeast(app.matches, (event) => event, pinned) + direction;
    } else {
      place = firstAtLeast(app.matches, (event) => begin[event], (from + to) / 2) - (direction < 0 ? 1 : 0);
    }
    place = (place + app.matches.length) % app.matches.length;
    app.goToEvent(app.matches[place]);
    this.showCount(place);
  }

  showCount(place) {
    const {matches} = this.app;
    const count = matches === null ? '' : formatCount(matches.length);
    const which = place === undefined || matches === null ? '' : `${formatCount(place + 1)} of `;
    byId('matches').textContent = which + count;
    for (const id of ['previous-match', 'next-match']) byId(id).disabled = !matches?.length;
  }
}

