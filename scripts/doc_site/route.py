# SPDX-License-Identifier: Apache-2.0
"""Draws docs/route.svg, the route of a batch. Its colours are CSS classes, so it is dark if the reader's screen is."""

TITLE = ("The route of a batch: sampler, workers, pinned ring, copy stream, device slots, consumer stream, and the two "
         "ways back")  # fmt: skip
WIDTH, HEIGHT = 1120, 430

# class: light, dark
COLOURS = {
    "page": ("#ffffff", "#131416"), "host": ("#f3f6f9", "#1f262d"), "gpu": ("#eef7f1", "#1a2a21"),
    "box": ("#ffffff", "#2b343c"), "stream": ("#e0f2e9", "#244534"), "free": ("#eceff1", "#2b343c"),
    "ready": ("#cfd8dc", "#455a64"), "slot": ("#c8e6c9", "#2e6b45"), "leased": ("#a5d6a7", "#3b8457"),
    "text": ("#263238", "#eceff1"), "on-host": ("#455a64", "#b0bec5"), "on-gpu": ("#2e7d32", "#a5d6a7"),
    "way-back": ("#00695c", "#80cbc4"),
}  # fmt: skip
LINES = {"line": ("#37474f", "#b0bec5"), "back": ("#00796b", "#80cbc4")}

AREAS = [(16, 16, 560, 398, "host", "host threads"), (590, 16, 514, 398, "gpu", "GPU streams")]
BOXES = [
    (36, 160, 104, 70, "box", "Sampler", "Ticket"),
    (186, 96, 150, 50, "box", "worker", "source fills a batch"),
    (186, 170, 150, 50, "box", "worker", "source fills a batch"),
    (186, 244, 150, 50, "box", "worker", "source fills a batch"),
    (640, 160, 140, 70, "stream", "copy stream", "one copy a batch"),
    (950, 160, 134, 70, "stream", "your stream", "your kernels"),
]
# x, y, width, height of a cell; what stands above and below; class and text of each cell
STACKS = [
    (414, 120, 120, 30, "pinned ring", "host_depth blocks",
     [("ready", "batch 7"), ("ready", "batch 8"), ("free", ""), ("free", ""), ("free", "")]),
    (830, 155, 82, 40, "device slots", "device_depth", [("leased", "batch 5"), ("slot", "batch 6")]),
]  # fmt: skip
ARROWS = [
    "M140 185 C160 170 162 126 184 122", "M140 195 H184", "M140 205 C160 220 162 264 184 268",
    "M336 121 C372 124 380 150 412 158", "M336 195 H412", "M336 269 C372 266 380 236 412 228",
    "M534 195 H638", "M780 195 H828", "M912 195 H948",
]  # fmt: skip
WAYS_BACK = ["M710 230 C706 336 540 352 476 304", "M1017 230 C1010 360 740 372 716 234"]
NOTES = [
    (470, 364, ["the block goes back at once; its next", "writer waits for the event “copied”"]),
    (812, 352, ["lease ends: the slot goes back at once;", "the copy stream waits for “consumed”,", "the host waits for nothing"]),
]


def style():
    def rules(shade):
        fills = [f".{name}{{fill:{pair[shade]}}}" for name, pair in COLOURS.items()]
        return "".join(fills + [f".{name}{{stroke:{pair[shade]}}} .{name}-tip{{fill:{pair[shade]}}}" for name, pair in LINES.items()])

    return ["<style>", "text{font-size:13px} .head{font-size:15px;font-weight:bold} .middle{text-anchor:middle}",
            ".line,.back{stroke-width:1.5}", rules(0), f"@media (prefers-color-scheme: dark){{{rules(1)}}}", "</style>"]  # fmt: skip


def rectangle(x, y, width, height, classes, radius=0):
    corners = f' rx="{radius}"' if radius else ""
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}"{corners} class="{classes}"/>'


def text(x, y, words, classes):
    return f'<text x="{x}" y="{y}" class="{classes}">{words}</text>'


def path(shape, kind, dashes=""):
    return f'<path d="{shape}" fill="none" class="{kind}" marker-end="url(#{kind}-tip)"{dashes}/>'


def tip(kind):
    return (f'<marker id="{kind}-tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            f'orient="auto"><path d="M0 0 10 5 0 10z" class="{kind}-tip"/></marker>')  # fmt: skip


def draw():
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             f'font-family="Helvetica, Arial, sans-serif" role="img" aria-label="{TITLE}">',
             "<!-- drawn by scripts/doc_site/route.py -->", *style(),
             "<defs>", *(tip(kind) for kind in LINES), "</defs>", rectangle(0, 0, WIDTH, HEIGHT, "page")]  # fmt: skip
    for x, y, width, height, kind, title in AREAS:
        parts += [rectangle(x, y, width, height, kind, 14), text(x + 20, y + 30, title, f"head on-{kind}")]
    for x, y, width, height, kind, head, below in BOXES:
        middle = x + width / 2
        parts += [rectangle(x, y, width, height, f"{kind} line", 8),
                  text(f"{middle:g}", f"{y + height / 2 - 4:g}", head, "head text middle"),
                  text(f"{middle:g}", f"{y + height / 2 + 15:g}", below, "text middle")]  # fmt: skip
    for x, y, width, height, above, below, cells in STACKS:
        middle, end = x + width / 2, y + height * len(cells)
        parts += [text(f"{middle:g}", y - 14, above, "head text middle"), text(f"{middle:g}", end + 22, below, "text middle")]
        for i, (kind, words) in enumerate(cells):
            parts.append(rectangle(x, y + i * height, width, height, f"{kind} line"))
            if words:
                parts.append(text(f"{middle:g}", f"{y + (i + 0.5) * height + 5:g}", words, "text middle"))
    parts += [path(shape, "line") for shape in ARROWS]
    parts.append(text(586, 184, "in order", "on-host middle"))
    parts += [path(shape, "back", ' stroke-dasharray="6 4"') for shape in WAYS_BACK]
    for x, y, lines in NOTES:
        parts += [text(x, y + 17 * i, line, "way-back") for i, line in enumerate(lines)]
    return "\n".join([*parts, "</svg>", ""])
