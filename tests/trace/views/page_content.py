# SPDX-License-Identifier: Apache-2.0
"""What the page shows, against the timelines it was made of."""
import random
import re

from page_case import ALL_OF_EVENTS, COPY, HOST_FUNCTION, KERNEL, RANGE, BrowserTest, PageTest


class Ranks(PageTest):
    sample_name = "ranks"

    def test_rows_stand_by_rank(self):
        rows = self.texts("#label-list .row")
        half = len(rows) // 2
        self.assertEqual(rows[0], "device 0 · NVIDIA H200")
        self.assertEqual(rows[half], "device 1")
        self.assertIn("rank 0", rows[:half])
        self.assertEqual([row.replace("rank 1", "rank 0") for row in rows[half + 1:]], rows[1:half])
        self.assertNotIn("process", self.text("#origin"))

    def test_has_every_event(self):
        self.assertEqual(self.run_js(ALL_OF_EVENTS), self.sample.events)


class Content(PageTest):
    def test_opens_without_a_network(self):
        self.assertEqual(self.browser.requests, [self.sample.page.resolve().as_uri()])
        self.assertIn("default-src 'none'", self.run_js("document.querySelector('meta[http-equiv]').content"))

    def test_has_every_event(self):
        self.assertEqual(self.run_js(ALL_OF_EVENTS), self.sample.events)

    def test_head(self):
        self.assertEqual(self.text("#program"), "./train --data cifar10 --batch 512 --workers 3")
        self.assertEqual(self.run_js("document.title"),
                         "train --data cifar10 --batch 512 --workers 3 – penstock trace")
        self.assertEqual(self.text("#emulated"), "EMULATED")
        for part in ["node17", "4711", "NVIDIA H200", "emulated CUDA runtime", f"{len(self.sample.events):,} in"]:
            self.assertIn(part, self.text("#origin"))
        figures = self.texts(".figure")
        self.assertTrue(any(figure.startswith("Median step") for figure in figures), figures)
        self.assertTrue(any(figure.startswith("GPU idle") for figure in figures), figures)

    def test_rows_are_named(self):
        rows = self.texts("#label-list .row")
        self.assertEqual(rows[:3], ["device 0 · NVIDIA H200", "idle", "memory"])
        tracks = [title.replace("device 0, ", "") for title in self.sample.json["tracks"]]
        self.assertEqual([row for row in rows[3:] if row != "process 4711"], tracks)

    def test_lanes_hold_every_event_once_and_none_overlap(self):
        seen, overlaps = self.run_js("""(() => {
          const seen = new Uint8Array(penstockTrace.recording.count);
          let overlaps = 0;
          for (const row of penstockTrace.rows) {
            if (row.kind !== 'track') continue;
            for (const lane of row.lanes) {
              lane.events.forEach((event, i) => {
                ++seen[event];
                overlaps += i > 0 && lane.begin[i] < lane.end[i - 1];
              });
            }
          }
          return [seen.every((times) => times === 1), overlaps];
        })()""")
        self.assertEqual((seen, overlaps), (True, 0))

    def test_ranges_stand_above_what_is_within_them(self):
        step = self.sample.events_of(RANGE, "step")[3]
        forward = self.sample.events_of(RANGE, "forward")[3]
        tops = [self.run_js(f"penstockTrace.painter.boxOf({{event: {index}}}).y") for index in (step, forward)]
        self.assertLess(tops[0], tops[1])

    def test_work_has_the_colour_of_the_stage_that_submitted_it(self):
        colours = self.run_js("""[...Array(penstockTrace.recording.count).keys()].map(
          (i) => penstockTrace.colours.ofClass[penstockTrace.recording.classOf[i]])""")
        of_range = {self.sample.events[i][1]: colours[i] for i in self.sample.events_of(RANGE)}
        self.assertEqual(len(set(of_range.values())), len(of_range))  # fewer stages than colours
        kernels = self.sample.events_of(KERNEL)
        for i in random.Random(1).sample(kernels, 60) + self.sample.events_of(COPY)[:20]:
            stage = self.sample.stage(i)
            self.assertEqual(colours[i], of_range[stage], (i, stage))

    def test_a_range_has_the_colour_that_the_program_gave_it(self):
        stages = dict(self.run_js("[...penstockTrace.colours.stages]"))
        self.assertEqual(stages["forward"], "#59a14f")
        self.assertEqual(list(stages.values()).count("#59a14f"), 1)  # No other stage has taken it.

    def test_memory(self):
        levels = self.run_js("(({time, bytes}) => [time, bytes])(penstockTrace.recording.memoryOf.get(0))")
        self.assertEqual(levels[1], [1 << 30, 4 << 30, 2 << 30])
        self.assertTrue(any(figure.startswith("Memory") and "4.00 GiB" in figure for figure in self.texts(".figure")),
                        self.texts(".figure"))  # fmt: skip
        self.open_tab("Memory")
        (row,) = self.texts("#table tbody tr")
        for part in ("1.00 GiB", "4.00 GiB", "2.00 GiB"):
            self.assertIn(part, row)
        # The row is as high as the memory is taken: at a quarter, full, and at a half, in the middle of each level.
        self.press("#fit")
        self.frames(2)
        filled = self.run_js("""(() => {
          const {painter, rows, recording, view} = penstockTrace;
          const row = rows.find((one) => one.kind === 'memory');
          const {time} = recording.memoryOf.get(0);
          const top = painter.px(painter.top(row.y) + 3);
          const columns = [time[1] / 2, (time[1] + time[2]) / 2, (time[2] + recording.duration) / 2];
          return columns.map((at) => {
            const x = Math.round((at - view.begin) / (view.end - view.begin) * painter.canvas.width);
            const column = painter.context.getImageData(x, top, 1, painter.px(30)).data;
            const pixels = Array.from({length: column.length / 4}, (_, i) => column.slice(4 * i, 4 * i + 3).join());
            return pixels.filter((pixel) => pixel === pixels.at(-1)).length / pixels.length;
          });
        })()""")
        for part, wanted in zip(filled, (0.25, 1, 0.5)):
            self.assertAlmostEqual(part, wanted, delta=0.1)

    def test_idle_gaps(self):
        first, last = self.run_js("(({begin, end}) => [begin, end])(penstockTrace.recording.report)")
        gaps, now = [], first
        for kind, _, begin, end, *_ in self.sample.events:
            if kind >= HOST_FUNCTION:
                continue
            if min(begin, last) > now:
                gaps.append([now, min(begin, last)])
            now = max(now, end)
        shown = self.run_js("(({begin, end}) => Array.from(begin, (from, i) => [from, end[i]]))"
                            "(penstockTrace.recording.gapsOf.get(0))")
        self.assertEqual(shown, gaps)
        idle = (sum(end - begin for begin, end in gaps) + max(last - now, 0)) / (last - first)
        self.assertAlmostEqual(self.run_js("penstockTrace.recording.report.devices[0].idle"), idle, places=6)


