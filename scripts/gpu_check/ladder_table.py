#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
ladder_table.py [RESULTS...] [--peers RESULTS...] [--store FILE] [--peer-store FILE] [--readme FILE] [--inference FILE]
                [--picture FILE]

Takes the rows that ladder_measure.py has measured (`scripts/gpu-check ladder-table` and `ladder-peers` run it on a machine
with a GPU) into the stores examples/resnet/ladder-table.json and ladder-peers.json. From all rows it makes the tables and
the picture of docs/measured/training-ladder.md and docs/measured/inference-ladder.md. If several RESULTS have a row that was
measured under the same conditions, the row gets the runs of all of them. RESULTS replace the rows of another commit. Rows
that they lack stay, marked with their commit. Rows of another machine or driver are removed. A peer's row in a later file
replaces one in an earlier file. It needs no GPU. Without Python's matplotlib (scripts/setup full gets it) it says so and
leaves the picture as it is.
"""

import argparse
import functools
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import re
import statistics
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import measured_page
from measured_page import number

EXAMPLE = ROOT / "examples/resnet"
BEGIN, END = "<!-- ladder-table: made by scripts/gpu_check/ladder_table.py -->", "<!-- ladder-table: end -->"
NOTHING = "Not measured yet on today's program. `scripts/gpu-check ladder-table` measures it."
GAIN = "*Gain* is on the rung in the column *after*, where that one has a row"
TITLES = {"resnet8": "ResNet-8", "resnet18": "ResNet-18", "resnet50": "ResNet-50"}


def script(path):
    """Loads a program of examples/resnet as a module."""
    loader = importlib.machinery.SourceFileLoader(path.replace("/", "_"), str(EXAMPLE / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@functools.cache
def ladder():
    return script("train/ladder")


@functools.cache
def inference_ladder():
    return script("infer/ladder")


# ---- The stores -----------------------------------------------------------------------------------


def key(row):
    return row["model"], row["side"], row["rung"], row.get("setting", "")


@functools.cache
def places():
    """Returns the place of each rung in its ladder."""
    train = [ladder().number_of(name) for name in dict.fromkeys([*ladder().RUNGS, *ladder().IMAGE_RUNGS])]
    return {rung: place for place, rung in enumerate([*train, *(rung[0] for rung in inference_ladder().RUNGS)])}


def order(row):
    model, side, rung, setting = key(row)
    return setting, model, side, places().get(rung, 1000), rung


def merge(*lists):
    rows = {}
    for row in (row for rows_of_one in lists for row in rows_of_one):
        rows[key(row)] = row
    return sorted(rows.values(), key=order)


FIGURES = ("images_per_second", "batch_ms", "load_ms", "copy_ms", "compute_ms", "idle", "bound", "bound_ms", "device_bytes",
           "skipped_steps", "first_loss", "last_loss")  # fmt: skip


def figures(row):
    """Returns the members of a row that differ from run to run."""
    return {name: row[name] for name in FIGURES if name in row}


def load(path):
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return [{**row, "runs": [figures(run) for run in row["runs"]]} if "runs" in row else row for row in rows]


def save(path, rows):
    measured_page.replace(path, json.dumps({"rows": rows}, indent=1) + "\n")


def conditions(row):
    """Returns the members that must be equal in two runs of the same measurement."""
    return {name: row.get(name) for name in ("machine", "driver", "cores", "commit", "batch", "steps", "image_size", "workers")}


def joined(row, before):
    """Returns the row with the runs of both, each once, and the figures of their median."""
    if before is None or "runs" not in row or "runs" not in before or conditions(row) != conditions(before):
        return row
    runs = before["runs"] + [run for run in row["runs"] if run not in before["runs"]]
    middle = statistics.median_low(run["images_per_second"] for run in runs)
    chosen = next(run for run in runs if run["images_per_second"] == middle)
    return {**row, **chosen, "all": [run["images_per_second"] for run in runs], "runs": runs}


def origin(row):
    return row["machine"], row["driver"], row["commit"]


def kept(row, rows):
    """Returns the row of an older commit with the speeds of that commit to which it is compared."""
    if "kept" in row:
        return row
    beside = {other["rung"]: other["images_per_second"] for other in rows
              if key(other)[:2] + key(other)[3:] == key(row)[:2] + key(row)[3:] and origin(other) == origin(row) and "failed" not in other}  # fmt: skip
    return {**row, "kept": {rung: beside[rung] for rung in (row.get("after"), "T1", "I1") if rung in beside}}


def updated(store, results):
    """Returns the store's rows after the results were added. It removes rows of another machine or driver than that of the last
    result, and rows of another commit which the results have. Rows of another commit which they lack stay."""
    news = [row for rows in results for row in rows]
    if not news:
        return merge(store)
    rows = {}
    for row in [*store, *news]:
        if origin(row) == origin(news[-1]):
            rows[key(row)] = joined(row, rows.get(key(row)))
    older = [kept(row, store) for row in store if key(row) not in rows and origin(row)[:2] == origin(news[-1])[:2] and "failed" not in row]
    return merge(older, rows.values())


# ---- Tables ---------------------------------------------------------------------------------------


def lines_of(head, rows):
    """Returns the lines of a table, without the columns in which no row has a value."""
    kept = [column for column in range(len(head)) if not rows or any(row[column] != "–" for row in rows)]
    lines = [[line[column] for column in kept] for line in (head, ["---", *["---:"] * (len(head) - 1)], *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measured(rows, model, side, setting=""):
    return {row["rung"]: row for row in rows if key(row)[:2] + key(row)[3:] == (model, side, setting) and "failed" not in row}


def spread(row):
    low, high = min(row["all"]), max(row["all"])
    return f"{number(low)} to {number(high)}" if low < high else "one run"


def percent(speed, before):
    return f"{100 * (speed / before - 1):+.1f} %"


def speed_of(rung, row, rows):
    """Returns the speed of a rung at the commit of the row, or None."""
    if "kept" in row:
        return row["kept"].get(rung)
    return rows[rung]["images_per_second"] if rung in rows and "kept" not in rows[rung] else None


def gain(row, rows):
    """Returns the gain over the rung that it changes."""
    before = speed_of(row["after"], row, rows)
    return percent(row["images_per_second"], before) if before else "–"


def times(row, first, rows):
    """Returns the speed as a multiple of that of the ladder's first rung."""
    before = speed_of(first, row, rows)
    return f"{row['images_per_second'] / before:.2f}" if before else "–"


