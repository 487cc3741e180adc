# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page are made of: the samples as lists, and a test with a page just opened."""
import json
import unittest

from browser import HEIGHT, WIDTH

KERNEL, COPY, FILL, HOST_FUNCTION, GRAPH, CALL, RANGE = range(7)
RULER = 26
ALL_OF_EVENTS = """(() => {
  const {recording} = penstockTrace;
  return Array.from({length: recording.count}, (_, i) => [recording.summary.kinds.indexOf(recording.of(i).kind),
    recording.of(i).name, recording.begin[i], recording.end[i], String(recording.exactValue(i)),
    recording.correlation[i], recording.of(i).track]);
})()"""


class BrowserTest(unittest.TestCase):
    browser, folder = None, None  # page_test.py sets them, for all tests


class Sample:
    """One of the timelines, as lists."""

    def __init__(self, folder, name):
        self.page = folder / f"{name}.html"
        self.json = json.loads((folder / f"{name}.json").read_text())
        self.events = self.json["events"]

    def events_of(self, kind, name=None):
        return [i for i, event in enumerate(self.events) if event[0] == kind and name in (None, event[1])]

    def stage(self, index):
        """Name of the innermost range around the call that put the event on its stream."""
        correlation = self.events[index][5]
        call = next(event for event in self.events if event[0] == CALL and event[5] == correlation)
        around = [event for event in self.events
                  if event[0] == RANGE and event[6] == call[6] and event[2] <= call[2] < event[3]]
        return max(around, key=lambda event: event[2])[1] if around else ""


class PageTest(BrowserTest):
    """Each test begins with a page that was just opened."""

    sample_name = "run"

    @classmethod
    def setUpClass(cls):
        cls.sample = Sample(cls.folder, cls.sample_name)

    def setUp(self):
        self.browser.resize(WIDTH, HEIGHT)
        self.browser.prefer("light", motion="reduce")
        self.browser.move(2, 2)
        self.browser.open(self.sample.page)

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [])

    # ---- What tests say ------------------------------------------------------------------------------

    def run_js(self, expression):
        return self.browser.evaluate(expression)

    def frames(self, count=1):
        """Waits until so many frames were drawn."""
        for _ in range(count):
            self.run_js("new Promise((done) => requestAnimationFrame(() => done()))")

    def wait_for(self, condition):
        """What the browser tells the page in a frame of its own choice: a change of size or of theme."""
        for _ in range(600):
            if self.run_js(condition):
                return
            self.frames()
        self.fail(f"in 600 frames this did not come true: {condition}")

    def view(self):
        return self.run_js("[penstockTrace.view.begin, penstockTrace.view.end]")

    def span(self):
        begin, end = self.view()
        return end - begin

    def show(self, begin, end):
        self.run_js(f"(penstockTrace.view.set({begin}, {end}), penstockTrace.draw())")

    def tracks(self):
        """Of their canvas: left, top, width, height."""
        return self.place_of("tracks")

    def place_of(self, name):
        return self.run_js("(({x, y, width, height}) => [x, y, width, height])"
                           f"(document.getElementById('{name}').getBoundingClientRect())")

    def middle_of(self, index):
        """Where on the screen an event is: x by the view, y by its row."""
        left, top, width, _ = self.tracks()
        begin, end = self.view()
        box = self.run_js(f"penstockTrace.painter.boxOf({{event: {index}}})")
        middle = (max(self.sample.events[index][2], begin) + min(self.sample.events[index][3], end)) / 2
        return left + (middle - begin) / (end - begin) * width, top + box["y"] + box["height"] / 2

    def look_at(self, index):
        """Zooms so that the event takes a good part of the view, and scrolls to its row; returns its middle on the
        screen."""
        begin, end = self.sample.events[index][2:4]
        air = max(end - begin, 100)
        track = self.sample.events[index][6]
        self.run_js(f"penstockTrace.scrollToRow((row) => row.kind === 'track' && row.track === {track})")
        self.show(begin - air, end + air)
        return self.middle_of(index)

    def text(self, selector):
        return self.run_js(f"document.querySelector({json.dumps(selector)}).innerText")

    def texts(self, selector):
        return self.run_js(f"[...document.querySelectorAll({json.dumps(selector)})]"
                           ".map((one) => one.innerText.trim())")

    def press(self, selector):
        self.run_js(f"document.querySelector({json.dumps(selector)}).click()")

    def open_tab(self, name):
        self.run_js("[...document.querySelectorAll('#tabs button')]"
                    f".find((tab) => tab.innerText.startsWith('{name}')).click()")

    def pinned(self):
        return self.run_js("penstockTrace.pinned?.event ?? null")


def components(colour):
    return [int(colour[at:at + 2], 16) for at in (1, 3, 5)]


def contrast(one, other):
    """Of two colours, after WCAG 2: 1 to 21."""
    def luminance(colour):
        parts = [part / 255 for part in components(colour)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)
