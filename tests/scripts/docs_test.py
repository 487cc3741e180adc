#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs_test.py SCRIPTS: what scripts/docs finds in a small project with one mistake of each kind, and what a page
of the reference has. Needs Doxygen (scripts/setup full)."""

import os
import pathlib
import shutil
import sys
import tempfile

SOURCES = pathlib.Path(sys.argv[1]).resolve() / "doc_site"

HEADER = """// SPDX-License-Identifier: Apache-2.0
#pragma once

// Box<T>: holds a value.
//
//   penstock::Box<int> box{1};
//
//   box.put(2);
//
// Not for *threads*; see docs/other.md and box.hpp, not docs/none.md.

namespace penstock {
namespace detail {
struct Hidden {};
}  // namespace detail

/// What can be put into a Box.
template <class T>
concept Puttable = requires(T t) { t + 1; };

struct NoDocstring {
  int zeroth{10'000};  ///< not the first
  int first = 0;       ///< the first
  /// The second, which
  /// takes two lines.
  int second = 0;
  int third = 0, fourth = 0;  ///< two at once
  int fifth = 0;
};

/// Holds a value.
template <class T>
class Box {
 public:
  Box() = default;
  Box(Box&& other) noexcept;
  Box& operator=(Box&&) noexcept;
  ~Box();
  explicit Box(T value);
  /// For the library itself.
  detail::Hidden hidden() const;
  /// Puts `value`; throws NoDocstring. See Box.
  [[gnu::always_inline]] void put(T value) requires Puttable<T>;
  /// `penstock::Box<T>` is `<new>` and a_b.
  static constexpr int size() noexcept;

