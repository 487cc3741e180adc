# SPDX-License-Identifier: Apache-2.0
"""Finds and checks links, both in the Markdown pages, as a code host shows them, and in the site."""

import html.parser
import pathlib
import re
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["docs", "examples", "benchmarks", "packaging", "tests", "scripts"]
NO_PAGE = {"tests/docs/examples/broken.md"}  # a test's
LINK = re.compile(r"(!?\[(?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*\])\(([^()\s]+)\)")


def pages():
    """Returns all Markdown pages, relative to the project's folder."""
    found = sorted(ROOT.glob("*.md")) + [page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md"))]
    names = [str(page.relative_to(ROOT)) for page in found]
    return [name for name in names if name not in NO_PAGE]


def prose(text):
    """Yields (number, line) of the lines that are no code. Spans of code become blanks."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r" *(```+)", line)
        if mark:
            fence = None if fence == mark[1] else fence or mark[1]
        elif fence is None:
            yield number, line


def links(text):
    """Yields (line, target) of each link and picture that is no URL."""
    for number, line in prose(text):
        hidden = re.sub(r"`[^`]*`", lambda span: "`" + "x" * (len(span[0]) - 2) + "`", line)
        for match in LINK.finditer(hidden):
            if not re.match(r"[a-z]+:", match[2]):
                yield number, match[2]


def slugs(text):
    """Returns the anchors of the headings, as GitHub and MyST make them."""
    found = set()
    for _, line in prose(text):
        heading = re.match(r"#{1,6} +(.*?) *#*$", line)
        if not heading:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
        slug = re.sub(r"[^\w\- ]", "", title.replace("`", "").replace("*", "").lower()).replace(" ", "-")
        name, count = slug, 0
        while name in found:
            count += 1
            name = f"{slug}-{count}"
        found.add(name)
    return found


def split(page, target):
    """Returns the path that a link of this page leads to, and the anchor."""
    path, _, anchor = urllib.parse.unquote(target).partition("#")
    there = (ROOT / page).parent / path if path else ROOT / page
    return pathlib.Path(re.sub(r"/+$", "", str(there))).resolve(), anchor


def check():
    """Returns lines for the user about links that lead nowhere."""
    texts = {page: (ROOT / page).read_text() for page in pages()}
    anchors = {page: slugs(text) for page, text in texts.items()}
    for page, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if re.match(r"\s*(```|:::)\{", line):
                yield f"{page}:{number}: no code host shows {line.strip()}, a directive of Sphinx"
        for line, target in links(text):
            there, anchor = split(page, target)
            if not there.exists():
                yield f"{page}:{line}: there is no {target}"
            elif not there.is_relative_to(ROOT):
                yield f"{page}:{line}: {target} is not in the project"
            elif anchor and there.suffix == ".md" and anchor not in anchors[str(there.relative_to(ROOT))]:
                yield f"{page}:{line}: {target}: the page has no such heading"


# ---- The site ---------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.targets = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.update(attributes[key] for key in ("id", "name") if attributes.get(key))
        for key in ("href", "src"):
            if attributes.get(key):
                self.targets.append(attributes[key])


def check_site(folder):
    """Returns lines for the user about links within the site that lead nowhere."""
    site = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in site.items():
        for target in page.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            name = path.relative_to(folder)
            if not there.is_file() or not there.is_relative_to(folder):
                yield f"{name}: there is no {target}"
            elif parts.fragment and there in site and urllib.parse.unquote(parts.fragment) not in site[there].ids:
                yield f"{name}: {target}: the page has no such anchor"