def title(row):
    return f"{row['rung']} {row['name']}{' †' if 'kept' in row else ''}"


def memory(row):
    return f"{row['device_bytes'] / 2**30:.2f}"


def published(rung):
    text = ladder().published(rung)
    return re.sub(r"^([^*]+)", r"\1 %", text).replace("*", "\\*") if text else "–"


def train_cells(row, rows):
    speed = row["images_per_second"]
    return [title(row), row["after"] or "–", str(row["batch"]), number(speed), spread(row), gain(row, rows),
            published(row["rung"]), times(row, "T1", rows),
            number(row["load_ms"]), number(row["copy_ms"]), number(row["compute_ms"]), f"{100 * row['idle']:.1f} %",
            memory(row)]  # fmt: skip


TRAIN_HEAD = ["rung", "after", "batch", "images/s", "lowest to highest", "gain", "published", "x T1", "load ms", "copy ms",
              "compute ms", "idle", "memory GiB"]  # fmt: skip


def train_table(rows):
    return lines_of(TRAIN_HEAD, [train_cells(row, rows) for row in rows.values()])


INFER_HEAD = ["rung", "after", "requests", "a request, ms", "images/s", "lowest to highest", "gain", "published", "x I1",
              "load ms", "copy ms", "compute ms", "bound", "memory GiB"]  # fmt: skip


def infer_cells(row, rows):
    speed = row["images_per_second"]
    gained = inference_ladder().published_gain(row["rung"], row["after"])
    return [title(row), row["after"] or "–", ", ".join(map(str, row["requests"])), number(row["batch_ms"]),
            number(speed), spread(row), gain(row, rows), f"{gained} %" if gained else "–",
            times(row, "I1", rows), number(row["load_ms"]),
            number(row["copy_ms"]), number(row["compute_ms"]), f"{row['bound']}, {100 * row['bound_ms'] / row['batch_ms']:.0f} %",
            memory(row)]  # fmt: skip


def infer_table(rows):
    return lines_of(INFER_HEAD, [infer_cells(row, rows) for row in rows.values()])


def part(rows, letter):
    """Returns the rows of one ladder."""
    return {rung: row for rung, row in rows.items() if rung[0] == letter}


def machine_text(row):
    return (f"One {row['machine']} ({row['cores']} CPU cores, {row['workers']} of them load; driver {row['driver']}), commit "
            f"{row['commit']}, {row['date']}")  # fmt: skip


def newest(rows):
    """Returns a row of the table's own commit."""
    return next((row for row in rows if "kept" not in row), rows[0])


