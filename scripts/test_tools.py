#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What scripts/test and .ci/run ask about builds and tests:

  test_tools.py programs BUILD [CTEST_OPTION...]   what has to be built for these tests, a file a line
  test_tools.py rest BUILD                         what `all` compiles and links and no test needs, a file a line;
                                                   without the sources that include one header alone
  test_tools.py slowest SINCE BUILD... -- REPORT...  the ten slowest tests of these JUnit files, and the
                                                   ten slowest sources compiled since then (Unix time)
  test_tools.py failed REPORT...                   which failed, and the end of what each has printed
  test_tools.py skipped REPORT...                  how many were skipped, and which
  test_tools.py shares COUNT QUICK=FULL...         for each pair of build folders, one as the quick run
                                                   configures it and one with everything: is each test
                                                   either quick or in shares, of which there are COUNT?
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

HEADER_TESTS = r"header_(tests|options)[a-z_]*\.dir/.*\.o$"  # scripts/lib.sh compiles them by sixths
PROGRAM_RULES = ("EXECUTABLE_LINKER", "SHARED_LIBRARY_LINKER", "MODULE_LIBRARY_LINKER", "STATIC_LIBRARY_LINKER")


def list_tests(build, *options):
    command = ["ctest", "--test-dir", build, "--show-only=json-v1", *options]
    tests = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)["tests"]
    for test in tests:
        test["properties"] = {p["name"]: p["value"] for p in test.get("properties", [])}
    return tests


def labels(test):
    return set(test["properties"].get("LABELS", []))


def cmake_words(text):
    """Arguments as CMake's versions write them: in quotes, in brackets, or plain."""
    words = re.findall(r'\[(=*)\[(.*?)\]\1\]|"((?:[^"\\]|\\.)*)"|([^\s"]+)', text)
    return [bracket or quoted or plain for _, bracket, quoted, plain in words]


def named(build, text):
    """The files and folders of the build folder that the text names, relative to it."""
    return re.findall(re.escape(build) + r"/([^;,:\s\"]+)", text)


def test_files(folder):
    """The texts of CTestTestfile.cmake in a build folder. Those of other builds, which tests leave there, are not among them."""
    path = folder / "CTestTestfile.cmake"
    if not path.is_file():
        return
    text = path.read_text()
    yield text
    for name in re.findall(r'^subdirs\("(.*)"\)$', text, re.M):
        yield from test_files(folder / name)


def programs_of(build, *options):
    """Whatever the commands name in the build folder, the programs in folders too."""
    build = str(pathlib.Path(build).resolve())
    listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True, stdout=subprocess.PIPE, text=True)
    outputs, folders = set(), collections.defaultdict(set)
    for line in listed.stdout.splitlines():
        path, _, rule = line.rpartition(": ")
        if any(word in rule for word in PROGRAM_RULES) and not path.startswith("/"):
            outputs.add(path)
            if "STATIC" not in rule:
                folders[str(pathlib.Path(path).parent)].add(path)
    commands = {}  # As they are written: ctest does not show the command whose program is not there yet.
    for text in test_files(pathlib.Path(build)):
        for arguments in re.findall(r"^\s*add_test\((.*)\)$", text, re.M):
            name, *command = cmake_words(arguments)
            commands[name] = command
    wanted = set()
    for test in list_tests(build, *options):
        words = commands[test["name"]]
        if any(word.endswith(f"BUILD_DIR={build}") for word in words):  # to be installed
            for script in pathlib.Path(build).rglob("cmake_install.cmake"):
                wanted |= outputs.intersection(named(build, script.read_text()))
        for before, word in zip(["", *words], words):
            for path in named(build, word):
                if path in outputs:
                    wanted.add(path)
                if not before.startswith("--"):
                    wanted |= folders[path.rstrip("/")]  # Where a test looks for programs.
    return wanted


def programs(build, *options):
    print("\n".join(sorted(programs_of(build, *options))))


