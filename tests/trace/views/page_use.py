# SPDX-License-Identifier: Apache-2.0
"""The page in use: zoom, pan, selection, hover, search, tables."""
import json
import random
import re

from browser import WIDTH
from page_case import CALL, COPY, KERNEL, RANGE, RULER, PageTest, components, contrast


class Moving(PageTest):
    def test_wheel_zooms_at_the_pointer(self):
        left, top, width, _ = self.tracks()
        x = left + width * 0.3
        begin, end = self.view()
        time = begin + (end - begin) * 0.3
        for _ in range(5):
            self.browser.wheel(x, top + 100, -200)
        begin, zoomed_end = self.view()
        self.assertLess(zoomed_end - begin, (end - begin) / 3)
        self.assertAlmostEqual(begin + (zoomed_end - begin) * 0.3, time, delta=(zoomed_end - begin) * 0.002)
        for _ in range(12):
            self.browser.wheel(x, top + 100, 300)
        self.assertAlmostEqual(self.span(), 1.04 * self.sample.json["duration"], delta=1)  # no further than all of it

    def test_no_deeper_than_nanoseconds(self):
        left, top, width, _ = self.tracks()
        for _ in range(80):
            self.browser.wheel(left + width / 2, top + 100, -400)
        self.assertGreaterEqual(self.span(), 19.9)
        self.assertLess(self.span(), 21)

    def test_keys(self):
        whole = self.span()
        self.browser.key("w")
        self.assertAlmostEqual(self.span(), whole / 1.6, delta=whole / 1000)
        self.browser.key("+")
        self.assertAlmostEqual(self.span(), whole / 1.6 ** 2, delta=whole / 1000)
        begin = self.view()[0]
        self.browser.key("a")
        self.assertAlmostEqual(self.view()[0], begin - 0.2 * self.span(), delta=whole / 1000)
        self.browser.key("d")
        self.assertAlmostEqual(self.view()[0], begin, delta=whole / 1000)
        self.browser.key("s")
        self.browser.key("-")
        self.assertAlmostEqual(self.span(), whole, delta=whole / 1000)
        self.browser.key("w")
        self.browser.key("f")
        self.assertAlmostEqual(self.span(), whole, delta=1)

    def test_drag_pans_and_double_click_fits(self):
        left, top, width, _ = self.tracks()
        whole = self.span()
        self.show(1e7, 2e7)
        self.browser.drag((left + 400, top + 120), (left + 400 + width / 10, top + 120))
        begin, end = self.view()
        self.assertAlmostEqual(begin, 0.9e7, delta=1e7 / width)
        self.assertAlmostEqual(end, 1.9e7, delta=1e7 / width)
        self.browser.click(left + 300, top + 120, count=2)
        self.assertAlmostEqual(self.span(), whole, delta=1)

    def test_selection_measures_and_zooms(self):
        left, top, width, _ = self.tracks()
        for start, end, shift in [(top + 100, top + 140, True), (top + RULER / 2, top + 90, False)]:
            self.show(1e7, 2e7)
            self.browser.drag((left + width * 0.2, start), (left + width * 0.5, end), shift=shift)
            selection = self.run_js("penstockTrace.selection")
            self.assertAlmostEqual(selection["begin"], 1.2e7, delta=2e7 / width)
            self.assertAlmostEqual(selection["end"], 1.5e7, delta=2e7 / width)
            self.assertEqual(self.view(), [1e7, 2e7])
            self.assertRegex(self.text("#details"), r"duration\s+(3|3\.0\d*|2\.99\d*) ms")
            kernels = sum(1 for kind, _, begin, until, *_ in self.sample.events
                          if kind == KERNEL and begin < selection["end"] and until > selection["begin"])
            self.assertIn(f"{kernels} ·", self.text("#details"))
            self.browser.key("z")
            self.assertAlmostEqual(self.span(), selection["end"] - selection["begin"], delta=1)
            self.browser.key("Escape")
            self.assertIsNone(self.run_js("penstockTrace.selection"))

    def test_overview_moves_the_view(self):
        x, y, width, _ = self.place_of("overview")
        self.show(1e7, 1.1e7)
        self.browser.drag((x + width / 2, y + 20), (x + width * 0.75, y + 20))
        begin, end = self.view()
        all_of_it = self.sample.json["duration"] * 1.04
        self.assertAlmostEqual((begin + end) / 2, all_of_it * (0.75 - 0.02 / 1.04), delta=all_of_it / 200)
        self.assertAlmostEqual(end - begin, 1e6, delta=1)

    def test_steps(self):
        steps = self.sample.events_of(RANGE, "step")
        self.assertEqual(self.text("#step-number"), f"{len(steps)} steps")
        for number in (0, 1, 2):
            self.browser.key("]")
            self.frames()
            begin, end = self.view()
            self.assertLess(begin, self.sample.events[steps[number]][2])
            self.assertGreater(end, self.sample.events[steps[number]][3])
            self.assertEqual(self.text("#step-number"), f"step {number + 1} of {len(steps)}")
        self.browser.key("[")
        self.frames()
        self.assertEqual(self.text("#step-number"), f"step 2 of {len(steps)}")

    def test_jumps_are_animated_and_arrive(self):
        self.browser.prefer("light")
        self.browser.key("]")
        middle, last = self.run_js("""(async () => {
          await new Promise(requestAnimationFrame);
          const middle = penstockTrace.view.span;
          while (penstockTrace.view.target !== null) await new Promise(requestAnimationFrame);
          return [middle, penstockTrace.view.span];
        })()""")
        step = self.sample.events[self.sample.events_of(RANGE, "step")[0]]
        self.assertAlmostEqual(last, 1.2 * (step[3] - step[2]), delta=1)
        self.assertGreater(middle, last)

    def test_many_tracks_scroll(self):
        self.browser.resize(WIDTH, 560)
        self.wait_for("penstockTrace.view.lowest > 0")
        left, top, _, _ = self.tracks()
        self.browser.wheel(left - 60, top + 60, 5000)
        scroll, lowest = self.run_js("[penstockTrace.view.scroll, penstockTrace.view.lowest]")
        self.assertEqual(scroll, lowest)
        worker = self.sample.events_of(RANGE, "decode")[5]
        self.browser.move(*self.look_at(worker))
        self.assertEqual(self.run_js("penstockTrace.hovered?.event"), worker)