def marks(rows):
    """Returns the note that says from which commit the marked rows are, or nothing."""
    older = sorted({(row["commit"], row["date"]) for row in rows if "kept" in row})
    return "".join(f"\n† of commit {commit}, {date}: its gain and its multiple of the first rung are on rows of that commit." for commit, date in older)


def how_often(rows):
    counts = sorted({len(row["all"]) for row in rows})
    if counts[-1] == 1:
        return "One run each"
    several = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"Medians of {several} runs{' (of two, the slower)' if 2 in counts else ''}"


def settings(rows, letter):
    """Yields (name, rows) of the settings that have rungs of the ladder."""
    for setting in dict.fromkeys(row.get("setting", "") for row in rows):
        its = part({row["rung"]: row for row in rows if row.get("setting", "") == setting and "failed" not in row}, letter)
        if setting and its:
            yield setting, its


def markdown(rows, peers, picture):
    """Returns the text for the training ladder's page."""
    good = [row for row in rows if "failed" not in row and row["rung"][0] == "T"]
    parts = [NOTHING]
    if good:
        notes = ladder().published_note([row["rung"] for row in good]).replace("*", "\\*", 1)
        parts = [f"{how_often(good)}. {machine_text(newest(good))}. {newest(good)['with']}. {GAIN}; "
                 f"*memory* is what the run takes of the device.\n{notes}.{marks(good)}"]  # fmt: skip
        if picture:
            parts.append(f"![Images/s of each rung]({picture})")
        for model in dict.fromkeys(row["model"] for row in good):
            its = part(measured(rows, model, "penstock"), "T")
            if its:
                parts.append(f"### {TITLES.get(model, model)}, {next(iter(its.values()))['image_size']} x "
                             f"{next(iter(its.values()))['image_size']}\n\n{train_table(its)}")  # fmt: skip
        for setting, its in settings(rows, "T"):
            first = next(iter(its.values()))
            parts.append(f"### {TITLES.get(first['model'], first['model'])}, {setting}\n\n{train_table(its)}")
    if peers:
        parts.append(peer_markdown(peers))
    return "\n\n".join(parts)


def inference_markdown(rows):
    """Returns the text for the inference ladder's page."""
    good = [row for row in rows if "failed" not in row and row["rung"][0] == "I"]
    if not good:
        return NOTHING
    parts = [f"{how_often(good)}. {machine_text(newest(good))}. {newest(good)['with']}. {GAIN}.{marks(good)}"]
    for model in dict.fromkeys(row["model"] for row in good):
        its = part(measured(rows, model, "penstock"), "I")
        if its:
            parts.append(f"### {TITLES.get(model, model)}, batches of {next(iter(its.values()))['batch']}\n\n{infer_table(its)}")
    for setting, its in settings(rows, "I"):
        first = next(iter(its.values()))
        parts.append(f"### {TITLES.get(first['model'], first['model'])}, {setting}\n\n{infer_table(its)}")
    return "\n\n".join(parts)


# ---- PyTorch's side -------------------------------------------------------------------------------


def trained_on_nan(row):
    return not math.isfinite(row.get("last_loss") or 0)


def peer_speed(row):
    return number(row["images_per_second"]) + (", loss NaN" if trained_on_nan(row) else "")


def same_call(row, other):
    return origin(row) == origin(other) and row["batch"] == other["batch"]


def peer_pairs(rows, model):
    """Returns (rung, ours, PyTorch's), both of the same machine and commit."""
    ours, theirs = measured(rows, model, "penstock"), measured(rows, model, "pytorch")
    return [(rung, row, theirs[rung]) for rung, row in ours.items() if rung in theirs and same_call(row, theirs[rung])]


def peer_table(rows, model):
    lines = [[f"{rung} {ours['name']}", str(ours["batch"]), number(ours["images_per_second"]), peer_speed(theirs),
              f"{ours['images_per_second'] / theirs['images_per_second']:.2f}", ours["machine"], ours["commit"], ours["date"]]
             for rung, ours, theirs in peer_pairs(rows, model)]  # fmt: skip
    table = lines_of(["rung", "batch", "ours, images/s", "PyTorch, images/s", "ours / PyTorch", "machine", "commit", "date"], lines)
    return "\n".join([table, *best_lines(rows, model)])


