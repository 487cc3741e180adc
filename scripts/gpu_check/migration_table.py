#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
migration_table.py [RESULTS] [--store FILE] [--page FILE] [--figures FILE] [--picture FILE]

Takes what migration_measure.py has measured (`scripts/gpu-check migration` does it on a machine with a GPU) into the
store, examples/migration/measured.json, and makes from it the table of docs/measured/migration.md, and what docs/migration.md
shows between its markers: what the profile of each step said, and the timelines, docs/migration.svg. Needs no GPU.
"""

import argparse
import json
import pathlib
import sys
import xml.sax.saxutils

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


def rows_of(results, kind):
    return {row["step"]: row for row in results.get("rows", []) if row["kind"] == kind}


# ---- The table ------------------------------------------------------------------------------------


def gains(rows, step, before):
    """Images/s, over the step before, over the first."""
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
    """The dearest three of a report, as penstock-trace prints them. Without the first step's: it loads the kernels."""
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
    """A line for each step: all of its findings."""
    lines = []
    for step in STEPS[1:]:
        row = rows_of(results, kind).get(step, {})
        if "findings" not in row:
            return NOTHING
        told = [f"{one['rule']} {100 * one['share']:.1f} %" for one in row["findings"] if one["rule"] != "slow-first-batch"]
        lines.append(f"{step:12}{', '.join(told) or 'none'}")
    return "```text\n" + "\n".join(lines) + "\n```"


# ---- The picture ----------------------------------------------------------------------------------

COLOURS = {"load": "#5b8fd6", "allocate": "#e08a2e", "wait": "#d9534f", "call": "#9aa5ad", "copy": "#2fa8a0",
           "kernel": "#4c9a52"}  # fmt: skip
LEGEND = {"load": "load", "allocate": "allocate, free", "wait": "call that waits", "call": "other call", "copy": "copy",
          "kernel": "kernel"}  # fmt: skip
LEFT, WIDTH, ROW, SHOWN = 110, 870, 18, 2500  # pixels; microseconds


def rectangle(at, y):
    kind, begin, duration, name = at
    x, width = LEFT + WIDTH * begin / SHOWN, max(0.5, WIDTH * duration / SHOWN)
    title = xml.sax.saxutils.escape(f"{name}, {duration} us")
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 4}" fill="{COLOURS[kind]}"><title>{title}</title></rect>'


def picture(results):
    """An SVG: 2.5 ms of each step, one below the other, all in the same scale. Empty without timelines."""
    parts, y = [], 46
    rows = rows_of(results, PICTURED)
    for step in STEPS[1:]:
        if "timeline" not in rows.get(step, {}):
            return ""
        workers = rows[step]["timeline"]["workers"]
        more = f" ({workers} workers load)" if workers else ""
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{step}{more}</text>')
        for name, events in rows[step]["timeline"]["rows"].items():
            y += ROW
            parts.append(f'<text x="20" y="{y}">{name}</text><line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y + 3}" y2="{y + 3}" stroke="#dde3e8"/>')
            parts += [rectangle(at, y - ROW + 6) for at in events]
        y += ROW + 14
    for millisecond in range(int(SHOWN / 1000) + 1):
        x = LEFT + WIDTH * 1000 * millisecond / SHOWN
        parts.append(f'<line x1="{x}" x2="{x}" y1="34" y2="{y - 20}" stroke="#b8c2ca" stroke-dasharray="2 3"/>'
                     f'<text x="{x}" y="{y - 4}" text-anchor="middle">{millisecond} ms</text>')  # fmt: skip
    for index, (kind, text) in enumerate(LEGEND.items()):
        x = LEFT + 145 * index
        parts.append(f'<rect x="{x}" y="8" width="14" height="12" fill="{COLOURS[kind]}"/><text x="{x + 20}" y="18">{text}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {y + 8}" font-family="Helvetica, Arial, sans-serif" '
            f'font-size="12" role="img" aria-label="2.5 ms of steps 2 to 5: what the host does, copies, kernels">\n'
            f'<rect width="1000" height="{y + 8}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n")  # fmt: skip


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
    results = json.loads(option.store.read_text()) if option.store.exists() else {}
    drawn = picture(results)
    if drawn:
        option.picture.write_text(drawn)
    found = blocks(results, option.picture.name if drawn else "")
    put_into(option.figures, {"table": found.pop("table")})
    put_into(option.page, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
