#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_pages.py [--list] [--without PAGE... --] PROJECT WORK [PAGE...]: the commands of the pages work as they are printed

Each page of PROJECT has a fresh clone of its own, below WORK. There its ```sh blocks run, in their order, with an empty home
directory. A command that fails, and a file that `git status` shows afterwards, are errors. PAGE is a page or a folder with
pages; without any, all pages run. --list runs nothing: it checks the marks, and prints what would be run and what is left out.

What cannot run here is marked on the line before its block, with the reason, in an HTML comment, which readers do not see:

    <!-- not run: needs a GPU -->                              the whole block
    <!-- not run, "scripts/test": CI runs it with each commit -->      the commands of the block that begin so

A clone has the files as they are in PROJECT now, committed or not.
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

MARK = re.compile(r'<!-- not run(?:, "(?P<beginning>[^"]+)")?: (?P<reason>.+) -->')


class Command:
    def __init__(self, line, text):
        self.line, self.text, self.reason = line, text, None


def commands_of(lines, first):
    """The commands of a block; a backslash at the end of a line joins it with the next."""
    found, joined = [], []
    for number, line in enumerate(lines, first):
        joined.append(line)
        if line.endswith("\\"):
            continue
        text = "\n".join(joined)
        if text.strip() and not text.lstrip().startswith("#"):
            found.append(Command(number - len(joined) + 1, text.strip()))
        joined = []
    return found


def read_page(page, text, wrong):
    """All commands of a page, in order. What is wrong with the marks is added to `wrong`."""
    commands, marks, fence, block = [], [], None, []
    for number, line in enumerate(text.splitlines(), 1):
        opening = re.fullmatch(r" *```(\w*)", line)
        if fence is None and opening:
            fence, block, first = opening[1], [], number + 1
            if marks and fence != "sh":
                wrong.append(f"{page}:{number}: a mark stands before a block that is not sh")
        elif fence is not None and line.strip() == "```":
            if fence == "sh":
                found = commands_of(block, first)
                for beginning, reason, at in marks:
                    marked = [c for c in found if c.text.startswith(beginning)]
                    if not marked:
                        wrong.append(f"{page}:{at}: no command of the block begins with {beginning}")
                    for command in marked:
                        command.reason = reason
                commands += found
            fence, marks = None, []
        elif fence is not None:
            block.append(line)
        elif mark := MARK.fullmatch(line.strip()):
            marks.append((mark["beginning"] or "", mark["reason"], number))
        elif line.strip().startswith("<!-- not run"):
            wrong.append(f"{page}:{number}: this is no mark: see run_pages.py")
        elif marks:
            wrong.append(f"{page}:{number}: a mark stands on the line before its block")
            marks = []
    return commands


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout


def clone(project, to):
    """The project's files, as git sees them, in a repository of their own."""
    shutil.rmtree(to, ignore_errors=True)
    for name in filter(None, git(project, "ls-files", "-co", "--exclude-standard", "-z").split("\0")):
        source, target = project / name, to / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    git(to, "init", "--quiet")
    git(to, "add", "--all")
    git(to, "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--message", "clone")


def environment_of(home):
    """A new user's, but for ccache and pip's cache, which make the same things in the next clone cheap."""
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("PENSTOCK_", "XDG_")) and name not in ("CI", "CUDAToolkit_ROOT", "CMAKE_PREFIX_PATH")}  # fmt: skip
    if shutil.which("ccache"):
        folder = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True).stdout.strip()
        variables |= {"CCACHE_DIR": folder, "CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CMAKE_CUDA_COMPILER_LAUNCHER": "ccache"}
    return variables | {"HOME": str(home), "PIP_CACHE_DIR": str(home.parent / "pip")}


def script_of(page, commands):
    """Runs them one after the other in one shell, until one fails."""
    lines = []
    for command in commands:
        place = f"{page}:{command.line}"
        lines += [f"printf '\\n$ %s\\n' {shlex.quote(command.text)}", "SECONDS=0", "{ " + command.text,
                  "} || { status=$?; printf 'FAILED: %s: exit status %d\\n' " + shlex.quote(place) + ' "$status"; exit 1; }',
                  "printf '(%d s)\\n' \"$SECONDS\""]  # fmt: skip
    return "\n".join(lines)


def run_page(page, commands, project, work):
    folder, home = work / "clone", work / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    clone(project, folder)
    ended = subprocess.run(["bash", "-c", script_of(page, commands)], cwd=folder, env=environment_of(home),
                           stdin=subprocess.DEVNULL)  # fmt: skip
    errors = [] if ended.returncode == 0 else [f"{page}: a command failed"]
    if left := git(folder, "status", "--porcelain"):
        errors.append(f"{page}: its commands leave what git sees:\n{left.rstrip()}")
    shutil.rmtree(folder)
    shutil.rmtree(home)
    return errors


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--without", nargs="+", default=[])
    parser.add_argument("project", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("work", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("pages", nargs="*")
    words = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)

    wrong = []
    for page in git(words.project, "ls-files", *words.pages).split():
        if not page.endswith(".md") or page.startswith(tuple(words.without)):
            continue
        commands = read_page(page, (words.project / page).read_text(), wrong)
        runs = [command for command in commands if not command.reason]
        for command in commands:
            if command.reason:
                print(f"left out: {page}:{command.line}: {command.reason}: {command.text}")
            elif words.list:
                print(f"run:      {page}:{command.line}: {command.text}")
        if runs and not words.list:
            print(f"\n== {page}")
            start = time.monotonic()
            wrong += run_page(page, runs, words.project, words.work)
            print(f"== {page}: {time.monotonic() - start:.0f} s")
    if wrong:
        sys.exit("\n".join(["", *wrong]))


main()