 private:
  int secret();
};

inline namespace v1 {
/// Of no colour.
void paint(int with = 1);
}  // namespace v1

enum class Colour {
  red,  ///< as blood
  blue,
};

}  // namespace penstock
"""
PAGE = """# A page

## What `it` is, and why

[good](other.md#a-part), [here](#what-it-is-and-why), [URL](https://example.org/nowhere), [folder](../include),
[gone](gone.md), [no part](other.md#no-part), [nor here](#nor-here), ![gone too](gone.svg)
`[code](in-code.md)`

```text
[code](in-a-fence.md)
```

```{note}
This is Sphinx's.
```
"""
REFERENCE = "# Reference\n\n## Boxes\n\n| header |\n|---|\n| [box.hpp](../include/penstock/box.hpp) |\n"
HTML = {"index.html": '<h1 id="top">x</h1><a href="a.html#there">x</a><a href="a.html#nowhere">x</a><a href="../out.html">x</a>',
        "a.html": '<p id="there"></p><a href="index.html#top">x</a><img src="gone.png"><a href="https://e.org/x">x</a>'}  # fmt: skip


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def expect(found, expected):
    found = list(found)
    require(len(found) == len(expected), f"{found}\nexpected: {expected}")
    for line, words in zip(found, expected):
        require(all(word in line for word in words), f"{line}\nhas not: {words}")


def write(files):
    for name, text in files.items():
        path = pathlib.Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def docstrings(api):
    names = api.read(pathlib.Path("build/doxygen").resolve())
    missing = ["NoDocstring has", "NoDocstring::fifth", "Box::Box", "Colour has", "Colour::blue"]
    expect(api.undocumented(names), [["include/penstock/box.hpp:", f"penstock::{name}"] for name in missing])
    names = {name.name: name for top in names for name in top.all()}
    require(not {"penstock::Box::secret", "penstock::Box::hidden", "penstock::detail::Hidden"} & names.keys(), f"{list(names)}")
    docs = {name: names[f"penstock::{name}"].doc for name in ("NoDocstring::first", "NoDocstring::second", "NoDocstring::fourth")}
    require(list(docs.values()) == ["The first.", "The second, which takes two lines.", "Two at once."], f"a docstring of another member: {docs}")
    return names


def page(api, names):
    top = [name for name in names.values() if name.name.count("::") == 1]
    text = api.page("penstock/box.hpp", pathlib.Path("include/penstock/box.hpp"), top)
    for part in ("#include <penstock/box.hpp>", "Box\\<T\\>: holds a value.", "```cpp\npenstock::Box<int> box{1};\n\nbox.put(2);\n```",
                 r"Not for \*threads\*; see [docs/other.md](/docs/other.md) and [box.hpp](/reference/box.md), not docs/none.md.", "{cpp:concept} template<class T> Puttable", "concept Puttable = requires(T t) { t + 1; }",
                 "{cpp:function} void put(T value) requires Puttable<T>", "{cpp:function} static constexpr int size() noexcept",
                 "throws {cpp:any}`NoDocstring <penstock::NoDocstring>`", "`penstock::Box<T>` is `<new>` and a\\_b.",
                 "{cpp:namespace} penstock\n", "{cpp:function} void paint(int with=1)", "{cpp:enum-class} Colour", "{cpp:member} int zeroth{10'000}", "{cpp:enumerator} red"):  # fmt: skip
        require(part in text, f"the page has not {part}:\n{text}")
    require("v1" not in text and "always_inline" not in text and "hidden" not in text and "SPDX" not in text, text)


def broken_docstring(api):
    """What Doxygen does not understand is named by header and line."""
    header = pathlib.Path("include/penstock/box.hpp")
    before = header.read_text()
    for wrong, words in (("\\nosuchcommand", ["penstock/box.hpp:", "nosuchcommand"]), ("@code\n/// int i;\n/// @endcode", ["box.hpp:", "example"])):
        header.write_text(before.replace("/// Holds a value.", f"/// Holds a value. {wrong}"))
        try:
            api.read(pathlib.Path("build/doxygen").resolve())
        except SystemExit as problem:
            require(all(word in str(problem) for word in words), f"{problem}")
        else:
            require(False, f"a docstring with {wrong} is taken")
    header.write_text(before)


def pages_and_links(links, pages):
    expect(links.check(), [["docs/page.md:13:", "{note}"], ["docs/page.md:6:", "gone.md"], ["docs/page.md:6:", "other.md#no-part", "heading"],
                           ["docs/page.md:6:", "#nor-here"], ["docs/page.md:6:", "gone.svg"]])  # fmt: skip
    require(pages.groups()[1] == [], f"{pages.groups()}")
    write({"include/penstock/new.hpp": "// SPDX\n"})
    expect(pages.groups()[1], [["docs/reference.md does not list <penstock/new.hpp>"]])
    os.remove("include/penstock/new.hpp")


def site(links, pages, api):
    write({"docs/page.md": "# A page\n\n[header](../include/penstock/box.hpp), [file](../data.txt), [folder](../include),\n"
           "[README](../README.md), ![picture](p.svg)\n", "docs/p.svg": "<svg/>", "data.txt": "one\n"})  # fmt: skip
    folder = pathlib.Path("build/pages").resolve()
    pages.Site(folder, []).build()
    text = (folder / "docs/page.md").read_text()
    for part in ("(../reference/box.md)", "(../sources/data.txt.md)", "(../sources/include.md)", "(../index.md)", "(p.svg)"):
        require(part in text, f"not {part}: {text}")
    require((folder / "docs/p.svg").exists() and "one\n" in (folder / "sources/data.txt.md").read_text(), "a file that is linked")
    index = (folder / "index.md").read_text()
    require("/docs/recipes/first" in index and index.index("Recipes") < index.index("/docs/page"), index)
    write({"out.html": "", **{f"site/{name}": text for name, text in HTML.items()}})
    expect(links.check_site(pathlib.Path("site").resolve()), [["a.html", "gone.png"], ["index.html", "a.html#nowhere"],
                                                              ["index.html", "../out.html"]])  # fmt: skip


def measured(figures, pages):
    """What a page says that was measured, and what it may say."""
    page = "# A page\n\n%s\n\n## Another\n\n[all](measured/page.md): it takes 3 ms, 5 images/s.\n"
    (pathlib.Path("docs/measured")).mkdir()
    write({"docs/measured/page.md": "# Figures\n\nIt takes 3 ms on an H100, commit 0123abc, 2026-11-26.\n", "CHANGELOG.md": "It is 2 times as fast.\n"})
    said = {"figure": ("A batch takes\n2.5 us of that.", "It gives 1,200 images/s.", "It is 1.8 times as fast.", "12 % faster than before.", "A wait of 3 ms was measured.",
                       "| case | time, ms |\n|---|---|\n| one | 12.5 |", "| case | images/s |\n|---|---|\n| one | **7** |", "- Loading costs 7 s."),
            "H100": ("It ran on an H100.", "Two H100s.", "[here](measured/page.md), on an H100"), "commit 0123abc": ("Of commit 0123abc.",), "26": ("Seen on 2026-11-26.",),
            "November 2026": ("Read in November 2026.",),
            "": ("A wait takes at most 2 s. The default is 20 ms.", "`it takes 3 ms`", "```text\nit takes 3 ms, on an H100\n```", "| option | ms |\n|---|---|\n| `--wait` | the time |",
                 "It takes 3 ms ([measured](measured/page.md)).", "It polls every 10 ms.")}  # fmt: skip
    for word, texts in said.items():
        for text in texts:
            write({"docs/page.md": page % text})
            problems = list(figures.check())
            require(bool(problems) == bool(word) and all("docs/page.md:" in one and word in one for one in problems), f"{text}: {problems}")
    write({"docs/page.md": page % "", "README.md": "# It\n\nIt takes 3 ms on an H100.\n"})
    expect(figures.check(), [["README.md:3:", "figure", "takes 3 ms"]])
    write({"README.md": "# It\n\nIt takes 3 ms on an H100 ([how](docs/measured/page.md)).\n"})
    expect(figures.check(), [])
    pages.Site(pathlib.Path("build/pages").resolve(), []).build()
    index = pathlib.Path("build/pages/index.md").read_text()
    require(index.index(":caption: Guides") < index.index(":caption: Measured") < index.index("/docs/measured/page"), index)


def drawings(pictures):
    pictures.PICTURES = {"docs/route.svg": pictures.route.draw}
    os.remove("docs/p.svg")
    pictures.write()
    expect(pictures.check(), [])
    path = pathlib.Path("docs/route.svg")
    path.write_text(path.read_text().replace("your kernels", "their kernels"))
    write({"docs/new.svg": "<svg/>"})
    expect(pictures.check(), [["docs/route.svg", "--pictures"], ["docs/new.svg", "no source"]])


def main():
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder).resolve()
        shutil.copytree(SOURCES, project / "scripts/doc_site", ignore=shutil.ignore_patterns("__pycache__"))
        os.chdir(project)
        write({"include/penstock/box.hpp": HEADER, "docs/page.md": PAGE, "docs/other.md": "# Other\n\n## A part\n", "README.md": "# It\n",
               "docs/reference.md": REFERENCE, "docs/recipes/first.md": "# First\n"})  # fmt: skip
        sys.path.insert(0, str(project / "scripts/doc_site"))
        import api
        import figures
        import links
        import pages
        import pictures

        page(api, docstrings(api))
        broken_docstring(api)
        pages_and_links(links, pages)
        site(links, pages, api)
        measured(figures, pages)
        drawings(pictures)
    print("passed")


main()