class Looking(PageTest):
    def check_hover(self, count, seed):
        chosen = random.Random(seed).sample(range(len(self.sample.events)), count)
        for index in chosen:
            kind, name, begin, end, _, correlation, _ = self.sample.events[index]
            self.browser.move(*self.look_at(index))
            self.assertEqual(self.run_js("penstockTrace.hovered?.event"), index)
            relatives = [i for i, event in enumerate(self.sample.events)
                         if correlation and event[5] == correlation and (event[0] < CALL) != (kind < CALL)]
            self.assertEqual(self.run_js("penstockTrace.hovered.relatives"), relatives)
            shown = self.text("#tooltip")
            self.assertIn(name or "copy", shown)
            length = end - begin
            exactly = f"{length / 1e6:.6f}".rstrip("0").rstrip(".") + " ms" if length >= 1e6 else \
                f"{length / 1e3:.3f}".rstrip("0").rstrip(".") + " µs" if length >= 1e3 else f"{length} ns"
            self.assertIn(exactly, shown)

    def test_hover(self):
        self.check_hover(40, seed=2)
        self.browser.move(2, 2)
        self.assertIsNone(self.run_js("penstockTrace.hovered"))
        self.assertTrue(self.run_js("document.getElementById('tooltip').hidden"))

    def test_hover_on_a_dense_screen(self):
        self.browser.resize(1100, 800, ratio=2)
        self.wait_for("penstockTrace.painter.ratio === 2 && penstockTrace.painter.canvas.width === 2 * "
                      "document.getElementById('tracks').clientWidth")
        self.check_hover(15, seed=3)

    def test_copies_tell_bytes_and_bandwidth(self):
        copy = next(i for i in self.sample.events_of(COPY) if int(self.sample.events[i][4]) > 1000)
        self.browser.move(*self.look_at(copy))
        _, _, begin, end, value, *_ = self.sample.events[copy]
        shown = self.text("#tooltip")
        self.assertIn(f"{int(value):,}", shown)
        self.assertIn("copy host to device", shown)
        self.assertAlmostEqual(float(re.search(r"([\d.]+) GB/s", shown)[1]), int(value) / (end - begin), delta=0.6)

    def test_what_is_drawn_is_what_is_there(self):
        """Right above its text a kernel's box has its colour; right beside it there is ground."""
        kernels = self.sample.events_of(KERNEL)
        for index in random.Random(4).sample(kernels[len(kernels) // 20:], 15):  # none of the first step
            self.browser.move(2, 2)
            self.look_at(index)
            colour, ground, inside, outside = self.run_js(f"""(() => {{
              penstockTrace.draw();
              const {{painter, colours, recording}} = penstockTrace;
              const {{x, y, width}} = painter.boxOf({{event: {index}}});
              const at = (top) => Array.from(painter.context.getImageData(x + width / 2, top, 1, 1).data.slice(0, 3));
              return [colours.ofClass[recording.classOf[{index}]], colours.theme.back, at(y + 1), at(y - 3)];
            }})()""")
            self.assertEqual((inside, outside), (components(colour), components(ground)))

    def test_pin(self):
        kernel = self.sample.events_of(KERNEL, "max_pool")[7]
        self.browser.click(*self.look_at(kernel))
        self.assertEqual(self.pinned(), kernel)
        self.assertIn("max_pool", self.text("#details"))
        self.assertIn("submitted by\ncudaLaunchKernel on trainer", self.text("#details"))
        self.browser.key(".")
        self.assertEqual(self.pinned(), self.sample.events_of(KERNEL, "max_pool")[8])
        self.browser.key(",")
        self.assertEqual(self.pinned(), kernel)
        self.press("#details .relative")
        self.assertEqual(self.sample.events[self.pinned()][5], self.sample.events[kernel][5])
        self.assertEqual(self.sample.events[self.pinned()][0], CALL)
        self.browser.key("Escape")
        self.assertIsNone(self.pinned())
        self.assertTrue(self.run_js("document.getElementById('details').hidden"))

    def test_search(self):
        self.browser.key("/")
        self.browser.type("conv2d BACKWARD")
        wanted = [i for i, event in enumerate(self.sample.events) if event[1].startswith("conv2d_backward")]
        self.assertEqual(self.run_js("Array.from(penstockTrace.matches)"), wanted)
        self.assertEqual(self.text("#matches"), f"{len(wanted):,}")
        self.browser.key("Enter")
        first = self.pinned()
        self.assertIn(first, wanted)
        begin, end = self.view()
        self.assertTrue(begin <= self.sample.events[first][2] and self.sample.events[first][3] <= end)
        self.browser.key("Enter")
        self.assertEqual(self.pinned(), wanted[wanted.index(first) + 1])
        self.browser.key("Enter", shift=True)
        self.assertEqual(self.pinned(), first)
        self.browser.key("Escape")
        self.assertIsNone(self.run_js("penstockTrace.matches"))

    def test_search_for_what_an_event_is(self):
        copies = [self.sample.events[i] for i in self.sample.events_of(COPY)]
        input_copies = [event for event in copies if event[4] != "4"]
        pageable = input_copies[3::4] + [event for event in copies if event[4] == "4"]  # as training_run.cpp does it
        for query, wanted in [
                ('"forward"', lambda event: event[1] == "forward"),
                ('"copy device to host" pageable', lambda event: event[0] == COPY and event[4] == "4"),
                ("copy -pageable -call -range", lambda event: event[0] == COPY and event not in pageable),
                ("no such thing", lambda event: False)]:
            self.run_js(f"penstockTrace.search.set({json.dumps(query)})")
            self.assertEqual(self.run_js("Array.from(penstockTrace.matches)"),
                             [i for i, event in enumerate(self.sample.events) if wanted(event)])

    def test_dark_and_light(self):
        """Text on its ground reads: WCAG's 4.5 to 1, in both themes, on the page and on the canvas."""
        grounds = []
        for scheme in ["light", "dark"]:
            self.browser.prefer(scheme, motion="reduce")
            self.wait_for(f"""matchMedia('(prefers-color-scheme: {scheme})').matches &&
              getComputedStyle(document.documentElement).getPropertyValue('--back') ===
              penstockTrace.colours.theme.back""")
            self.frames()
            theme = self.run_js("penstockTrace.colours.theme")
            grounds.append(theme["back"])
            for ink, ground in [("text", "back"), ("muted", "back"), ("text", "panel"), ("muted", "panel"),
                                ("idle", "back"), ("accent", "back")]:
                with self.subTest(scheme=scheme, ink=ink, ground=ground):
                    self.assertGreaterEqual(contrast(theme[ink], theme[ground]), 4.5)
            pixel = self.run_js("(({context, canvas}) => Array.from(context.getImageData(3, canvas.height - 3, 1, 1)"
                                ".data))(penstockTrace.painter)")
            self.assertLess(max(abs(a - b) for a, b in zip(pixel, components(theme["back"]))), 24)
            self.assertGreater(len(self.browser.screenshot()), 30_000)
        self.assertNotEqual(*grounds)

    def test_help(self):
        self.browser.key("?")
        self.assertTrue(self.run_js("document.getElementById('help').open"))
        self.assertIn("wheel", self.text("#help"))


class Tables(PageTest):
    def column(self, number):
        return self.texts(f"#table tbody td:nth-child({number})")

    def test_ranges(self):
        self.open_tab("Ranges")
        wanted = sorted(self.sample.json["ranges"], key=lambda row: -row["total"])
        self.assertEqual(self.column(1), [row["name"] for row in wanted])
        self.assertEqual(self.column(2), [f"{row['count']:,}" for row in wanted])

    def test_sorting(self):
        self.open_tab("Ranges")
        rows = self.sample.json["ranges"]
        for head, key in [(2, lambda row: row["count"]), (1, lambda row: row["name"])]:
            self.press(f"#table th:nth-child({head}) button")
            first = self.run_js(f"document.querySelector('#table th:nth-child({head})').getAttribute('aria-sort')")
            self.assertEqual(first, "descending" if head == 2 else "ascending")
            names = self.column(1)
            keys = [key(next(row for row in rows if row["name"] == name)) for name in names]
            self.assertEqual(keys, sorted(keys, reverse=first == "descending"))
            self.press(f"#table th:nth-child({head}) button")
            names = self.column(1)
            keys = [key(next(row for row in rows if row["name"] == name)) for name in names]
            self.assertEqual(keys, sorted(keys, reverse=first != "descending"))

    def test_a_row_marks_its_events(self):
        self.open_tab("Kernels")
        self.press("#table tbody tr")
        name = self.column(1)[0]
        self.assertEqual(self.run_js("Array.from(penstockTrace.matches)"), self.sample.events_of(KERNEL, name))

    def test_every_table_has_rows(self):
        for name in ["Kernels", "Copies", "Calls", "Devices"]:
            self.open_tab(name)
            self.assertGreater(len(self.column(1)), 0, name)
            self.assertFalse([text for text in self.texts("#table td") if "NaN" in text or "undefined" in text], name)

    def test_a_gap_jumps_there(self):
        self.open_tab("Gaps")
        self.press("#table tbody tr")
        gap = max(self.sample.json["gaps"], key=lambda one: one[1] - one[0])
        self.assertEqual(self.run_js("penstockTrace.timesOf(penstockTrace.pinned)"), gap)
        begin, end = self.view()
        self.assertTrue(begin < gap[0] and gap[1] < end)
        self.assertIn("idle", self.text("#details"))

    def test_findings_jump_to_their_worst(self):
        findings = self.sample.json["findings"]
        self.assertGreater(len(findings), 0)
        for number, finding in enumerate(findings, 1):
            self.press(f".findings li:nth-child({number}) button")
            self.assertEqual(self.run_js("penstockTrace.selection"), {"begin": finding["begin"], "end": finding["end"]})
            begin, end = self.view()
            self.assertTrue(begin <= finding["begin"] and finding["end"] <= end)
