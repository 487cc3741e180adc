#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the vectors that distributed/ranks_test.cpp compares with, by PyTorch's DDP over gloo on the CPU.

    make_ddp_vectors.py DIRECTORY                 resnet8-ddp2.json, resnet8-ddp4.json

make_vectors.py's networks, numbers and what is kept of them; here 2 and 4 processes have a part of the batch each, its
first images on the first rank, and batch norm of their own part. Losses are the means over the ranks; logits and
running statistics are rank 0's, and so is inference, of the whole batch. Needs torch with gloo, and numpy.
"""

import json
import math
import pathlib
import sys
import tempfile

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import make_vectors as whole

NAME = "resnet8"
PRECISIONS = {"float64": (torch.float64, 12), "float32": (torch.float32, 9)}


def parts(tensor, ranks):
    return tensor.chunk(ranks)


def local_step(network, batch, labels, ranks):
    """Gradients as DDP has them, in one process: how far inputs of ReLU are from 0 does not depend on who computes."""
    for part, its in zip(parts(batch, ranks), parts(labels, ranks)):
        (nn.functional.cross_entropy(network(part), its) / ranks).backward()


def best_batch(ranks):
    """As make_vectors.best_batch, by the first step alone."""
    distances = {}
    for seed in range(1, whole.BATCHES[NAME] + 1):
        network = whole.start(NAME, torch.float64)
        whole.smallest[0] = math.inf
        local_step(network, whole.batch_of(network, seed), whole.labels_of(network), ranks)
        if whole.smallest_gradient(network) >= whole.SMALLEST_GRADIENT:
            distances[seed] = whole.smallest[0]
    return max(distances.items(), key=lambda item: item[1])


def mean_over_ranks(value, ranks):
    total = torch.tensor([value], dtype=torch.float64)
    distributed.all_reduce(total)
    return total.item() / ranks


def train(rank, ranks, precision, seed):
    """What rank 0 keeps."""
    network = whole.start(NAME, precision)
    batch, labels = whole.batch_of(network, seed).to(precision), whole.labels_of(network)
    mine, its = parts(batch, ranks)[rank], parts(labels, ranks)[rank]
    model = DistributedDataParallel(network)
    sgd = torch.optim.SGD(
        [{"params": [p for p in network.parameters() if p.dim() > 1], "weight_decay": whole.DECAY},
         {"params": [p for p in network.parameters() if p.dim() == 1], "weight_decay": 0}],
        lr=whole.RATES[NAME], momentum=whole.MOMENTUM)  # fmt: skip
    kept = {"losses": []}
    for step in range(whole.STEPS):
        sgd.zero_grad()
        logits = model(mine)
        loss = nn.functional.cross_entropy(logits, its)
        loss.backward()
        kept["losses"].append(mean_over_ranks(loss.item(), ranks))
        if step == 0:
            kept["logits"] = logits.detach().flatten().tolist()
            kept["gradients"] = [whole.digest(p.grad, i) for i, p in enumerate(network.parameters())]
        sgd.step()
    kept["parameters"] = [whole.digest(p, i) for i, p in enumerate(network.parameters())]
    running = [buffer for key, buffer in network.named_buffers() if "running" in key]
    kept["statistics"] = [whole.digest(buffer, i) for i, buffer in enumerate(running)]
    network.eval()
    kept["inference"] = network(batch).detach().flatten().tolist()
    return kept


def rank_main(rank, ranks, seed, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    kept = {}
    for key, (precision, digits) in PRECISIONS.items():
        text = json.dumps(train(rank, ranks, precision, seed))
        kept[key] = json.loads(text, parse_float=lambda number, d=digits: float(f"%.{d}g" % float(number)))
    if rank == 0:
        pathlib.Path(folder, "kept.json").write_text(json.dumps(kept))
    distributed.destroy_process_group()


def write(directory, ranks):
    seed, distance = best_batch(ranks)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(rank_main, (ranks, seed, folder), ranks)
        kept = json.loads(pathlib.Path(folder, "kept.json").read_text())
    vectors = {
        "made_by": f"make_ddp_vectors.py, PyTorch {torch.__version__.split('+')[0]}",
        "batch_seed": seed,
        "rate": whole.RATES[NAME],
        **kept,
    }
    path = directory / f"{NAME}-ddp{ranks}.json"
    path.write_text(json.dumps(vectors, separators=(",", ":")).replace("],[", "],\n[").replace('},"', '},\n"') + "\n")
    losses = kept["float64"]["losses"]
    print(f"{path}: losses {losses[0]:.4f} .. {losses[-1]:.4f}, batch {seed}: {distance:.1e} from 0")


def main(arguments):
    if len(arguments) != 1:
        print(__doc__)
        return 2
    torch.set_num_threads(1)
    for ranks in (2, 4):
        write(pathlib.Path(arguments[0]), ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
