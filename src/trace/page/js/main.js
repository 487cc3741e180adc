// SPDX-License-Identifier: Apache-2.0

// ---- Start -----------------------------------------------------------------------------------------

function start() {
  const app = new App(new Recording());
  showOrigin(app.recording);
  showFigures(app);
  showLegend(app);
  // The page has its layout only now, so the canvases get their sizes here.
  new ResizeObserver(() => app.resize()).observe(byId('stage'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => app.changeTheme());
  app.resize();
  app.draw();
  // Tests use this, and people may look for more than the page shows.
  window.penstockTrace = app;
  window.penstockTrace.openMilliseconds = performance.now();
}

try {
  start();
} catch (error) {
  document.body.prepend(make('p', {className: 'broken'}, `This page cannot be shown: ${error.message}`));
  throw error;
}
