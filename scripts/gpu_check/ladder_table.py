#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
ladder_table.py [RESULTS...] [--store FILE] [--readme FILE] [--picture FILE]

Takes rows that ladder_measure.py has measured (`scripts/gpu-check ladder-table` does it on a machine with a GPU) into
the store, examples/resnet/ladder-table.json, and makes from all of it the table and the picture of
examples/resnet/README.md. Of two rows for the same rung the later file's counts. Needs no GPU; without Python's
matplotlib (scripts/setup full gets it) it says so, and leaves the picture as it is.
"""

import argparse
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import measured_page
from measured_page import number

EXAMPLE = ROOT / "examples/resnet"
BEGIN, END = "<!-- ladder-table: made by scripts/gpu_check/ladder_table.py -->", "<!-- ladder-table: end -->"
NOTHING = "Not measured yet on today's program. `scripts/gpu-check ladder-table` measures it."
TITLES = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}


def ladder():
    """examples/resnet/train/ladder as a module."""
    path = str(EXAMPLE / "train/ladder")
    loader = importlib.machinery.SourceFileLoader("ladder", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("ladder", loader))
    loader.exec_module(module)
    return module


PUBLISHED = ladder().PUBLISHED


# ---- The store ------------------------------------------------------------------------------------


def key(row):
    return row["model"], row["side"], row["rung"]


def order(row):
    model, side, rung = key(row)
    return model, side, int(rung[1:]) if rung.startswith("T") else 100, rung


def merge(*lists):
    rows = {}
    for row in (row for rows_of_one in lists for row in rows_of_one):
        rows[key(row)] = row
    return sorted(rows.values(), key=order)


def load(path):
    return json.loads(path.read_text())["rows"] if path.exists() else []


def save(path, rows):
    measured_page.replace(path, json.dumps({"rows": rows}, indent=1) + "\n")


# ---- The table ------------------------------------------------------------------------------------


def measured(rows, model, side):
    return {row["rung"]: row for row in rows if (row["model"], row["side"]) == (model, side) and "failed" not in row}


def comparable(row, other):
    """Whether both are of one commit: else the ratio is not the rung's alone."""
    return bool(other) and row["commit"] == other["commit"]


def trained_on_nan(row):
    return not math.isfinite(row.get("last_loss") or 0)


def peer_speed(row):
    return number(row["images_per_second"]) + (", loss NaN" if trained_on_nan(row) else "")


def cells(row, before, first, peer):
    speed = row["images_per_second"]
    low, high = min(row["all"]), max(row["all"])
    gain = f"{100 * (speed / before['images_per_second'] - 1):+.1f} %" if comparable(row, before) else ""
    published = PUBLISHED.get(row["rung"], "")
    return [f"{row['rung']} {row['name']}", str(row["batch"]), number(speed), f"{number(low)} to {number(high)}", gain,
            f"{published} %" if published else "", f"{speed / first['images_per_second']:.2f}" if comparable(row, first) else "",
            peer_speed(peer) if peer else "", number(row["load_ms"]), number(row["copy_ms"]),
            number(row["compute_ms"]), f"{100 * row['idle']:.1f} %"]  # fmt: skip


HEAD = ["rung", "batch", "images/s", "lowest to highest", "gain", "published gain", "x T1", "PyTorch, images/s",
        "load ms", "copy ms", "compute ms", "idle"]  # fmt: skip


def before(rung, ours):
    """The rung that this one is compared with: the one below it, if it is measured (there is no T13). None for T15, which
    reads JPEG files and not records."""
    if rung == "T15":
        return None
    number_before = int(rung[1:]) - (2 if rung == "T14" else 1)
    return ours.get(f"T{number_before}")


def table(rows, model):
    ours, peers = measured(rows, model, "penstock"), measured(rows, model, "pytorch")
    lines = [HEAD, ["---", *["---:"] * (len(HEAD) - 1)]]
    for rung, row in ours.items():
        peer = peers.get(rung) if peers.get(rung, {}).get("batch") == row["batch"] else None
        lines.append(cells(row, before(rung, ours), ours.get("T1"), peer))
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([text, *best_lines(rows, model, ours)])


def best_lines(rows, model, ours):
    """PyTorch with its data on the device from the start, by how it was compiled; and ours over the best of them that is
    of the same machine."""
    lines, speeds = [], []
    last = list(ours.values())[-1] if ours else None
    machine = lambda row: (row["machine"], row["cores"], row["driver"])
    for row in rows:
        if (row["model"], row["side"]) != (model, "pytorch") or row["rung"] not in ("best", "max-autotune"):
            continue
        mode = "default" if row["rung"] == "best" else "max-autotune"
        if "failed" in row:
            lines.append(f"- PyTorch, `torch.compile` {mode}: {row['failed']}.")
            continue
        if last and machine(row) == machine(last):
            speeds.append(row["images_per_second"])
        lines.append(f"- PyTorch, `torch.compile` {mode}, one batch of {row['batch']} that lies on the device: "
                     f"{number(row['images_per_second'])} images/s{', loss NaN' if trained_on_nan(row) else ''}.")  # fmt: skip
    if speeds:
        ratio = last["images_per_second"] / max(speeds)
        lines.append(f"- {last['rung']}, which loads its data, over the best of these: {ratio:.2f}.")
    return ["", *lines] if lines else []


