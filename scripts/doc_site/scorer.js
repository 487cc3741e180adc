// SPDX-License-Identifier: Apache-2.0

// A search shows recipes first, then other pages that explain, then measured figures, and the pages of headers and their symbols
// last.
const BONUS = [[/^docs\/recipes\//, 20], [/^docs\/measured\//, -50], [/^(docs\/)?reference/, -100], [/^(docs|examples)\/|^index$/, 10]];

var Scorer = {
  score: ([page, , , , points]) => points + (BONUS.find(([pages]) => pages.test(page)) ?? [null, 0])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
