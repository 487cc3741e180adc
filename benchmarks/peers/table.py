#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
table.py: makes the tables of docs/measured/peers.md from measured.json, which `run` beside it has written, and from the results of other
machines beside that (measured-*.json), and the picture docs/measured/peers.svg from the first. `run --table` does the same.
"""

import argparse
import json
import math
import pathlib
import re
import sys
import textwrap

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/peers/beside"), str(ROOT / "scripts")]
import measured_page
from measure import PARTS, STORAGE, TASKS
from peers import PEERS

STORE, PAGE, PICTURE = ROOT / "benchmarks/peers/measured.json", ROOT / "docs/measured/peers.md", ROOT / "docs/measured/peers.svg"
BEGIN, END = "<!-- peers: made by benchmarks/peers/table.py -->", "<!-- peers: end -->"
NOTHING = "Not measured yet. `benchmarks/peers/run` measures it."
OURS = "penstock"
# Why penstock is not first, where that happens.
NOTES = {
    "jpeg_folder": "Who is faster decodes with another library, or resizes by another rule: \"How each is set up\" says which.",
    "loop": "oneTBB calls the consumer on the thread that filled the batch. penstock hands each batch to the thread of the loop, in "
            "a block of memory that a copy may still read, with a ticket that names its samples.",
    "records_cold": "Cold reads are the disk's. FFCV, TensorFlow and LitData read long runs and shuffle within a window; a mapped file is read "
                    "ahead by the system. A turn is an epoch with its start, in which FFCV compiles.",
    "records_cached": "`RecordFile` calls pread for each record; a mapped file needs no call.",
}  # fmt: skip


# ---- The store ---------------------------------------------------------------------------------------


def load(path):
    return json.loads(path.read_text())["rows"] if path.exists() else []


def save(path, rows):
    """In the order of the tables."""
    tasks, names = list(TASKS), list(PEERS)
    rows = sorted(rows, key=lambda row: (tasks.index(row["task"]), names.index(row["peer"])))
    lines = ",\n ".join(json.dumps(rounded(row)) for row in rows)
    measured_page.replace(path, f'{{"rows": [\n {lines}\n]}}\n')


def add(path, rows):
    """Replaces what the store has of these peers at these tasks."""
    new = {(row["task"], row["peer"]) for row in rows}
    save(path, [row for row in load(path) if (row["task"], row["peer"]) not in new] + rows)


def rounded(value):
    """With five digits: more would not come again."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return {key: rounded(one) for key, one in value.items()} if isinstance(value, dict) else value


# ---- Figures ------------------------------------------------------------------------------------------


