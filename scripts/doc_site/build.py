# SPDX-License-Identifier: Apache-2.0
"""build.py [--check | --pictures]: does the work of scripts/docs."""

import os
import pathlib
import subprocess
import sys
import time

import api
import figures
import links
import pages
import pictures
import rules

ROOT = links.ROOT
BUILD = ROOT / "build/docs"
began = time.monotonic()


def say(text):
    print(f"docs: {text}", flush=True)


def count(problems, what):
    problems = list(problems)
    for problem in problems:
        print(problem)
    say(f"{len(problems)} {what}")
    return len(problems)


def check(names):
    """Returns the number of problems."""
    found = count(api.undocumented(names), f"of {len(public(names))} public names without a docstring")
    found += count(pages.groups()[1], "headers missing in docs/reference.md, or there twice")
    found += count(links.check(), f"broken links in {len(links.pages())} Markdown pages")
    found += count(figures.check(), f"figures, commits, dates and machines outside of {figures.MEASURED}")
    found += count(rules.check(), "problems with the rules of the emulated runtime")
    return found + count(pictures.check(), f"of {len(pictures.PICTURES)} pictures not as their source draws them")


def public(names):
    return [name for top in names for name in top.all()]


def sphinx(names):
    """Returns True if there was no warning."""
    known = BUILD / "names.txt"
    known.write_text("\n".join(name.name for name in names if name.kind != "variable") + "\n")
    here = pathlib.Path(__file__).resolve().parent
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", here, "-d", BUILD / "doctrees",
               BUILD / "pages", BUILD / "html"]  # fmt: skip
    return subprocess.run(command, env={**os.environ, "PENSTOCK_DOCS_NAMES": str(known)}).returncode == 0


def build(names):
    say("writing the pages for Sphinx")
    pages.Site(BUILD / "pages", names).build()
    say("Sphinx builds the site")
    if not sphinx(names):
        say("FAILED: Sphinx warns, see above (the pages it names are in build/docs/pages)")
        return False
    return count(links.check_site(BUILD / "html"), "broken links in the site") == 0


def main():
    if sys.argv[1:] == ["--pictures"]:
        pictures.write()
        return 0
    say("Doxygen reads the headers")
    names = api.read(BUILD / "doxygen")
    problems = check(names)
    if problems:
        say(f"FAILED: {problems} problems, see above")
        return 1
    if sys.argv[1:] == ["--check"]:
        say(f"all is well; {time.monotonic() - began:.0f} s")
        return 0
    if not build(names):
        return 1
    number = len(list((BUILD / "html").rglob("*.html")))
    say(f"open build/docs/html/index.html; {number} pages, {len(public(names))} public names, 0 undocumented, "
        f"0 broken links; {time.monotonic() - began:.0f} s")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
