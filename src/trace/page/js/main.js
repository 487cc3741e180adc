// SPDX-License-Identifier: Apache-2.0

// ---- Start -----------------------------------------------------------------------------------------

function start() {
  const app = new App(new Recording());
  showOrigin(app.recording);
  showFigures(app);
  showLegend(app);
  // The page is laid out only now: the canvases get their sizes from here.
  new ResizeObserver(() => app.resize()).observe(byId('stage'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => app.changeTheme());
  app.resize();
  app.draw();
  // For tests, and for people who want to know more than the page tells.
  window.penstockTrace = app;
  window.penstockTrace.openMilliseconds = performance.now();
}

try {
  start();
} catch (error) {
  document.body.prepend(make('p', {className: 'broken'}, `This page cannot be shown: ${error.message}`));
  throw error;
}
