#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the program given as argument exports of the statistics in write_exports.cpp.

The grammar is that of Prometheus' text exposition format 0.0.4. Use: check_exports.py PROGRAM VERDICT_HEADER
"""
import json
import pathlib
import re
import subprocess
import sys

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)$")
ODD = 'a\\b "c"\nd, é'


def enumerators(name):
    """Those of the header."""
    body = re.search(rf"enum class {name} \{{(.*?)\n\}};", pathlib.Path(sys.argv[2]).read_text(), re.DOTALL)[1]
    return set(re.findall(r"^  (\w+),", body, re.MULTILINE))


def output(*arguments):
    return subprocess.run([sys.argv[1], *arguments], check=True, capture_output=True, text=True).stdout


def unescaped(value):
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), value)


def parse(text):
    """{(name, frozenset of labels): value}, {name: type}. Asserts the grammar and the order."""
    assert text.endswith("\n")
    samples, types, family = {}, {}, None
    lines = text[:-1].split("\n")
    for before, line in zip([""] + lines, lines):
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in types, f"{family} is told twice"
            assert re.fullmatch(rf"# HELP {NAME} \S.*", line), line
        elif line.startswith("# TYPE "):
            assert before.startswith(f"# HELP {family} "), f"no HELP before {line}"
            assert re.fullmatch(rf"# TYPE {family} (counter|gauge)", line), line
            types[family] = line.split(" ")[3]
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == family, f"not a sample of {family}: {line}"
            labels = frozenset((name, unescaped(value)) for name, value in re.findall(LABEL, match[2] or ""))
            assert (family, labels) not in samples, f"twice: {line}"
            samples[family, labels] = float(match[match.lastindex])
    return samples, types


def check_names(types):
    for name, kind in types.items():
        assert name.startswith("penstock_"), name
        assert (kind == "counter") == name.endswith("_total"), f"{name} is a {kind}"
        assert not re.search(r"_(ms|us|ns|milliseconds|kb|mb|kib|mib|percent)(_|$)", name), f"not a base unit: {name}"


def check_prometheus(arguments, common):
    text = output(*arguments)
    samples, types = parse(text)
    check_names(types)
    device = "device" in arguments

    def value(name, **labels):
        return samples["penstock_" + name, frozenset({**common, **labels}.items())]

    assert value("busy_seconds_total", stage="source") == 1.99
    assert value("waiting_seconds_total", stage="source", **{"for": "room"}) == 0.01
    assert value("waiting_seconds_total", stage="copy", **{"for": "input"}) == 0.899999999
    assert value("waiting_seconds_total", stage="copy", **{"for": "room"}) == 1e-9
    assert value("batches_total", stage="consumer") == 98
    assert value("bytes_total", stage="source") == 1e11
    assert value("queued_batches", stage="source") == 0.125
    assert value("first_batch_seconds") == 0.0015
    assert value("longest_wait_seconds") == 0.025
    assert value("worker_cpu_seconds_total") == 1.5
    assert value("longest_fill_seconds") == 0.04
    assert value("failed_batches_total", action="skipped") == 3
    assert value("failed_batches_total", action="replaced") == 4
    assert value("workers") == 2
    assert value("depth_batches", memory="host") == 5
    assert value("depth_batches", memory="device") == 6
    assert value("memory_bytes", memory="host") == 4096
    assert value("memory_bytes", memory="device") == 8192
    assert value("bottleneck", stage="source") == 1
    assert value("verdict", kind="more_workers") == 1
    for one_of, label, all_of in (("bottleneck", "stage", "Bottleneck"), ("verdict", "kind", "VerdictKind")):
        found = {dict(labels)[label]: number for (name, labels), number in samples.items() if name == f"penstock_{one_of}"}
        assert sum(found.values()) == 1
        assert found.keys() == enumerators(all_of), f"{one_of}: {found.keys() ^ enumerators(all_of)}"
    assert round(value("starved_ratio"), 3) == 0.8
    assert ("penstock_device_copies_total" in types) == ("penstock_placement" in types) == device
    assert ("penstock_sampled_batches_total" in types) == (not device)
    assert ("penstock_source_reads_total" in types) == ("penstock_source_read_bytes_total" in types) == device
    if not device:
        assert value("sampled_batches_total") == 97
        assert value("sampled_waiting_seconds_total") == 0.75
    else:
        assert value("busy_seconds_total", stage="transform") == 0.05
        assert value("source_reads_total") == 12 and value("source_read_bytes_total") == 192
        assert value("device_copies_total") == 97
        assert value("device_batches_total") == 96
        assert value("device_consuming_seconds_total") == 0.2
        assert value("device_waiting_seconds_total", **{"for": "batch"}) == 0.7
        assert value("device_waiting_seconds_total", **{"for": "copy"}) == 0.1
        assert value("device_longest_wait_seconds") == 0.03
        assert value("placement", chosen="cores 0-3 of NUMA node 0") == 1
    if text_string_to_metric_families is not None:
        theirs = {(sample.name, frozenset(sample.labels.items())): sample.value
                  for family in text_string_to_metric_families(text) for sample in family.samples}
        assert theirs == samples, "prometheus_client reads it otherwise"


def check_json(arguments):
    text = output("json", *arguments)
    assert text.count("\n") == 1
    stats = json.loads(text)
    assert stats["source"] == {"busy_seconds": 1.99, "waiting_for_input_seconds": 0, "waiting_for_room_seconds": 0.01,
                               "batches": 100, "bytes": 10**11, "queued": 0.125, "capacity": 4}
    assert stats["copy"]["waiting_for_room_seconds"] == 1e-9
    assert stats["consumer"]["batches"] == 98
    assert stats["first_batch_seconds"] == 0.0015 and stats["longest_wait_seconds"] == 0.025
    assert (stats["skipped"], stats["replaced"], stats["workers"], stats["host_depth"]) == (3, 4, 2, 5)
    assert (stats["device_depth"], stats["host_bytes"], stats["device_bytes"]) == (6, 4096, 8192)
    verdict = stats["verdict"]
    assert verdict["stage"] == "source" and verdict["kind"] == "more_workers"
    assert round(verdict["source_seconds"], 6) == 0.00995
    assert round(verdict["starved"], 3) == 0.8 and verdict["enough_workers"] == 10
    assert "10 workers with host_depth" in verdict["sentence"] and "5.0 times as fast" in verdict["sentence"]
    assert round(verdict["times_faster"], 1) == 5
    assert [gain["kind"] for gain in verdict["gains"]][:2] == ["more_workers", "faster_source"]
    assert verdict["gains"][0]["workers"] == 10 and round(verdict["gains"][1]["times_faster"], 1) == 2
    assert (stats["worker_cpu_seconds"], stats["longest_fill_seconds"]) == (1.5, 0.04)
    if arguments:
        assert stats["transform"]["busy_seconds"] == 0.05 and stats["sampled_batches"] == 0
        assert stats["device"] == {"copies": 97, "batches": 96, "consuming_seconds": 0.2, "awaiting_batch_seconds": 0.7,
                                   "awaiting_copy_seconds": 0.1, "longest_wait_seconds": 0.03}
        assert stats["placement"] == "cores 0-3 of NUMA node 0"
        assert stats["source_reads"] == {"calls": 12, "bytes": 192}
    else:
        assert stats["device"] is None and stats["placement"] is None and "transform" not in stats
        assert stats["source_reads"] is None
        assert (stats["sampled_batches"], stats["sampled_waiting_seconds"]) == (97, 0.75)


def main():
    for device in ([], ["device"]):
        check_prometheus(["prometheus", *device], {"job": "train", "path": ODD})
        check_prometheus(["bare", *device], {})
        check_json(device)
    assert json.loads(output("escaped")) == {"text": 'a\\b "c"\n\x01 é <\uFFFD'}
    parser = "and prometheus_client" if text_string_to_metric_families else "(prometheus_client is not installed)"
    print(f"the exports are right by their grammar {parser}")


main()
