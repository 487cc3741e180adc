#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
pytorch_inference.py [--models resnet18,resnet50] [--batches 128,1,512,32,8] [--modes max_autotune,half,eager]
                     [--image-size 224] [--seconds 2] [--repeat 5] [--limit SECONDS] [--json FILE] [--device cpu]

Inference as PyTorch does it: torchvision's ResNet (or the same, written out here, where there is no torchvision) with
random weights and 1000 classes, on float images. To be run on the same machine, right before or after
`examples/resnet/infer/ladder`, which shows its figures with --peer FILE.

  eager         float32, TF32 off, cudnn.benchmark
  half          the same in float16, channels_last
  max_autotune  torch.compile(mode="max-autotune"), which has CUDA graphs, float16, channels_last

Each is measured three times. compute: on a batch that lies on the device. bus: batches of float32 in pinned memory, copied
with non_blocking on a stream of their own while the batch before is computed (two device buffers), converted on the
device; what a program that is fed by the CPU has. bytes: the same with batches of uint8, a quarter to copy. Milliseconds are of one batch: the median of --repeat rounds, each of
--seconds seconds in all divided by --repeat, timed on the host from a synchronised device to the next; compute_event_ms
is the same by CUDA events.

Each configuration (model, batch, mode) is a process of its own. The modes of a batch size have --limit seconds
together: then the one that runs is ended, which is told in its place: max-autotune compiles for minutes. Where
TORCHINDUCTOR_CACHE_DIR stays the same, a second run goes on with what the first one compiled. FILE is written after
each configuration. The order is that of the options: models, and for each batch all modes. Exit status 1 when a
configuration failed, 130 after Ctrl-C.

--device cpu tries the modes without a GPU, with a small --image-size; its figures say nothing of one, and there is
neither a copy stream nor an event.
"""

import argparse
import json
import pathlib
import signal
import statistics
import sys
import time

import torch
from torch import nn

import own_process

MODES = ("max_autotune", "half", "eager")
MODELS = ("resnet18", "resnet50")
WARMUP = 10  # batches, behind what the compiler takes


# ---- The model ------------------------------------------------------------------------------------


class Block(nn.Module):
    """basic: 3x3, 3x3. bottleneck: 1x1, 3x3 with the stride ("v1.5"), 1x1 to four times the channels."""

    def __init__(self, channels_in, channels, stride, bottleneck):
        super().__init__()
        shapes = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
        out = channels * (4 if bottleneck else 1)
        widths = [channels_in, *[channels] * (len(shapes) - 1), out]
        layers = []
        for a, b, (kernel, step) in zip(widths, widths[1:], shapes):
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.path = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.path(x) + self.shortcut(x))


def written_out(name, classes):
    counts, bottleneck = {"resnet18": ((2, 2, 2, 2), False), "resnet50": ((3, 4, 6, 3), True)}[name]
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for stage, count in enumerate(counts):
        for block in range(count):
            channels = 64 << stage
            layers.append(Block(width, channels, 2 if stage > 0 and block == 0 else 1, bottleneck))
            width = channels * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def make_model(name, classes=1000):
    """The model, and where it comes from."""
    try:
        import torchvision
    except ImportError:
        return written_out(name, classes), "written out"
    model = getattr(torchvision.models, name)(weights=None, num_classes=classes)
    return model, f"torchvision {torchvision.__version__}"


# ---- One configuration ----------------------------------------------------------------------------


class Measured:
    """A model in a mode, and batches for it."""

    def __init__(self, model, batch, mode, option):
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        self.on_gpu = option.device == "cuda"
        self.device = torch.device(option.device)
        self.type = torch.float32 if mode == "eager" else torch.float16
        self.memory = torch.contiguous_format if mode == "eager" else torch.channels_last
        network, self.source = make_model(model)
        network = network.eval().to(self.device, self.type, memory_format=self.memory)
        self.network = torch.compile(network, mode="max-autotune") if mode == "max_autotune" else network
        shape = (batch, 3, option.image_size, option.image_size)
        self.floats = [torch.rand(shape, pin_memory=self.on_gpu) for _ in range(2)]
        self.bytes = [torch.zeros(shape, dtype=torch.uint8, pin_memory=self.on_gpu).random_(256) for _ in range(2)]
        self.resident = self.converted(self.floats[0].to(self.device))

    def converted(self, images):
        return images.to(self.type, memory_format=self.memory)

    def synchronize(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def compute(self, count):
        for _ in range(count):
            self.network(self.resident)

    def over_the_bus(self, host):
        """What computes some batches: i + 1 is copied while i is computed, and a device buffer's next copy waits until
        it was read."""
        if not self.on_gpu:
            return lambda count: [self.network(self.converted(host[i % 2])) for i in range(count)]
        copies = torch.cuda.Stream()
        buffers = [torch.empty_like(images, device=self.device) for images in host]
        copied, read = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))

        def copy(i):
            with torch.cuda.stream(copies):
                copies.wait_event(read[i % 2])  # at first of no work: no wait
                buffers[i % 2].copy_(host[i % 2], non_blocking=True)
                copied[i % 2].record(copies)

        def compute(count):
            current = torch.cuda.current_stream()
            copies.wait_stream(current)
            copy(0)
            for i in range(count):
                if i + 1 < count:
                    copy(i + 1)
                current.wait_event(copied[i % 2])
                images = self.converted(buffers[i % 2])
                if images is not buffers[i % 2]:
                    read[i % 2].record(current)
                self.network(images)
                if images is buffers[i % 2]:  # it is read by the network itself
                    read[i % 2].record(current)

        return compute

    def milliseconds(self, work, option):
        """Of one batch: each round's."""
        self.synchronize()
        begin = time.perf_counter()
        work(3)
        self.synchronize()
        one = (time.perf_counter() - begin) / 3
        count = max(3, int(option.seconds / option.repeat / one))
        rounds = []
        for _ in range(option.repeat):
            begin = time.perf_counter()
            work(count)
            self.synchronize()
            rounds.append(1000 * (time.perf_counter() - begin) / count)
        return rounds

    def event_milliseconds(self, option):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        rounds = []
        for _ in range(option.repeat):
            begin.record()
            self.compute(WARMUP)
            end.record()
            end.synchronize()
            rounds.append(begin.elapsed_time(end) / WARMUP)
        return statistics.median(rounds)


