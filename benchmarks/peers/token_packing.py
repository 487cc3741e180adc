#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
token_packing.py [--python FILE] [--peers P,...] [--tokens N] [--seconds S] [--turns N] [--cpu N]

Batches of 16 sequences of 2,048 tokens out of one Megatron file in the page cache, shuffled: Packing, beside GPTDataset of
megatron-core, LitData's TokensLoader, and the packing of Grain and Energon. Each is a process on the same core, and they
have turns; the figure of each is the median. LitData and Energon read copies in their own formats.

concatenated  tokens, targets, position ids that begin again with each document, loss mask: ours and GPTDataset
plain         tokens and targets without documents: ours and TokensLoader
best_fit      whole documents with their numbers: ours, Grain, which is given documents as NumPy arrays, and Energon, which
              is given the choice of what is packed together

--python says which Python has the peers (pip install torch megatron-core grain litdata megatron-energon); a peer that is not
there is left out. Ours takes a C++20 compiler (CXX, else c++).
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH, LENGTH, END = 16, 2048, 50256
OURS = "penstock"
TASKS = {"concatenated": [OURS, "megatron-core"], "plain": [OURS, "litdata"], "best_fit": [OURS, "grain", "energon"]}
PROGRAM = r"""
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <penstock/packing.hpp>
#include <penstock/sampler.hpp>
#include <penstock/token_file.hpp>
#include <string>
#include <vector>

int main(int, char** argument) {  // file, task, seconds
  constexpr std::size_t kBatch = 16, kLength = 2048, kTokens = kBatch * kLength;
  const std::string task = argument[2];
  const bool fits = task == "best_fit", plain = task == "plain";
  const penstock::Packing packing(
      penstock::TokenFile::megatron(argument[1], {.mapped = true}),
      {.length = kLength,
       .method = fits ? penstock::PackingMethod::best_fit : penstock::PackingMethod::concatenate,
       .threads = 1});
  const penstock::Sampler sampler({.samples = packing.size(), .batch_size = kBatch, .shuffle = true, .drop_last = true});
  std::vector<std::int32_t> tokens(kTokens), others(kTokens), positions(kTokens);
  std::vector<std::uint8_t> mask(kTokens);
  penstock::PackedFields fields{.tokens = tokens};
  if (fits) fields.document_ids = others;
  if (!fits) fields.targets = others;
  if (!plain) fields.position_ids = positions;
  if (!plain && !fits) fields.loss_mask = mask;
  std::vector<std::uint64_t> samples;
  unsigned long long taken = 0;
  const auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  double begin = now(), end = begin;
  for (std::uint64_t epoch = 0; end - begin < std::atof(argument[3]); ++epoch)
    for (std::uint64_t batch = 0; batch < sampler.batches(); ++batch) {
      sampler.samples(epoch, batch, samples);
      packing.fill(samples, fields);
      asm volatile("" : : "r"(tokens.data()) : "memory");
      if (epoch == 0 && batch < 8) begin = now();  // The first ones are not counted.
      else taken += kTokens;
      if ((end = now()) - begin > std::atof(argument[3])) break;
    }
  std::printf("{\"tokens\": %llu, \"seconds\": %.6f}\n", taken, end - begin);
}
"""


# ---- The file ------------------------------------------------------------------------------------


def write_tokens(prefix, count):
    """Documents of lognormal lengths, 820 tokens on average, each with a token at its end."""
    import numpy

    random = numpy.random.default_rng(7)
    sizes = 2 + random.lognormal(numpy.log(450), 1.1, size=max(8, count // 400)).astype(numpy.int32)
    sizes = sizes[: int(numpy.searchsorted(numpy.cumsum(sizes, dtype=numpy.int64), count)) + 1]
    ends = numpy.cumsum(sizes, dtype=numpy.int64)
    tokens = random.integers(0, END, size=int(ends[-1]), dtype=numpy.uint16)
    tokens[ends - 1] = END
    tokens.tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1))
        sizes.tofile(index)
        (2 * (ends - sizes)).tofile(index)
        numpy.arange(len(sizes) + 1, dtype=numpy.int64).tofile(index)


def documents_of(prefix):
    import numpy

    with open(f"{prefix}.idx", "rb") as index:
        count = struct.unpack("<9xQBQQ", index.read(34))[2]
        sizes = numpy.fromfile(index, numpy.int32, count)
    tokens = numpy.memmap(f"{prefix}.bin", numpy.uint16, "r")
    return numpy.split(tokens, numpy.cumsum(sizes[:-1], dtype=numpy.int64))


