# SPDX-License-Identifier: Apache-2.0
"""Writes the sources of the site: the project's Markdown pages, a page for each public header and for each file that a page
links to, and a table of contents. docs/*.md contain only what a code host can show."""

import os
import pathlib
import re
import shutil

import api
import links

ROOT = links.ROOT
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".h": "cpp", ".py": "python", ".sh": "bash",
             ".cmake": "cmake", ".json": "json", ".yaml": "yaml", ".sbatch": "bash"}  # fmt: skip
PICTURES = {".svg", ".png"}
INDEX, RECIPES, MEASURED = "docs/reference.md", "docs/recipes/README.md", "docs/measured/"


def groups():
    """Returns (title, text, headers) of each section of docs/reference.md, and a list of problems."""
    text = (ROOT / INDEX).read_text()
    paths = {path: header for header, path in api.public_headers().items()}
    found, problems = [], []
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        headers = []
        for _, target in links.links(body):
            there, _ = links.split(INDEX, target)
            if there in paths and paths[there] not in headers:
                headers.append(paths[there])
        found.append((title.strip(), body.strip(), headers))
    listed = [header for _, _, headers in found for header in headers]
    problems += [f"{INDEX} does not list <{header}>" for header in paths.values() if header not in listed]
    problems += [f"{INDEX} lists <{header}> twice" for header in sorted(set(listed)) if listed.count(header) > 1]
    return found, problems


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


class Site:
    def __init__(self, folder, names):
        self.folder, self.names = folder, names
        self.pages = {page: page for page in links.pages()}  # page of the project -> of the site
        self.pages["README.md"] = "index.md"
        self.headers = {path: api.page_of(header) for header, path in api.public_headers().items()}
        self.sources = {}  # file or folder that a page links to -> page of the site
        self.pictures = set()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:  # Sphinx reads again what is new.
            path.write_text(text)
        self.written.add(path)

    def build(self):
        self.written = set()
        for page in self.pages:
            self.write(self.pages[page], self.linked(page, self.pages[page], (ROOT / page).read_text()) + self.contents(page))
        self.reference()
        for path, page in list(self.sources.items()):
            self.source_page(path, page)
        for picture in self.pictures:
            there = self.folder / picture.relative_to(ROOT)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, there)
            self.written.add(there)
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.written:
                path.unlink()

    # ---- Links

    def linked(self, page, name, text):
        """Returns the text of `page` with its links changed for page `name` of the site."""
        prose = {number for number, _ in links.prose(text)}
        lines = text.splitlines()
        for i, line in enumerate(lines):
            if i + 1 in prose:
                lines[i] = links.LINK.sub(lambda match: f"{match[1]}({self.target(page, name, match[2])})", line)
        return "\n".join(lines) + "\n"

    def target(self, page, name, target):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return target
        there, anchor = links.split(page, target)
        if not there.exists():
            return target
        return self.relative(name, self.page_of(there)) + (f"#{anchor}" if anchor else "")

    def relative(self, name, page):
        return os.path.relpath(page, pathlib.Path(name).parent)

    def page_of(self, path):
        if path.suffix in PICTURES:
            self.pictures.add(path)
            return str(path.relative_to(ROOT))
        name = str(path.relative_to(ROOT))
        if name in self.pages:
            return self.pages[name]
        if f"{name}/README.md" in self.pages:
            return self.pages[f"{name}/README.md"]
        if path in self.headers:
            return self.headers[path]
        return self.sources.setdefault(path, f"sources/{name}.md")

    def source_page(self, path, page):
        name = path.relative_to(ROOT)
        head = f"---\norphan: true\nnosearch: true\n---\n\n# {api.escaped(str(name))}\n\n"
        if path.is_dir():
            entries = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith((".", "__pycache__"))]
            rows = [f"- {self.entry(page, entry)}" for entry in entries]
            return self.write(page, head + "\n".join(rows) + "\n")
        language = LANGUAGES.get(path.suffix, "bash" if path.read_text().startswith("#!/usr/bin/env bash") else "text")
        fence = "`" * (2 + max([len(mark) for mark in re.findall(r"`{3,}", path.read_text())] + [2]))
        return self.write(page, f"{head}{fence}{language}\n{path.read_text()}{fence}\n")

    def entry(self, page, path):
        known = str(path.relative_to(ROOT)) in self.pages or path in self.headers or path in self.sources
        text = f"`{path.name}{'/' if path.is_dir() else ''}`"
        return f"[{text}]({self.relative(page, self.page_of(path))})" if known else text

    # ---- The table of contents

    def contents(self, page):
        if page == INDEX:
            return toctree("", [f"/reference/{slug(title)}" for title, _, _ in groups()[0]])
        if page != "README.md":
            return ""
        docs = [name for name in self.pages if name.startswith("docs/")]
        recipes = [name for name in docs if name.startswith("docs/recipes/")]
        recipes.sort(key=lambda name: (not name.endswith("/README.md"), name))
        migration = [name for name in docs if name.startswith("docs/migration")]
        reliability = [name for name in ("docs/reliability.md", "benchmarks/README.md") if name in self.pages]
        reliability += [name for name in self.pages if name.startswith("scripts/mutation/")]
        measured = sorted((name for name in docs if name.startswith(MEASURED)), key=lambda name: name != f"{MEASURED}README.md")
        guides = [name for name in docs if name not in {*recipes, *migration, *reliability, *measured, INDEX}]
        examples = [name for name in self.pages if name.startswith("examples/")]
        project = [name for name in ("CHANGELOG.md", "CONTRIBUTING.md") if name in self.pages]
        placed = {"README.md", INDEX, *recipes, *migration, *reliability, *guides, *measured, *examples, *project}
        project += [name for name in self.pages if name not in placed]
        sections = [("Start", ["Getting started <self>"]), *self.recipe_groups(recipes), ("Migration", migration), ("Guides", guides),
                    ("Reference", [INDEX]), ("Examples", examples), ("Reliability", reliability), ("Measured", measured),
                    ("Project", project)]  # fmt: skip
        return "".join(toctree(title, entries) for title, entries in sections if entries)

    @staticmethod
    def recipe_groups(recipes):
        """Returns the recipes in the groups of the page that lists them. Recipes that it does not list come with that page."""
        groups = {"Recipes": []}
        for line in (ROOT / RECIPES).read_text().splitlines() if RECIPES in recipes else []:
            if line.startswith("## "):
                groups[title := f"Recipes: {line[3:]}"] = []
            elif (link := re.match(r"- \[.*\]\((.+\.md)\)$", line)) and f"docs/recipes/{link[1]}" in recipes:
                groups[title].append(f"docs/recipes/{link[1]}")
        listed = {name for its in groups.values() for name in its}
        groups["Recipes"] = [name for name in recipes if name not in listed]
        return groups.items()

    # ---- Reference

    def reference(self):
        its = {header: [name for name in self.names if name.file == header] for header in api.public_headers()}
        paths = api.public_headers()
        for title, text, headers in groups()[0]:
            page = f"reference/{slug(title)}.md"
            entries = ["/" + self.headers[paths[header]].removesuffix(".md") for header in headers]
            self.write(page, f"# {title}\n\n{self.linked(INDEX, page, text)}{toctree('', entries)}")
            for header in headers:
                self.write(self.headers[paths[header]], api.page(header, paths[header], its[header]))


def toctree(title, entries):
    caption = f":caption: {title}\n" if title else ""
    names = [entry if " <" in entry else "/" + entry.removesuffix(".md").lstrip("/") for entry in entries]
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n" + "\n".join(names) + "\n```\n"
