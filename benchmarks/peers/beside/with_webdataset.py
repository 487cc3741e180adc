# SPDX-License-Identifier: Apache-2.0
"""WebDataset in PyTorch's workers, by its own loader (WebLoader), as its documentation advises."""

import functools

import numpy
import webdataset
from workers import counts


def versions():
    import torch

    return f"webdataset {webdataset.__version__}, torch {torch.__version__}"


def SETTINGS(task, cores):
    return [{"workers": workers} for workers in counts(cores, 0)]


def pictures_and_labels(samples):
    return [sample[0] for sample in samples], numpy.array([int(sample[1]) for sample in samples])


def tar(data, setting, epochs, shuffle):
    dataset = webdataset.WebDataset(data.shards, shardshuffle=len(data.shards) if shuffle else False, empty_check=False,
                                    nodesplitter=webdataset.single_node_only)  # fmt: skip
    if shuffle:
        dataset = dataset.shuffle(1000)
    dataset = dataset.to_tuple("jpg;jpeg;JPEG", "cls").batched(64, collation_fn=pictures_and_labels, partial=True)
    workers = setting["workers"]
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    try:
        for _ in range(epochs):
            yield from loader
    finally:
        for stage in loader.pipeline:
            if hasattr(stage, "_iterator"):
                stage._iterator = None  # Which ends its workers.


TASKS = {"tar_sequential": functools.partial(tar, shuffle=False), "tar_shuffled": functools.partial(tar, shuffle=True)}
