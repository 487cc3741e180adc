#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one C++ source of the examples in headers and Markdown pages, to be compiled and run.

An example in a header is a run of comment lines that are indented by three spaces or more. One in a
Markdown page is a fence marked cpp; a fence says what is in it (sh, cmake, text ...). A program below the
line <!-- program --> is left out: it has a test of its own.

Each example becomes the body of a member function of a struct that derives from --base, which the
--include declares: what an example does not declare itself are members of that. Errors of the compiler
name the page and the line. Types that an example declares, and what it includes, come before the
function. Kernel launches become calls, "..." becomes nothing.

Use: extract.py --root DIR --out FILE [--include HEADER] [--base NAME] [--base-of PAGE=NAME]... PAGE...
                [--then COMMAND...], which gets the file as its last argument
"""
import argparse
import os
import pathlib
import re
import sys

LANGUAGES = {"cmake", "cpp", "sh", "text", "json", "promql", "python"}


class Example:
    def __init__(self, page, line, lines):
        self.page, self.line, self.lines = page, line, lines


def in_header(page, text):
    """Runs of indented comment lines; an empty comment line does not end one, unless prose follows."""
    found, current, blanks = [], None, 0
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"//   (.*)", line)
        if match:
            if current is None:
                current = Example(page, number, [])
                found.append(current)
            current.lines += [""] * blanks + [match[1]]
            blanks = 0
        elif line == "//" and current:
            blanks += 1
        else:
            current, blanks = None, 0
    return found


def in_markdown(page, text):
    found, current, before = [], None, ""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"( *)```(\w*)\s*$", line)
        if fence is None and match:
            fence = match[2]
            if fence not in LANGUAGES:
                sys.exit(f"{page}:{number}: a fence says what is in it: one of {', '.join(sorted(LANGUAGES))}")
            if fence == "cpp" and before != "<!-- program -->":
                current = Example(page, number + 1, [])
                found.append(current)
        elif match:
            fence = current = None
        elif current:
            current.lines.append(line)
        before = line
    if fence is not None:
        sys.exit(f"{page}: a fence is not closed")
    return found


def compilable(line):
    line = re.sub(r"([\w:]+)<<<(.*?)>>>\(", r"(configured(\2), \1)(", line)
    line = line.replace("{ ... }", "{}")
    return re.sub(r"(^|\s)\.\.\.(?=\s*(//.*)?$)", r"\1;", line)


def parts(example):
    """Includes, declarations that a function cannot hold, and statements: lists of (number, line)."""
    includes, declarations, statements = [], [], []
    target, depth = statements, 0
    for number, line in enumerate(example.lines, example.line):
        line = compilable(line)
        code = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)
        if depth == 0:
            if line.startswith("#include"):
                includes.append((number, line))
                continue
            target = declarations if re.match(r"(struct|class|enum|template|__global__|int main)\b", line) else statements
        target.append((number, line))
        depth += sum(code.count(c) for c in "{(") - sum(code.count(c) for c in "})")
    if statements and (statements[0][1].startswith("[") or statements[-1][1].endswith(")")):  # an expression
        statements[0] = (statements[0][0], "const auto value = " + statements[0][1])
        statements[-1] = (statements[-1][0], statements[-1][1] + ";")
    return includes, declarations, statements


def numbered(page, lines):
    text, expected = [], None
    for number, line in lines:
        if number != expected:
            text.append(f'#line {number} "{page}"')
        text.append(line)
        expected = number + 1
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--include")
    parser.add_argument("--base", default="Bare")
    parser.add_argument("--base-of", action="append", default=[])
    parser.add_argument("pages", nargs="+")
    own_arguments, then = sys.argv[1:], []
    if "--then" in own_arguments:
        at = own_arguments.index("--then")
        own_arguments, then = own_arguments[:at], own_arguments[at + 1:]
    args = parser.parse_args(own_arguments)
    base_of = dict(item.split("=") for item in args.base_of)

    examples = []
    for page in args.pages:
        text = (args.root / page).read_text()
        examples += (in_markdown if page.endswith(".md") else in_header)(page, text)

    includes, body, table = [], [], []
    for index, example in enumerate(examples):
        above, declarations, statements = parts(example)
        includes += numbered(example.page, above)
        name = f"Example{index}"
        base = base_of.get(example.page, args.base)
        body += [f"namespace example_{index} {{", *numbered(example.page, declarations),
                 f"struct {name} : {base} {{ void run() {{", *numbered(example.page, statements),
                 "} };", f"}}  // namespace example_{index}"]
        table.append(f'    {{"{example.page}:{example.line}", [] {{ example_{index}::{name}().run(); }}}},')
    own = [f'#include "{args.include}"'] if args.include else ["struct Bare {};"]
    listed = ["struct Listed { const char* place; void (*run)(); };", "const Listed listed[] = {", *table, "};"]
    args.out.write_text("\n".join([*includes, *own, "namespace {", *body, *listed, "}  // namespace",
                                   '#include "run_listed.hpp"' if args.include else "", ""]))
    if not examples:
        sys.exit("no example in these pages")
    if then:
        os.execvp(then[0], [*then, str(args.out)])


main()
