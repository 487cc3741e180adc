#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
migration_table.py [RESULTS] [--store FILE] [--page FILE] [--figures FILE] [--picture FILE]

Takes what migration_measure.py has measured (`scripts/gpu-check migration` runs it on a machine with a GPU) into the store
examples/migration/measured.json. From the store it makes the table of docs/measured/migration.md, the profiles of the steps
between the markers of docs/migration.md, and the timelines, docs/migration.svg. It needs no GPU.
"""

import argparse
import json
import pathlib
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import measured_page
from measured_page import number

STEPS = ["1_cpu", "2_kernels", "3_reuse", "4_streams", "5_pipeline"]
KINDS = {"ppm": "PPM", "jpeg": "JPEG"}
PICTURED = "ppm"  # the kind whose findings and timelines are shown
NOTHING = "Not measured yet. `scripts/gpu-check migration` measures it."

# What the page tells, and tests and measurements hold it to: rules that a step has (False), and has no more (True).
FINDINGS = {
    "2_kernels": {"allocation": False, "synchronous-copy": False, "blocking-call": False},
    "3_reuse": {"allocation": True, "blocking-call": True, "synchronous-copy": False},
    "4_streams": {"allocation": True, "synchronous-copy": True, "synchronous-fill": True, "pageable-copy": True,
                  "blocking-call": False},
    "5_pipeline": {"allocation": True, "synchronous-copy": True, "synchronous-fill": True, "pageable-copy": True,
                   "blocking-call": True},
}  # fmt: skip


def load(store):
    return json.loads(store.read_text()) if store.exists() else {}


def rows_of(results, kind):
    return {row["step"]: row for row in results.get("rows", []) if row["kind"] == kind}


# ---- The table ------------------------------------------------------------------------------------


def gains(rows, step, before):
    """Returns images/s, the ratio to the step before, and the ratio to the first step."""
    speed = rows.get(step, {}).get("images_per_second")
    if not speed:
        return ["-"] * 3
    low, high = min(rows[step]["all"]), max(rows[step]["all"])
    earlier, first = (rows.get(name, {}).get("images_per_second") for name in (before, STEPS[0]))
    return [f"{number(speed)} ({number(low)} to {number(high)})", f"{speed / earlier:.2f}" if earlier else "",
            f"{speed / first:.1f}" if first else ""]  # fmt: skip


def table(results):
    head = ["step"]
    for name in KINDS.values():
        head += [f"{name}: images/s", "x step before", "x step 1", "GPU idle"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for step, before in zip(STEPS, [""] + STEPS):
        line = [f"[{step}](../../examples/migration/{step}.{'cpp' if step == STEPS[0] else 'cu'})"]
        for kind in KINDS:
            rows = rows_of(results, kind)
            idle = rows.get(step, {}).get("idle")
            line += [*gains(rows, step, before), f"{100 * idle:.0f} %" if idle is not None else ""]
        lines.append(line)
    where = (f"One {results['machine']}, {results['cores']} CPU cores, driver {results['driver']}, commit "
             f"{results['commit']}, {results['date']}. Pictures of {results['size']}, in the system's page cache. Medians of "
             "three\nruns (lowest to highest), without penstock-trace; *GPU idle* is from a run under it.")  # fmt: skip
    return where + "\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


# ---- The findings ---------------------------------------------------------------------------------


def wrapped(text, width=112):
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n  ".join(lines)


def in_time(nanoseconds):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds} ns"


def findings(results, kind, step):
    """Returns the three most expensive findings of a report, as penstock-trace prints them. Those of the first step are left out,
    because it loads the kernels."""
    row = rows_of(results, kind).get(step, {})
    if step == STEPS[0]:
        return f"```text\nmilliseconds an image: {row['told']}\n```" if "told" in row else NOTHING
    if "findings" not in row:
        return NOTHING
    told = [one for one in row["findings"] if one["rule"] != "slow-first-batch"]
    lines = [f"{one['rule']}: {one['count']:,} times, {in_time(one['cost'])} ({100 * one['share']:.1f} % of the measured time)\n"
             f"  {wrapped(one['evidence'])}\n  {wrapped(one['remedy'])}" for one in told[:3]]  # fmt: skip
    rest = [f"{one['rule']} {100 * one['share']:.1f} %" for one in told[3:]]
    if rest:
        lines.append("... " + ", ".join(rest))
    return "```text\n" + ("\n".join(lines) or "no findings") + "\n```"


def summary(results, kind):
    """Returns a line for each step with all of its findings."""
    lines = []
    for step in STEPS[1:]:
        row = rows_of(results, kind).get(step, {})
        if "findings" not in row:
            return NOTHING
        told = [f"{one['rule']} {100 * one['share']:.1f} %" for one in row["findings"] if one["rule"] != "slow-first-batch"]
        lines.append(f"{step:12}{', '.join(told) or 'none'}")
    return "```text\n" + "\n".join(lines) + "\n```"


# ---- The picture ----------------------------------------------------------------------------------

# kind: colour, text of the legend
KINDS_OF_WORK = {"load": ("#5b8fd6", "load"), "allocate": ("#e08a2e", "allocate, free"), "wait": ("#d9534f", "call that waits"),
                 "call": ("#9aa5ad", "other call"), "copy": ("#2fa8a0", "copy"), "kernel": ("#4c9a52", "kernel")}  # fmt: skip
SHOWN = 2.5  # milliseconds
CHARACTER = 0.013  # its width in milliseconds, in the names that stand in the bars


def timelines_of(results):
    """Returns the timelines of steps 2 to 5, or nothing if one of them was not recorded."""
    timelines = {step: rows_of(results, PICTURED).get(step, {}).get("timeline") for step in STEPS[1:]}
    return timelines if all(timelines.values()) else {}


def draw_row(axes, place, events):
    """Draws a bar for each event. A bar contains the name of the event if there is room."""
    for kind, (colour, _) in KINDS_OF_WORK.items():
        bars = [(begin / 1000, max(duration / 1000, 0.0015)) for its, begin, duration, _ in events if its == kind]
        axes.broken_barh(bars, (place - 0.38, 0.76), color=colour, linewidth=0)
    for _, begin, duration, name in events:
        words = name.rpartition("::")[2]
        if duration / 1000 > CHARACTER * (len(words) + 1):
            axes.text((begin + duration / 2) / 1000, place, words, color="white", fontsize=6.5, ha="center", va="center")


def draw_step(axes, step, timeline):
    rows = timeline["rows"]
    for place, events in enumerate(rows.values()):
        draw_row(axes, place, events)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    more = f" ({timeline['workers']} workers load)" if timeline["workers"] else ""
    axes.set_title(step + more, loc="left", fontsize=9, fontweight="bold")
    axes.grid(axis="x", linestyle=":", color="#b8c2ca")
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw(results, path):
    """Draws 2.5 ms of each step, one below the other, in the same scale. Returns False without matplotlib."""
    plt = measured_page.pyplot(**{"font.size": 8})
    if plt is None:
        return False
    timelines = timelines_of(results)
    heights = [len(timeline["rows"]) for timeline in timelines.values()]
    figure, panels = plt.subplots(len(heights), sharex=True, figsize=(10, 0.24 * sum(heights) + 0.42 * len(heights) + 0.5),
                                  height_ratios=heights)  # fmt: skip
    for axes, (step, timeline) in zip(panels, timelines.items()):
        draw_step(axes, step, timeline)
    panels[-1].set_xlim(0, SHOWN)
    panels[-1].set_xlabel("ms")
    figure.legend([plt.Rectangle((0, 0), 1, 1, color=colour) for colour, _ in KINDS_OF_WORK.values()],
                  [text for _, text in KINDS_OF_WORK.values()], ncols=len(KINDS_OF_WORK), loc="upper center", frameon=False)  # fmt: skip
    measured_page.save_picture(figure, path, top=0.3)
    return True


# ---- The page -------------------------------------------------------------------------------------


def blocks(results, picture_name):
    found = {"table": table(results) if results else NOTHING, "jpeg": summary(results, "jpeg"),
             "timelines": f"![What the host does, copies and kernels, in steps 2 to 5, for 2.5 ms each]({picture_name})"
             if picture_name else NOTHING}  # fmt: skip
    return {**found, **{step: findings(results, PICTURED, step) for step in STEPS}}


def put_into(page, found):
    text = page.read_text()
    for name, block in found.items():
        begin, end = f"<!-- migration: {name} -->", f"<!-- migration: {name} end -->"
        text = measured_page.between_markers(page, text, begin, end, block)
    page.write_text(text)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("results", type=pathlib.Path, nargs="?")
    parser.add_argument("--store", type=pathlib.Path, default=ROOT / "examples/migration/measured.json")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/migration.md")
    parser.add_argument("--figures", type=pathlib.Path, default=ROOT / "docs/measured/migration.md")
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs/migration.svg")
    option = parser.parse_args()
    if option.results:
        measured_page.replace(option.store, json.dumps(json.loads(option.results.read_text())) + "\n")
    results = load(option.store)
    has_picture = bool(timelines_of(results)) and (draw(results, option.picture) or option.picture.exists())
    found = blocks(results, option.picture.name if has_picture else "")
    put_into(option.figures, {"table": found.pop("table")})
    put_into(option.page, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
