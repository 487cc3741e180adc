# SPDX-License-Identifier: Apache-2.0
"""Finds the mutants by patterns: every place in the headers that looks like ordering, waiting, waking, locking or a bound. A mutant
is a text before a range of tokens and a text behind it, so mutants can nest and are compiled together. The texts call the
functions of schemata.hpp."""

import dataclasses
import re

# The calls that a mutant removes, with their kinds. A removed call does nothing and reports success.
REMOVED_CALLS = {
    "make_wait": "stream wait", "cudaStreamWaitEvent": "stream wait",
    "record": "event record", "try_record": "event record", "cudaEventRecord": "event record",
    "synchronize": "host wait", "cudaEventSynchronize": "host wait", "cudaStreamSynchronize": "host wait",
    "cudaDeviceSynchronize": "host wait", "wait": "host wait", "wait_until": "host wait", "wait_for": "host wait",
    "wait_on_host": "host wait", "wait_for_device": "host wait",
    "notify_one": "notify", "notify_all": "notify", "wake": "notify", "stage": "notify", "call_all": "notify",
    "lock": "lock", "try_lock": "lock", "unlock": "unlock",
    "request_stop": "stop", "end_run": "stop", "pause": "stop", "close": "stop", "stop": "stop", "join": "stop", "end": "stop",
    "end_pause": "stop",
    "current_exception": "error", "fail": "error", "lose": "error",
    "give_back": "return", "end_record": "return", "park": "return", "unpark": "return", "keep": "return", "orphan": "return", "forget": "return",
}  # fmt: skip

KINDS = ["stream wait", "event record", "host wait", "notify", "memory order", "lock", "unlock", "bound", "equality",
         "release order", "stop", "error", "return"]  # fmt: skip

# Bounds are mutated in the headers that hand batches and blocks over. These headers compute, describe or read files, take no part
# in that, and have property tests. A name means both the public header and the one of that name in detail/.
WITHOUT_BOUNDS = {
    "any_sampler.hpp", "error.hpp", "launch.hpp", "layout.hpp", "markers.hpp", "penstock.hpp",
    "file.hpp", "file_folder.hpp", "gathered_read.hpp", "mapped_records.hpp", "ranks.hpp", "record_file.hpp", "record_part.hpp", "sample_names.hpp", "sampler.hpp", "source.hpp", "state.hpp", "stats.hpp", "stats_export.hpp", "tar_shards.hpp",
    "tensor.hpp", "tune.hpp", "tuning.hpp", "verdict.hpp",
    "mds_index.hpp", "mds_shards.hpp", "json_reader.hpp",
    "npy_file.hpp", "npy_format.hpp", "number_at.hpp", "zip_directory.hpp",
    "subset.hpp",
    "tf_example.hpp", "tf_record_file.hpp", "tf_record_shard.hpp", "protobuf_fields.hpp",
    "class_walk.hpp", "escaped.hpp", "file_list.hpp", "launchers.hpp", "line_reader.hpp", "name_arena.hpp", "needed_ranges.hpp",
    "document_table.hpp", "in_parts.hpp", "mapped_file.hpp", "packing.hpp", "token_file.hpp", "token_index.hpp", "token_set.hpp", "token_values.hpp", "window_packer.hpp",
    "tar_format.hpp", "tar_index.hpp", "tar_samples.hpp", "tar_scan.hpp", "usable.hpp",
    "batch_costs.hpp", "batch_pace.hpp", "block_order.hpp", "bulk_launch.hpp", "cores.hpp", "crc32c.hpp", "host_allocation.hpp", "host_task.hpp", "json.hpp", "judge.hpp", "mix.hpp", "permutation.hpp", "pipeline_shape.hpp",
    "thread_usage.hpp", "replay.hpp", "replay_pass.hpp", "settings_search.hpp", "tune_plan.hpp", "tuner.hpp", "units.hpp", 
    "verdict_sentence.hpp",
}  # fmt: skip

_ATOMIC_CALL = re.compile(r"load|store|exchange|fetch_\w+|compare_exchange_(weak|strong)|test_and_set|clear|test")
_LOCKS = {"lock_guard", "unique_lock", "scoped_lock", "shared_lock"}
_BOUNDS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_EQUALITIES = {"==": "equal", "!=": "not_equal"}
_MUTATED_SIGN = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_SPINS = {"yield", "cpu_relax", "sleep_for"}


