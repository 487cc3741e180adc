# SPDX-License-Identifier: Apache-2.0
"""tf.data on CPUs: the input pipelines of TensorFlow's performance guide, with parallel maps, AUTOTUNE and prefetch."""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy
import tensorflow as tf
from workers import counts


def versions():
    return f"tensorflow {tf.__version__}"


def SETTINGS(task, cores):
    if task == "slow_sample":
        return [{"calls": 8, "threads": 8, "deterministic": kept, "ahead": 4} for kept in (True, False)]
    if task == "loop":
        return [{"ahead": ahead} for ahead in (0, 16)]
    if task == "storage":
        return [{"calls": 1, "ahead": 2}, {"calls": 2, "ahead": 2}]
    return [{"calls": -1, "ahead": -1}] + [{"calls": calls, "ahead": 2} for calls in counts(cores, -1)]  # -1: AUTOTUNE


def options(dataset, threads):
    """`threads`: where they sleep, more than the cores, of which TensorFlow has one each."""
    settings = tf.data.Options()
    settings.autotune.enabled = True
    if threads:
        settings.threading.private_threadpool_size = threads
    return dataset.with_options(settings)


def rounds(dataset, setting, epochs):
    """Epoch after epoch without a stop between them."""
    repeated = dataset if epochs == 1 else dataset.repeat()
    ahead = repeated.prefetch(setting["ahead"]) if setting["ahead"] else repeated
    yield from options(ahead, setting.get("threads"))


def load(path, label):
    file = tf.io.read_file(path)
    shape = tf.image.extract_jpeg_shape(file)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape, tf.zeros([0, 0, 4]), min_object_covered=0.0, area_range=(0.08, 1.0), aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=10, use_image_if_no_bounding_boxes=True)  # fmt: skip
    window = tf.stack([begin[0], begin[1], size[0], size[1]])
    pixels = tf.image.decode_and_crop_jpeg(file, window, channels=3)
    pixels = tf.image.resize(pixels, [224, 224], antialias=True)
    return tf.cast(tf.round(tf.clip_by_value(pixels, 0, 255)), tf.uint8), label


def jpeg_folder(data, setting, epochs):
    classes = sorted(data.jpegs.iterdir())
    files = [(str(path), label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]
    dataset = tf.data.Dataset.from_tensor_slices(([path for path, _ in files], [label for _, label in files]))
    dataset = dataset.shuffle(len(files)).map(load, num_parallel_calls=setting["calls"], deterministic=False).batch(64)
    yield from rounds(dataset, setting, epochs)


def fixed(path, size, batch, shuffle, setting, epochs):
    dataset = tf.data.FixedLengthRecordDataset(str(path), size, buffer_size=8 << 20).shuffle(shuffle).batch(batch)
    dataset = dataset.map(lambda rows: tf.reshape(tf.io.decode_raw(rows, tf.uint8, fixed_length=size), [-1, size]),
                          num_parallel_calls=setting["calls"])  # fmt: skip
    yield from rounds(dataset, setting, epochs)


def records(data, setting, epochs):
    yield from fixed(data.records, data.sizes["record_bytes"], 256, 1024, setting, epochs)


def storage(data, setting, epochs):
    """With a small shuffle: each accelerator has a buffer of its own."""
    yield from fixed(data.storage, data.sizes["storage_bytes"], 400, 800, setting, epochs)


def tokens(data, setting, epochs):
    values, offsets = numpy.fromfile(data.tokens, numpy.int32), numpy.fromfile(data.offsets, numpy.int64)
    texts = tf.RaggedTensor.from_row_splits(tf.constant(values), tf.constant(offsets), validate=False)
    dataset = tf.data.Dataset.range(len(offsets) - 1).shuffle(len(offsets)).batch(256)

    def pack(batch):
        rows = tf.gather(texts, batch)
        return rows.flat_values, rows.row_splits

    yield from rounds(dataset.map(pack, num_parallel_calls=setting["calls"]), setting, epochs)


def wait(i):
    time.sleep(0.1 if i % 500 == 499 else 0.001)
    return i


def slow_sample(data, setting, epochs):
    dataset = tf.data.Dataset.range(data.sizes["slow_samples"]).shuffle(data.sizes["slow_samples"])
    dataset = dataset.map(lambda i: tf.numpy_function(wait, [i], tf.int64, stateful=False),
                          num_parallel_calls=setting["calls"], deterministic=setting["deterministic"])  # fmt: skip
    yield from rounds(dataset.batch(64), setting, epochs)


def loop(data, setting, epochs):
    yield from rounds(tf.data.Dataset.range(data.sizes["loop_samples"]).batch(1), setting, epochs)


TASKS = {"jpeg_folder": jpeg_folder, "records_cached": records, "records_cold": records, "storage": storage,
         "tokens": tokens, "slow_sample": slow_sample, "loop": loop}  # fmt: skip