# ---- The peers: each yields batches without end --------------------------------------------------


def megatron_core(prefix, folder):
    import numpy
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split
    from torch.utils.data import default_collate

    class Tokenizer:
        eod, eos, pad, vocab_size, unique_identifiers = END, END, END + 1, END + 2, {"name": "none"}

    config = GPTDatasetConfig(
        random_seed=7, sequence_length=LENGTH, split="1,0,0", blend=([prefix], None), path_to_cache=f"{folder}/cache",
        tokenizer=Tokenizer(), reset_position_ids=True, reset_attention_mask=False, eod_mask_loss=True,
        create_attention_mask=False)  # fmt: skip
    indexed = IndexedDataset(prefix, mmap=True)
    indices = numpy.arange(indexed.sequence_lengths.shape[0], dtype=numpy.int32)
    data = GPTDataset(indexed, prefix, indices, None, Split.train, config)
    while True:
        for begin in range(0, len(data) - BATCH + 1, BATCH):
            yield default_collate([data[i] for i in range(begin, begin + BATCH)])["tokens"]


def litdata(prefix, folder):
    import litdata
    from torch.utils.data import default_collate

    copy = f"{folder}/litdata"
    if not os.path.exists(copy):
        # One input of tokens at a time; a child of optimize() finds the function by its name.
        loader = litdata.TokensLoader(block_size=LENGTH + 1)
        litdata.optimize(fn=as_tensor, inputs=[prefix], output_dir=copy, num_workers=1, item_loader=loader,
                         chunk_size=(LENGTH + 1) * 4096)  # fmt: skip
    while True:
        data = litdata.StreamingDataset(copy, item_loader=litdata.TokensLoader(block_size=LENGTH + 1), shuffle=True,
                                        drop_last=True)  # fmt: skip
        some = []
        for row in data:
            some.append((row[:-1], row[1:]))
            if len(some) == BATCH:
                yield default_collate(some)[0]
                some = []


def as_tensor(prefix):
    import numpy
    import torch

    for document in documents_of(prefix):
        yield torch.from_numpy(document.astype(numpy.int32))


def grain(prefix, folder):
    import grain
    import numpy

    documents = [document[:LENGTH] for document in documents_of(prefix)]
    data = grain.MapDataset.source(documents).shuffle(seed=7).repeat(None)
    data = data.map(lambda document: {"tokens": document.astype(numpy.int32)}).to_iter_dataset(
        grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))  # fmt: skip
    data = grain.experimental.BestFitPackIterDataset(data, length_struct={"tokens": LENGTH}, num_packing_bins=BATCH * 4)
    for batch in data.batch(BATCH):
        yield batch["tokens"]


def energon(prefix, folder):
    """Energon reads samples of tar files and leaves the choice of what is packed together to its user: here by best fit
    over 1,000 documents, as ours."""
    import bisect
    import io
    import pathlib
    import tarfile

    import numpy
    import torch
    from megatron import energon
    from megatron.energon.flavors.webdataset import BaseWebdatasetFactory

    data = pathlib.Path(folder, "energon")
    if not data.exists():
        data.mkdir()
        with tarfile.open(data / "tokens.tar", "w") as tar:
            for number, document in enumerate(documents_of(prefix)):
                member = tarfile.TarInfo(f"{number:08}.bin")
                member.size = 2 * min(len(document), LENGTH)
                tar.addfile(member, io.BytesIO(document[:LENGTH].tobytes()))
        BaseWebdatasetFactory.prepare_dataset(data, ["tokens.tar"], split_parts_ratio=[("train", 1.0)], workers=1)
        (data / ".nv-meta/dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")

    @energon.edataclass
    class Document(energon.Sample):
        tokens: torch.Tensor

    @energon.edataclass
    class Packed(energon.Sample):
        tokens: torch.Tensor
        positions: torch.Tensor
        documents: torch.Tensor

    @energon.stateless
    def cook(sample):
        tokens = torch.from_numpy(numpy.frombuffer(sample["bin"], numpy.uint16).astype(numpy.int32))
        return Document(**energon.basic_sample_keys(sample), tokens=tokens)

    class Encoder(energon.DefaultTaskEncoder):
        cookers = [energon.Cooker(cook)]

        def select_samples_to_pack(self, samples):
            room, bins = [], {}  # sorted: (room, number of the bin)
            for sample in sorted(samples, key=lambda sample: -len(sample.tokens)):
                length = len(sample.tokens)
                place = bisect.bisect_left(room, (length, -1))
                left, number = room.pop(place) if place < len(room) else (LENGTH, len(bins))
                bins.setdefault(number, []).append(sample)
                bisect.insort(room, (left - length, number))
            return list(bins.values())

        @energon.stateless
        def pack_selected_samples(self, samples):
            lengths = [len(sample.tokens) for sample in samples]
            rest = LENGTH - sum(lengths)
            parts = lambda make: torch.cat([*map(make, range(len(samples))), torch.zeros(rest, dtype=torch.int32)])
            return Packed.derive_from(
                samples[0], tokens=parts(lambda i: samples[i].tokens),
                positions=parts(lambda i: torch.arange(lengths[i], dtype=torch.int32)),
                documents=parts(lambda i: torch.full((lengths[i],), i, dtype=torch.int32)))  # fmt: skip

    workers = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = energon.get_train_dataset(
        data, worker_config=workers, batch_size=BATCH, shuffle_buffer_size=1000, max_samples_per_sequence=1000,
        packing_buffer_size=1000, task_encoder=Encoder())  # fmt: skip
    for batch in energon.get_loader(dataset):
        yield batch.tokens