def rest(build):
    def outputs(*targets):
        command = ["ninja", "-C", build, "-t", "commands", *targets]
        commands = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return set(re.findall(r" -o (\S+)", commands))

    unneeded = outputs("all") - outputs(*programs_of(build))
    print("\n".join(sorted(path for path in unneeded if not re.search(HEADER_TESTS, path))))


def cases(reports):
    for report in reports:
        if pathlib.Path(report).exists():
            preset = pathlib.Path(report).parent.name
            for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
                yield preset, case


def failed(*reports):
    """Catch's line of filters is left out: it names every test of a part."""
    for preset, case in cases(reports):
        if case.find("failure") is None:
            continue
        lines = [line[:200] for line in (case.findtext("system-out") or "").splitlines() if line[:8] != "Filters:"]
        print("\n".join([f"FAILED {preset}: {case.get('name')}", *(f"  {line}" for line in lines[-30:])]))


def skipped(*reports):
    """Disabled ones too: they did not run either."""
    names = [f"{preset}: {case.get('name')}" for preset, case in cases(reports)
             if case.find("skipped") is not None or case.get("status") == "disabled"]
    print(f"{len(names)} tests skipped" + "".join(f"\n  {name}" for name in names))


def compilations(build, since):
    """(seconds, what) of each object that was compiled since then."""
    try:
        lines = pathlib.Path(build, ".ninja_log").read_text().splitlines()
    except OSError:
        return
    last = {}
    for line in lines[1:]:
        begin, end, changed, output, _ = line.split("\t")
        if output.endswith(".o") and int(changed) / 1e9 >= since:
            last[output] = (int(end) - int(begin)) / 1000
    for output, seconds in last.items():
        source = re.sub("[.]o$", "", re.sub("CMakeFiles/(.*)[.]dir/", r"\1: ", output))
        yield seconds, f"{pathlib.Path(build).name}: {source}"


def slowest(since, *folders_and_reports):
    split = folders_and_reports.index("--")
    reports, builds = folders_and_reports[split + 1 :], folders_and_reports[:split]
    tests = [(float(case.get("time")), f"{preset}: {case.get('name')}") for preset, case in cases(reports)]
    sources = [source for build in dict.fromkeys(builds) for source in compilations(build, float(since))]
    for title, entries in (("tests", tests), ("sources", sources)):
        print(f"\nThe ten slowest {title} of {len(entries)}, {sum(entry[0] for entry in entries):.0f} s together:")
        for seconds, name in sorted(entries, reverse=True)[:10]:
            print(f"{seconds:7.1f} s  {name}")


def shares(count, *pairs):
    known = {f"share_{number}" for number in range(int(count))}
    problems, counts = [], collections.Counter()
    for pair in pairs:
        quick_build, full_build = pair.split("=")
        preset = pathlib.Path(quick_build).name
        quick = {test["name"] for test in list_tests(quick_build) if "quick" in labels(test)}
        everything = {test["name"]: labels(test) for test in list_tests(full_build)}
        for name, its in everything.items():
            own = {label for label in its if label.startswith("share_")}
            if not own <= known:
                problems.append(f"{preset}: {name} is of {own - known}, and there are {count} shares")
            if (name in quick) == bool(own) or ("full" in its) != bool(own):
                problems.append(f"{preset}: {name} is {'' if name in quick else 'not '}quick, and of {own or 'no share'}")
            counts.update((preset, share) for share in own or {"quick"})
        problems += [f"{preset}: {name} is quick, but not of all" for name in quick - everything.keys()]
    for preset, share in sorted(counts):
        print(f"{preset:10} {share:8} {counts[preset, share]:4} tests")
    missing = known - {share for _, share in counts}
    problems += [f"{share} has no test" for share in sorted(missing)]
    print("\n".join(problems) if problems else f"Each test is quick, or in one of the {count} shares or more.")
    return 1 if problems else 0


if __name__ == "__main__":
    commands = {f.__name__: f for f in (programs, rest, failed, skipped, slowest, shares)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__.strip())
    sys.exit(commands[sys.argv[1]](*sys.argv[2:]))