@dataclasses.dataclass
class Mutant:
    kind: str
    file: str  # below include/penstock
    line: int
    function: str
    source: str  # what is mutated
    change: str  # into what
    begin: int  # offsets into the file's text
    end: int
    before: str  # texts to insert at begin and end, with {n} for the mutant's number
    after: str
    number: int = 0
    ordinal: int = 0  # among mutants that read the same

    @property
    def key(self):
        """Identifies the mutant as long as the code around it is the same. It has no folder, line or number."""
        ordinal = f" #{self.ordinal + 1}" if self.ordinal else ""
        return f"{self.kind}, {name_of(self.file)}, {self.function}: {self.source} -> {self.change}{ordinal}"


def find_mutants(sources):
    """Returns all mutants of these headers, numbered from 1 in the order of the text."""
    atomics = {name for source in sources for name in _declared(source, ("atomic", "atomic_flag"))}
    threads = {name for source in sources for name in _declared(source, ("jthread", "thread"))}
    mutants = []
    for source in sources:
        found = [
            *_removed_calls(source, threads),
            *_polls(source),
            *_memory_orders(source, atomics),
            *_mutexes(source),
            *_releases(source),
            *(_comparisons(source) if name_of(source.name) not in WITHOUT_BOUNDS else ()),
        ]
        mutants += sorted(found, key=lambda m: (m.begin, -m.end))
    seen = {}
    for number, mutant in enumerate(mutants, 1):
        mutant.number = number
        mutant.ordinal = seen.get(mutant.key, 0)
        seen[mutant.key] = mutant.ordinal + 1
    return mutants


def unknown_names(sources):
    """Returns the names of WITHOUT_BOUNDS that are no header."""
    return sorted(WITHOUT_BOUNDS - {name_of(source.name) for source in sources})


def name_of(file):
    """Returns a header's name without its folder, which stays the same if the header moves."""
    return file.rpartition("/")[2]


def rewrite(source, mutants):
    """Returns the header's text with its mutants. Line numbers stay the same."""
    # At one place: first what closes, the inner before the outer; then what opens, the outer first.
    insertions = []
    for mutant in mutants:
        length = mutant.end - mutant.begin
        insertions.append((mutant.begin, 1, -length, mutant.before.format(n=mutant.number)))
        insertions.append((mutant.end, 0, length, mutant.after.format(n=mutant.number)))
    text, at = [], 0
    for place, _, _, inserted in sorted(insertions, key=lambda i: i[:3]):
        text += [source.text[at:place], inserted]
        at = place
    mutated = "".join(text) + source.text[at:]
    head, pragma, rest = mutated.partition("#pragma once\n")
    if not pragma:
        raise SystemExit(f"{source.name}: no line says #pragma once, below which its mutants' header belongs")
    return f"{head}{pragma}#include <penstock_mutation.hpp>\n#line {head.count(chr(10)) + 2}\n{rest}"


def _mutant(source, kind, first, last, change, before, after, shown=None):
    escape = lambda text: text.replace("{", "{{").replace("}", "}}").replace("{{n}}", "{n}")
    return Mutant(kind, source.name, source.line_of(first), source.function_of(first),
                  shown or source.span(first, last), change, source.tokens[first].begin, source.tokens[last].end,
                  escape(before), escape(after))  # fmt: skip


def _removed_calls(source, threads):
    for i in source.names():
        is_library_call = source[i - 2] == "std" and source[i - 1] == "::" and source[i + 1] == "("
        if not (source.is_call(i) or source[i] == "current_exception" and is_library_call):
            continue
        kind = REMOVED_CALLS.get(source[i])
        if source[i] == "clear" and source[i - 2] in threads:
            kind = "stop"  # Joins them.
        has_other_meaning = source.arguments(i) and source[i] != "end_run"  # stops a watch, closes a file
        if kind == "stop" and has_other_meaning or source[i] == "end" and not source.is_statement(i):
            kind = None  # An `end` that is no statement is an iterator.
        if kind:
            first, last = source.object_begin(i), source.partner[i + 1]
            if kind == "error" and _has_no_way_on(source, last):
                continue
            yield _mutant(source, kind, first, last, "nothing",
                          "penstock_mutation::skip({n}, [&]() -> decltype(auto) { return ", "; })")  # fmt: skip


def _has_no_way_on(source, last):
    """Returns whether the call is the end of a function that never returns, or has to return something. A compiler may assume that
    such a call does not return."""
    end = last + 2 if source[last + 1] == ";" else last
    while source[end] == "}":  # of a block that ends there too, of the function
        head = re.split(r"[;{}]", source.text[:source.tokens[source.partner[end]].begin])[-1]
        if "[[noreturn]]" in head or re.search(r"\bbool \w+\(", head):
            return True
        end += 1
    return False


