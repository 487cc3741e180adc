# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration. build.py sets PENSTOCK_DOCS_NAMES to a file that has a public name on each line."""

import os
import pathlib
import re

from docutils import nodes
from sphinx.addnodes import pending_xref

ROOT = pathlib.Path(__file__).resolve().parents[2]
project = "penstock"
release = ".".join(re.findall(r"^#define PENSTOCK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$",
                              (ROOT / "include/penstock/version.hpp").read_text(), re.MULTILINE))  # fmt: skip
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6
smartquotes = False  # -- is an option
highlight_language = "cpp"
suppress_warnings = ["misc.highlighting_failure"]  # <what you have> in a command, an apostrophe in a text
primary_domain = "cpp"
cpp_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
html_theme = "furo"
html_title = f"penstock {release}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["penstock.css"]
html_search_scorer = str(pathlib.Path(__file__).with_name("scorer.js"))
html_theme_options = {"navigation_with_keys": True}

NAMES = {}  # as pages write it -> as the reference does
for line in pathlib.Path(os.environ["PENSTOCK_DOCS_NAMES"]).read_text().split():
    NAMES[line] = NAMES[line.removeprefix("penstock::")] = line


def link_names(app, doctree):
    """Makes links to the reference of names in a page, such as `Prefetcher`, `Layout<Batch>` and `penstock::per_sample(f)`."""
    page = app.env.docname
    if page.startswith("sources/"):
        return
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, (nodes.reference, pending_xref)) or any(isinstance(p, nodes.title) for p in parents(literal)):
            continue
        text = literal.astext()
        name = NAMES.get(re.sub(r"[<(].*", "", text, flags=re.DOTALL))
        plain = re.fullmatch(r"[a-z]+", text) is not None  # a word, which may mean something else
        if name is None or plain:
            continue
        link = pending_xref("", literal.deepcopy(), refdomain="cpp", reftype="any", reftarget=name, refdoc=page,
                            refexplicit=True, refwarn=False)  # fmt: skip
        link["cpp:parent_key"] = None
        literal.replace_self(link)


def parents(node):
    while node.parent is not None:
        node = node.parent
        yield node


def setup(app):
    app.connect("doctree-read", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