PEERS = {"megatron-core": megatron_core, "litdata": litdata, "grain": grain, "energon": energon}


def measure_peer(name, prefix, folder, seconds):
    batches = PEERS[name](prefix, folder)
    for _ in range(8):  # The first ones are not counted.
        shape = tuple(next(batches).shape)
    assert shape == (BATCH, LENGTH), shape
    begin, taken = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        next(batches)
        taken += BATCH * LENGTH
    return {"tokens": taken, "seconds": time.perf_counter() - begin}


# ---- Turns -----------------------------------------------------------------------------------------


def one_turn(name, task, prefix, folder, options):
    """Tokens a second, or why not."""
    if name == OURS:
        command = [f"{folder}/ours", prefix, task, str(options.seconds)]
    else:
        command = [options.python, "-B", __file__, "--one", name, prefix, folder, "--seconds", str(options.seconds)]
    limits = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **limits},
                              preexec_fn=lambda: os.sched_setaffinity(0, {options.cpu}))  # fmt: skip
    except subprocess.TimeoutExpired:
        return "not done in 300 s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    result = json.loads(done.stdout.strip().splitlines()[-1])
    return result["tokens"] / result["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--tokens", type=int, default=1 << 25)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not shutil.which(options.python):
        parser.error(f"--python: there is no {options.python}")
    if unknown := [name for name in options.peers if name not in PEERS]:
        parser.error(f"--peers: there is no {unknown[0]}, but {', '.join(PEERS)}")
    if options.write:
        return write_tokens(options.write[0], options.tokens)
    if options.one:
        return print(json.dumps(measure_peer(*options.one, options.seconds)))
    with tempfile.TemporaryDirectory() as folder:
        prefix, source = f"{folder}/tokens", pathlib.Path(folder, "ours.cpp")
        subprocess.run([options.python, "-B", __file__, "--write", prefix, "--tokens", str(options.tokens)], check=True)
        source.write_text(PROGRAM)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-DPENSTOCK_HEADER_ONLY", f"-I{ROOT / 'include'}",
                        source, "-o", f"{folder}/ours", "-pthread"], check=True)  # fmt: skip
        for task, names in TASKS.items():
            names = [name for name in names if name == OURS or name in options.peers]
            rates, missing = {name: [] for name in names}, {}
            for _ in range(options.turns):
                for name in names:
                    rate = missing.get(name) or one_turn(name, task, prefix, folder, options)
                    if isinstance(rate, str):
                        missing[name] = rate
                    else:
                        rates[name].append(rate)
            ours = statistics.median(rates[OURS]) if rates[OURS] else 0
            for name in names:
                if name in missing:
                    print(f"{task:13} {name:14} left out: {missing[name]}", flush=True)
                    continue
                rate = statistics.median(rates[name])
                print(f"{task:13} {name:14} {rate / 1e6:10.1f} M tokens/s   ours/it {ours / rate:8.1f}", flush=True)


if __name__ == "__main__":
    main()