@torch.inference_mode()
def measure(model, batch, mode, option):
    begin = time.perf_counter()
    measured = Measured(model, batch, mode, option)
    measured.compute(WARMUP)
    measured.synchronize()
    result = {"source": measured.source, "ready_s": time.perf_counter() - begin}
    for name, work in (("compute", measured.compute), ("bus", measured.over_the_bus(measured.floats)),
                       ("bytes", measured.over_the_bus(measured.bytes))):  # fmt: skip
        work(WARMUP)
        rounds = measured.milliseconds(work, option)
        median = statistics.median(rounds)
        result.update({f"{name}_ms": median, f"{name}_all_ms": rounds,
                       f"{name}_images_per_second": 1000 * batch / median})  # fmt: skip
    if measured.on_gpu:
        result["compute_event_ms"] = measured.event_milliseconds(option)
    return result


# ---- All of them ----------------------------------------------------------------------------------


def measure_all(option):
    results = []
    print(f"{'model':10}{'batch':>6}  {'mode':14}{'compute ms':>11}{'images/s':>11}{'bus ms':>11}{'images/s':>11}"
          f"{'bytes ms':>11}{'images/s':>11}")
    for configuration in ((m, b, mode) for m in option.models for b in option.batches for mode in option.modes):
        model, batch, mode = configuration
        if mode == option.modes[0]:
            end = time.monotonic() + option.limit
        result = {"model": model, "batch": batch, "mode": mode, "image_size": option.image_size,
                  "pytorch": torch.__version__, "device": option.device}  # fmt: skip
        result.update(own_process.measure(["--one", ",".join(map(str, configuration))], end - time.monotonic()))
        figures = result.get("failed") or "".join(
            f"{result[f'{what}_ms']:11.3f}{result[f'{what}_images_per_second']:11.1f}"
            for what in ("compute", "bus", "bytes"))
        print(f"{model:10}{batch:6}  {mode:14}{figures}", flush=True)
        results.append(result)
        if option.json:
            option.json.write_text(json.dumps(results, indent=1) + "\n")
    return any("failed" in result for result in results)


def options():
    def words(known):
        def parse(text):
            if unknown := set(text.split(",")) - set(known):
                raise argparse.ArgumentTypeError(f"no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
            return text.split(",")

        return parse

    def sizes(text):
        if not all(word.isdigit() and int(word) > 0 for word in text.split(",")):
            raise argparse.ArgumentTypeError(f"{text} are no batch sizes, as 1,8,128")
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("--models", type=words(MODELS), default=MODELS)
    parser.add_argument("--batches", type=sizes, default=(128, 1, 512, 32, 8))
    parser.add_argument("--modes", type=words(MODES), default=MODES)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # model,batch,mode: here, into --json
    return parser.parse_args()


def main():
    option = options()
    if option.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU (--device cpu tries the modes without one)")
    if option.one:
        model, batch, mode = option.one.split(",")
        option.json.write_text(json.dumps(measure(model, int(batch), mode, option)))
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # A child does not outlive this.
    where = torch.cuda.get_device_name() if option.device == "cuda" else "on the CPU: no figure for a GPU"
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {where}", flush=True)
    try:
        return measure_all(option)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