def _polls(source):
    """Finds waits that poll: a query that must report success, or a loop that does nothing else."""
    for i in source.names():
        if source[i] == "query" and source.is_call(i):
            last = source.partner[i + 1] + 2
            if source[last - 1] == "==" and source[last] == "cudaSuccess":
                first = source.object_begin(i)
                yield _mutant(source, "host wait", first, last, "true", "(penstock_mutation::is({n}) || ", ")")
        if source[i] == "while" and source[i - 1] != "}":
            last = source.partner[i + 1]
            body = source.span(last + 1, last + 5)
            if any(re.search(rf"^(std::this_thread::)?{spin}\b", body) for spin in _SPINS):
                yield _mutant(source, "host wait", i + 2, last - 1, "false", "!penstock_mutation::is({n}) && (", ")")


def _memory_orders(source, atomics):
    for i in source.names():
        if not (_ATOMIC_CALL.fullmatch(source[i]) and source[i - 1] in (".", "->") and source.is_call(i)):
            continue
        first, last = source.object_begin(i), source.partner[i + 1]
        call = source.span(first, last)
        orders = set(re.findall(r"memory_order(?:_|::)(\w+)", source.span(i + 2, last)))
        if not orders and source[i - 2] in atomics and source[i] != "clear":  # A container has that, too.
            separator = ", " if source.arguments(i) else ""
            relaxed = f"{call[:-1]}{separator}std::memory_order_relaxed)"
        elif orders - {"relaxed"}:
            head = source.span(first, i + 1)
            relaxed = head + re.sub(r"(memory_order(?:_|::))\w+", r"\1relaxed", call[len(head):])
        else:
            continue
        # Not one call with an order that depends: a compiler takes that for the strongest one.
        yield _mutant(source, "memory order", first, last, "relaxed",
                      f"(penstock_mutation::is({{n}}) ? {relaxed} : ", ")")  # fmt: skip


def _mutexes(source):
    for i in source.names():
        if source[i] in _LOCKS and source[i - 1] == "::" and source[i + 2] == "(" and source.tokens[i + 1].kind == "name":
            first, last = source.arguments(i + 1)[0]
            yield _mutant(source, "lock", first, last, "another mutex", "penstock_mutation::mutex({n}, ", ")",
                          shown=source.span(i - 2, source.partner[i + 2]))  # fmt: skip


def _releases(source):
    for i in source.names():
        if source[i] == "release_after" and source.is_call(i):
            arguments = source.arguments(i)
            first, last = next((a for a in reversed(arguments) if "stream" in source.span(*a)), arguments[-1])
            yield _mutant(source, "release order", first, last, "after no stream",
                          "penstock_mutation::no_stream({n}, ", ")",
                          shown=source.span(source.object_begin(i), source.partner[i + 1]))  # fmt: skip


def _comparisons(source):
    for i, token in enumerate(source.tokens):
        if token.kind != "sign" or not token.space_before or source[i - 1] in ("template", "operator"):
            continue
        if source[i + 1] == ">" and not source.tokens[i + 1].space_before:
            continue  # a shift
        if not source.function_of(i) or re.search(r"\b(if constexpr |static_assert)\([^;{}]*$", source.text[:token.begin]):
            continue  # decided by the compiler
        kind = "bound" if token.text in _BOUNDS else "equality" if token.text in _EQUALITIES else None
        if kind:
            name = {**_BOUNDS, **_EQUALITIES}[token.text]
            yield _mutant(source, kind, i, i, _MUTATED_SIGN[token.text],
                          "", f" penstock_mutation::{name}({{n}}) {token.text}",
                          shown=source.span(*source.operands(i)))  # fmt: skip


def _declared(source, types):
    """Returns the names of variables, members and parameters of the std:: types, and of containers of them."""
    for i in source.names():
        if source[i] in types and source[i - 1] == "::" and source[i - 2] == "std":
            j = i + 1
            depth = 0
            while source[j] in ("<", ">", "[", "]", "&", "::") or depth > 0:
                depth += {"<": 1, ">": -1}.get(source[j], 0)
                j += 1
            while j < len(source.tokens) and source.tokens[j].kind == "name":
                yield source[j]
                j += 1
                if source[j] == "{":
                    j = source.partner[j] + 1
                if source[j] != ",":
                    break
                j += 1