def median(values):
    return sorted(values)[len(values) // 2]


def number(value):
    """Large ones in millions."""
    return f"{value / 1e6:,.1f} M" if value >= 1e7 else measured_page.number(value)


def spread(values):
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def good(rows, task):
    return [row for row in rows if row["task"] == task and "rates" in row]


def decides(task):
    """What the peers are compared by: where they wait for sleeps or for the disk, a core's work says nothing."""
    return "rates" if task in ("storage", "slow_sample", "jpeg_folder_cold", "records_cold") else "a_core"


def figure(row):
    return median(row[decides(row["task"])])


def of_ours(rows, task):
    return next((row for row in good(rows, task) if row["peer"] == OURS), None)


def ratio(ours, theirs):
    if not ours or not theirs:
        return ""
    return f"{ours / theirs:.2f}" if ours < 100 * theirs else f"{ours / theirs:,.0f}"


# ---- The page -----------------------------------------------------------------------------------------


def table(head, lines):
    rule = [":---" if i < head.count("") or i == 0 else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def against(ours, peers, what):
    """Ours, the best of the peers, and the ratio, by "rates" or by "a_core"; the ratio is bold where a peer is first."""
    best = max(peers, key=lambda row: median(row[what]))
    us, it = median(ours[what]), median(best[what])
    share = ratio(us, it)
    return [number(us), f"{number(it)}, {PEERS[best['peer']]['title']}", f"**{share}**" if us < it else share]


def summary(rows):
    """A line for each task: ours beside the best of the peers; all cores together, and by what a core's time brings."""
    lines = []
    for task, about in TASKS.items():
        ours = of_ours(rows, task)
        peers = [row for row in good(rows, task) if row["peer"] != OURS]
        if not ours or not peers:
            continue
        title = f"{about['title']}; {about['unit']}" + ("" if task == "storage" else "/s")
        core = against(ours, peers, "a_core") if decides(task) == "a_core" else [""] * 3
        lines.append([title, *against(ours, peers, "rates"), *core])
    share = "penstock / it"
    return table(["task; unit", "penstock", "best peer", share, "penstock, a core", "best peer, a core", share], lines)


def told(setting):
    return ", ".join(name if value is True else f"{name} {value}" for name, value in setting.items() if value is not False)


def details(rows, task):
    ours, lines = of_ours(rows, task), []
    for row in sorted(good(rows, task), key=figure, reverse=True):
        title = PEERS[row["peer"]]["title"]
        core = [number(median(row["a_core"])), ratio(median(ours["a_core"]), median(row["a_core"])) if ours else "",
                number(1000 * median(row["first"])), number(median(row["memory"]) / 2**20)] if "a_core" in row else []
        lines.append([f"**{title}**" if row is ours else title, number(median(row["rates"])), spread(row["rates"]), *core,
                      told(row["setting"])])  # fmt: skip
    unit = TASKS[task]["unit"]
    head = ["", unit + ("" if task == "storage" else "/s"), "lowest to highest"]
    if task != "storage":
        head += [f"{unit}/s a core", "penstock / it, a core", "first batch, ms", "memory, MiB"]
    text = f"#### {TASKS[task]['title']}\n\n{table([*head, 'setting'], lines)}"
    by = {"rates", decides(task)}
    if ours and any(median(row[what]) > median(ours[what]) for row in good(rows, task) for what in by) and task in NOTES:
        text += f"\n\n{NOTES[task]}"
    absent = [f"- {PEERS[row['peer']]['title']}: {row.get('missing') or row['failed']}." for row in rows
              if row["task"] == task and "rates" not in row]  # fmt: skip
    return text + ("\n\nWithout a figure:\n\n" + "\n".join(absent) if absent else "")


def origins(rows):
    """Where, of what commit and when, with the tasks if that differs."""
    found = {}
    for row in rows:
        where = (row["machine"], row["cores"], row["commit"], row["date"], row["repeat"])
        found.setdefault(where, []).append(row)
    for (machine, cores, commit, date, repeat), its in found.items():
        text = f"{machine}, {cores} cores, commit {commit}, {date}; medians of {repeat} turns"
        if len(found) > 1:
            others = {row["task"] for row in rows if row not in its}
            text += ": " + ", ".join(dict.fromkeys(row["task"] + (f" {row['peer']}" if row["task"] in others else "") for row in its))
        yield f"- {text}."
    for peer in PEERS:
        software = sorted({row["with"] for row in rows if row["peer"] == peer and "with" in row})
        if software and peer != OURS:
            yield f"- {PEERS[peer]['title']}: {'; '.join(software)}."


def section(rows, picture):
    """The tables of one machine."""
    measured = [task for task in TASKS if good(rows, task)]
    parts = [f"### {rows[0]['machine']}, {rows[0]['cores']} cores", summary(rows)]
    if picture:
        parts.append(f"![What each loader delivers, by task]({picture})")
    return "\n\n".join([*parts, *(details(rows, task) for task in measured), "\n".join(origins(rows))])


def markdown(stores, picture):
    """`stores`: the rows of each machine."""
    stores = [rows for rows in stores if any(good(rows, task) for task in TASKS)]
    sections = [section(rows, "" if i else picture) for i, rows in enumerate(stores)]
    return "\n\n".join(sections) or NOTHING


def all_stores(first):
    """What that of this machine holds, and those of others beside it."""
    return [load(first)] + [load(path) for path in sorted(first.parent.glob("measured-*.json")) if path != first]


def put_between_markers(path, text):
    """A page that is not there is made."""
    old = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    path.write_text(measured_page.between_markers(path, old, BEGIN, END, text))


# ---- The picture --------------------------------------------------------------------------------------


def draw(rows, path):
    """A panel for each task, a bar for each peer. False without matplotlib."""
    plt = measured_page.pyplot(**{"font.size": 8})
    if plt is None:
        return False
    tasks = [task for task in TASKS if good(rows, task)]
    figure_, panels = plt.subplots((len(tasks) + 2) // 3, 3, squeeze=False, figsize=(12, 2.4 * ((len(tasks) + 2) // 3)))
    for axes in panels.flat[len(tasks) :]:
        axes.set_visible(False)
    for axes, task in zip(panels.flat, tasks):
        draw_task(axes, rows, task)
    measured_page.save_picture(figure_, path)
    return True


def labels(values):
    """The numbers of a panel, in one unit."""
    if max(values) < 1e7:
        return [number(value) for value in values]
    unit, name = (1e6, "M") if min(values) >= 1e6 else (1e3, "k")
    return [f"{value / unit:,.{max(0, 2 - math.floor(math.log10(value / unit)))}f} {name}" for value in values]


def draw_task(axes, rows, task):
    its = sorted(good(rows, task), key=figure, reverse=True)
    values = [figure(row) for row in its]
    bars = axes.barh([PEERS[row["peer"]]["title"] for row in its], values,
                     color=["#4c78a8" if row["peer"] == OURS else "#bab0ac" for row in its])  # fmt: skip
    axes.bar_label(bars, labels(values), padding=3)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(values))
    axes.set_xticks([])
    by = TASKS[task]["unit"] + ("" if task == "storage" else "/s" if decides(task) == "rates" else "/s a core")
    title = re.sub(r"(\d) (\S+)", "\\1\u00a0\\2", TASKS[task]["title"])  # A number stays with its unit.
    axes.set_title(textwrap.fill(title, 46) + f"\n{by}", fontsize=8, loc="left")
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def make(store=STORE, page=PAGE, picture=PICTURE):
    rows = load(store)  # Of the first, as the picture has one machine.
    drawn = any(good(rows, task) for task in TASKS) and (draw(rows, picture) or picture.exists())
    put_between_markers(page, markdown(all_stores(store), picture.name if drawn else ""))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=pathlib.Path, default=STORE)
    parser.add_argument("--page", type=pathlib.Path, default=PAGE)
    parser.add_argument("--picture", type=pathlib.Path, default=PICTURE)
    parser.add_argument("--add", type=pathlib.Path, nargs="+", help="put these files' results into the store, and no more")
    option = parser.parse_args()
    if option.add:
        for path in option.add:
            add(option.store, load(path))
        return 0
    return make(option.store, option.page, option.picture)


if __name__ == "__main__":
    sys.exit(main())
