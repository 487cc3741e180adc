# SPDX-License-Identifier: Apache-2.0
"""Functions for the pages of measured figures: they replace stores atomically, replace text between markers, format numbers and
save pictures."""

import os
import re
import sys


def number(value):
    """Returns the number as text with at least three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def replace(path, text):
    """Writes a file beside `path` and renames it, so that a run which is stopped leaves the old file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)


def between_markers(page, text, begin, end, new):
    """Returns `text`, which is that of the file `page`, with `new` between the lines `begin` and `end`."""
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        sys.exit(f"{page} does not have these two lines exactly once: {begin} {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{new}\n\n{end}", text)


def pyplot(**settings):
    """Returns matplotlib.pyplot with settings that make the same bytes of SVG from the same data. Prints a message and returns None
    if there is no matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print(f"no picture: {sys.executable} has no matplotlib (scripts/setup full gets it: python3-matplotlib)")
        return None
    matplotlib.use("Agg")
    matplotlib.rcdefaults()  # without what an earlier picture has set
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "penstock", **settings})
    import matplotlib.pyplot

    return matplotlib.pyplot


def save_picture(figure, path, top=0):
    """Saves the picture without the date, so that the bytes are the same each time. `top` is the free space above the panels in
    inches."""
    figure.tight_layout(rect=(0, 0, 1, 1 - top / figure.get_figheight()) if top else None)
    figure.savefig(path, metadata={"Date": None})