class Odd(PageTest):
    sample_name = "odd"

    def test_names_are_text(self):
        self.assertIsNone(self.run_js("window.broken ?? null"))
        self.assertEqual(self.run_js("document.querySelectorAll('img').length"), 0)
        shown = self.run_js(ALL_OF_EVENTS)
        for mine, its in zip(self.sample.events, shown):
            wanted = "scale<float>" if mine[1].startswith("_Z5scale") else mine[1]
            self.assertEqual([its[0], its[1], *its[2:]], [mine[0], wanted, *mine[2:]])

    def test_each_device_has_its_rows(self):
        self.assertEqual(self.texts("#label-list .row"),
                         ["device 0", "idle", "<img src=x onerror=alert(1)>", "device 1", "idle", "stream 7",
                          "process 0", "\"quoted\" & 'single' \\ back"])
        index = next(i for i, event in enumerate(self.sample.events) if event[1] == "on device 1")
        self.browser.move(*self.look_at(index))
        self.assertEqual(self.run_js("penstockTrace.hovered?.event"), index)

    def test_payloads_of_64_bits(self):
        for name, payload in [("</script>", "18,446,744,073,709,551,615"), ("bytes", "9,007,199,254,740,993")]:
            index = next(i for i, event in enumerate(self.sample.events) if event[1].startswith(name))
            self.browser.click(*self.look_at(index))
            self.assertIn(payload, self.text("#details"))

    def test_a_graph_is_joined_with_its_nodes(self):
        graph, first, second = ([event[1] for event in self.sample.events].index(name)
                                for name in ("cudaGraphLaunch", "first node", "second node"))
        self.assertEqual(self.run_js(f"penstockTrace.recording.relatives({graph})"), [first, second])
        self.assertEqual(self.run_js(f"penstockTrace.recording.relatives({second})"), [graph])
        self.browser.click(*self.look_at(graph))
        self.assertIn("first node on <img src=x onerror=alert(1)>, 10.0 µs later, and 1 more", self.text("#details"))

    def test_overlapping_events_are_all_seen(self):
        for name in ["überlappend 重なり", "second"]:
            index = next(i for i, event in enumerate(self.sample.events) if event[1] == name)
            self.browser.move(*self.look_at(index))
            self.assertEqual(self.run_js("penstockTrace.hovered?.event"), index)


class Empty(PageTest):
    sample_name = "empty"

    def test_nothing_is_no_error(self):
        self.assertEqual(self.run_js("penstockTrace.recording.count"), 0)
        self.open_tab("Findings")
        self.assertIn("No findings", self.text("#table"))
        for key in "wsadf[].,z":
            self.browser.key(key)
        left, top, width, height = self.tracks()
        self.browser.wheel(left + width / 2, top + height / 2, -100)


class Damaged(BrowserTest):
    def test_says_so(self):
        text = (self.folder / "run.html").read_text()
        cut = re.sub(r'(id="column-begins">)....', r"\1", text)
        (self.folder / "damaged.html").write_text(cut)
        self.browser.open(self.folder / "damaged.html")
        self.assertIn("damaged", self.browser.evaluate("document.querySelector('.broken').innerText"))