def origins(rows):
    """Where, of what commit and when, with the rungs if that differs."""
    found = {}
    for row in rows:
        if "failed" in row:
            continue
        where = (row["machine"], row["cores"], row["driver"], row["commit"], row["date"], row["workers"])
        found.setdefault(where, []).append(row)
    for (name, cores, driver, commit, date, workers), its in found.items():
        text = f"One {name} ({cores} CPU cores, {workers} of them load; driver {driver}), commit {commit}, {date}"
        if len(found) > 1:
            text += ": " + ", ".join(f"{TITLES.get(row['model'], row['model'])} {row['side']} {row['rung']}" for row in its)
        software = sorted({row["with"] for row in its})
        yield f"- {text}. {'; '.join(software)}."


def markdown(rows, picture):
    good = [row for row in rows if "failed" not in row]
    if not good:
        return NOTHING
    parts = ["Medians of three runs. *Gain* is over the rung before. *PyTorch* is its own rung with the same optimization "
             "and batch: eager up to\nT6, `torch.compile` (default) from T7 on, autocast to float16 from T8 on, "
             "`channels_last` from T9 on.\n\n" + "\n".join(origins(rows))]  # fmt: skip
    if any(trained_on_nan(row) for row in good):
        parts[0] += ("\n\n*Loss NaN*: PyTorch's loss had become NaN, so that GradScaler skipped its steps. PyTorch 2.11 gives the "
                     "momentum of fused SGD no value\nwhen the first step is skipped, and reads it in the second. The peers now "
                     "begin with a momentum of zero, and a loss that is not finite is a failure.")  # fmt: skip
    for model in dict.fromkeys(row["model"] for row in good):
        size = next(row["image_size"] for row in good if row["model"] == model)
        parts.append(f"### {TITLES.get(model, model)}, {size} x {size}\n\n{table(rows, model)}")
    if picture:
        parts.insert(1, f"![Images/s of each rung, and PyTorch's]({picture})")
    return "\n\n".join(parts)


# ---- The picture ----------------------------------------------------------------------------------


def draw(rows, path):
    """Bars for ours, a mark for PyTorch's rung, a line for its best. False without matplotlib."""
    plt = measured_page.pyplot()
    if plt is None:
        return False
    models = [model for model in dict.fromkeys(row["model"] for row in rows) if measured(rows, model, "penstock")]
    heights = [len(measured(rows, model, "penstock")) for model in models]
    figure, panels = plt.subplots(len(models), squeeze=False, figsize=(9, 0.4 * sum(heights) + 1.3 * len(models)),
                                  height_ratios=heights)  # fmt: skip
    for (axes,), model in zip(panels, models):
        draw_model(axes, rows, model)
    measured_page.save_picture(figure, path)
    return True


def draw_model(axes, rows, model):
    ours, peers = measured(rows, model, "penstock"), measured(rows, model, "pytorch")
    names = [f"{rung}  {row['name']}" for rung, row in ours.items()]
    speeds = [row["images_per_second"] for row in ours.values()]
    bars = axes.barh(names, speeds, color="#4c78a8", label="penstock")
    axes.bar_label(bars, [number(speed) for speed in speeds], padding=4)
    marks = [(peers[rung]["images_per_second"], name) for rung, name in zip(ours, names)
             if rung in peers and peers[rung]["batch"] == ours[rung]["batch"]]  # fmt: skip
    if marks:
        axes.plot(*zip(*marks), "D", color="#e45756", label="PyTorch")
    best = [peers[rung]["images_per_second"] for rung in ("best", "max-autotune") if rung in peers]
    if best:
        axes.axvline(max(best), color="#e45756", linestyle=":", label="PyTorch, its data on the device")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max(speeds + best + [mark[0] for mark in marks]))
    axes.set_xlabel("images/s")
    axes.set_title(f"{TITLES.get(model, model)}, {next(iter(ours.values()))['machine']}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right")  # The first rungs are the slowest.


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("results", type=pathlib.Path, nargs="*")
    parser.add_argument("--store", type=pathlib.Path, default=EXAMPLE / "ladder-table.json")
    parser.add_argument("--readme", type=pathlib.Path, default=EXAMPLE / "README.md")
    parser.add_argument("--picture", type=pathlib.Path, default=EXAMPLE / "ladder-table.svg")
    option = parser.parse_args()
    for path in option.results:
        if not path.exists():
            sys.exit(f"ladder_table.py: there is no {path}")
    rows = merge(load(option.store), *(load(path) for path in option.results))
    if option.results:
        save(option.store, rows)
    good = any("failed" not in row and row["side"] == "penstock" for row in rows)
    if good:
        draw(rows, option.picture)
    has_picture = good and option.picture.exists()
    text = markdown(rows, option.picture.name if has_picture else "")
    option.readme.write_text(measured_page.between_markers(option.readme, option.readme.read_text(), BEGIN, END, text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