def best_lines(rows, model):
    """Returns a line for each way of compiling PyTorch, with its data on the device from the start, and a line with the ratio of ours
    to the best of them that is of the same machine."""
    lines, speeds = [], []
    last = measured(rows, model, "penstock").get("T14")
    for row in rows:
        if (row["model"], row["side"]) != (model, "pytorch") or row["rung"] not in ("best", "max-autotune"):
            continue
        mode = "default" if row["rung"] == "best" else "max-autotune"
        if "failed" in row:
            lines.append(f"- PyTorch, `torch.compile` {mode}: {row['failed']}.")
            continue
        if last and origin(row) == origin(last):
            speeds.append(row["images_per_second"])
        lines.append(f"- PyTorch, `torch.compile` {mode}, one batch of {row['batch']} that lies on the device: "
                     f"{number(row['images_per_second'])} images/s{', loss NaN' if trained_on_nan(row) else ''}.")  # fmt: skip
    if speeds:
        ratio = last["images_per_second"] / max(speeds)
        lines.append(f"- T14, which loads its data, over the best of these: {ratio:.2f}.")
    return ["", *lines] if lines else []


def peer_markdown(rows):
    good = [row for row in rows if "failed" not in row]
    text = ("### Beside PyTorch\n\nMedians of three runs. PyTorch's rung has the same optimization and batch: eager up to T6, "
            "`torch.compile` (default) from T7 on, autocast\nto float16 from T8 on, `channels_last` from T9 on. Both of a row "
            f"are of one call. {'; '.join(sorted({row['with'] for row in good}))}.")  # fmt: skip
    if any(trained_on_nan(row) for row in good):
        text += ("\n\n*Loss NaN*: PyTorch's loss had become NaN, so that GradScaler skipped its steps. PyTorch 2.11 gives the "
                 "momentum of fused SGD no value\nwhen the first step is skipped, and reads it in the second. The peers now "
                 "begin with a momentum of zero, and a loss that is not finite is a failure.")  # fmt: skip
    parts = [text]
    for model in dict.fromkeys(row["model"] for row in good):
        parts.append(f"{TITLES.get(model, model)}:\n\n{peer_table(rows, model)}")
    return "\n\n".join(parts)


# ---- The picture ----------------------------------------------------------------------------------


def draw(rows, path):
    """Draws bars for the training ladder of each model. Returns False without matplotlib."""
    plt = measured_page.pyplot()
    if plt is None:
        return False
    ladders = {model: its for model in dict.fromkeys(row["model"] for row in rows)
               if (its := part(measured(rows, model, "penstock"), "T"))}  # fmt: skip
    heights = [len(its) for its in ladders.values()]
    figure, panels = plt.subplots(len(ladders), squeeze=False, figsize=(9, 0.4 * sum(heights) + 1.3 * len(ladders)),
                                  height_ratios=heights)  # fmt: skip
    for (axes,), (model, its) in zip(panels, ladders.items()):
        speeds = [row["images_per_second"] for row in its.values()]
        bars = axes.barh([title(row) for row in its.values()], speeds, color="#4c78a8")
        axes.bar_label(bars, [number(speed) for speed in speeds], padding=4)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.15 * max(speeds))
        axes.set_xlabel("images/s")
        axes.set_title(f"{TITLES.get(model, model)}, {next(iter(its.values()))['machine']}")
        axes.spines[["top", "right"]].set_visible(False)
    measured_page.save_picture(figure, path)
    return True


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("results", type=pathlib.Path, nargs="*")
    parser.add_argument("--peers", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--store", type=pathlib.Path, default=EXAMPLE / "ladder-table.json")
    parser.add_argument("--peer-store", type=pathlib.Path, default=EXAMPLE / "ladder-peers.json")
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "docs/measured/training-ladder.md")
    parser.add_argument("--inference", type=pathlib.Path, default=ROOT / "docs/measured/inference-ladder.md")
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs/measured/ladder-table.svg")
    option = parser.parse_args()
    for path in [*option.results, *option.peers]:
        if not path.exists():
            sys.exit(f"ladder_table.py: there is no {path}")
    rows = updated(load(option.store), [load(path) for path in option.results])
    peers = merge(load(option.peer_store), *(load(path) for path in option.peers))
    if option.results:
        save(option.store, rows)
    if option.peers:
        save(option.peer_store, peers)
    good = any("failed" not in row and row["rung"][0] == "T" and not row.get("setting") for row in rows)
    if good:
        draw(rows, option.picture)
    has_picture = good and option.picture.exists()
    text = markdown(rows, peers, option.picture.name if has_picture else "")
    for page, new in ((option.readme, text), (option.inference, inference_markdown(rows))):
        page.write_text(measured_page.between_markers(page, page.read_text(), BEGIN, END, new))
    return 0


if __name__ == "__main__":
    sys.exit(main())
