# SPDX-License-Identifier: Apache-2.0
"""FFCV: its own file of the same JPEGs and of the same records, order RANDOM where the page cache holds it, else QUASI_RANDOM,
as its guide on performance advises."""

import functools
import importlib.metadata
import os

import numpy
import torch
from ffcv.fields import IntField, NDArrayField, RGBImageField
from ffcv.fields.decoders import IntDecoder, NDArrayDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter
from workers import counts


def versions():
    return f"ffcv {importlib.metadata.version('ffcv')}, torch {torch.__version__}, numba {importlib.metadata.version('numba')}"


def SETTINGS(task, cores):
    if task == "records_cold":
        return [{"workers": cores, "ahead": 2, "order": order} for order in ("RANDOM", "QUASI_RANDOM")]
    return [{"workers": workers, "ahead": 2, "order": "RANDOM"} for workers in counts(cores) if workers <= cores]


class Pictures:
    def __init__(self, data):
        classes = sorted(data.jpegs.iterdir())
        self.files = [(path, label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path, label = self.files[i]
        return path.read_bytes(), label


class Rows:
    def __init__(self, path, size):
        self.path, self.size = path, size

    def __len__(self):
        return self.path.stat().st_size // self.size

    def __getitem__(self, i):
        return (numpy.fromfile(self.path, numpy.uint8, self.size, offset=i * self.size),)


def write(data, name, dataset, fields):
    path = data.folder / f"{name}.beton"
    if path.exists():
        return
    partial = path.with_suffix(".partial")
    DatasetWriter(str(partial), fields, num_workers=len(os.sched_getaffinity(0))).from_indexed_dataset(dataset)
    partial.rename(path)


class JpegField(RGBImageField):
    """Takes the bytes of a JPEG file as they are, where RGBImageField would encode the pixels again."""

    def encode(self, destination, content, malloc):
        with_size = numpy.frombuffer(content, numpy.uint8)
        destination["mode"] = 0  # JPEG
        destination["height"], destination["width"] = size_of(content)
        destination["data_ptr"], storage = malloc(with_size.nbytes)
        storage[:] = with_size


def size_of(content):
    import io

    from PIL import Image

    width, height = Image.open(io.BytesIO(content)).size
    return height, width


def write_pictures(data):
    write(data, "jpeg", Pictures(data), {"image": JpegField(write_mode="jpg"), "label": IntField()})


def write_rows(data, name, size):
    write(data, name, Rows(data.folder / f"{name}.bin", size), {"row": NDArrayField(numpy.dtype("u1"), (size,))})


def batches(path, size, setting, epochs, pipelines, **more):
    loader = Loader(str(path), batch_size=size, num_workers=setting["workers"], order=OrderOption[setting["order"]],
                    os_cache=setting["order"] == "RANDOM", batches_ahead=setting["ahead"], drop_last=False,
                    pipelines=pipelines, **more)  # fmt: skip
    for _ in range(epochs):
        yield from loader


def jpeg_folder(data, setting, epochs):
    pipelines = {"image": [RandomResizedCropRGBImageDecoder((224, 224)), ToTensor()], "label": [IntDecoder(), ToTensor()]}
    fields = {"image": JpegField}
    yield from batches(data.folder / "jpeg.beton", 64, setting, epochs, pipelines, custom_fields=fields)


def records(data, setting, epochs, name, size):
    pipelines = {"row": [NDArrayDecoder(), ToTensor()]}
    for (rows,) in batches(data.folder / f"{name}.beton", size, setting, epochs, pipelines):
        yield rows


of_records = functools.partial(records, name="records", size=256)
TASKS = {"jpeg_folder": jpeg_folder, "records_cached": of_records, "records_cold": of_records}
PREPARE = {"jpeg_folder": write_pictures, "records_cached": lambda data: write_rows(data, "records", data.sizes["record_bytes"]),
           "records_cold": lambda data: write_rows(data, "records", data.sizes["record_bytes"])}  # fmt: skip
