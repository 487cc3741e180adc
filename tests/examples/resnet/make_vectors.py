#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the vectors that vectors_test.cpp compares with, by PyTorch on the CPU; checks checkpoints.

    make_vectors.py write DIRECTORY                 resnet8.json, resnet18.json, resnet50.json
    make_vectors.py checkpoint FROM TO              loads FROM into PyTorch, strictly, and writes TO

Each network starts from numbers that both sides compute (uniform() is random.hpp's), sees one batch,
and takes ten steps of SGD on it: once in float64, the truth, and once in each precision of ours, to tell
what error is to be expected. In 16 bits that is float32 with all rounded that has 16 bits in memory: weights,
activations, and the gradients of both (scaled by 1024, a power of two, lest small ones underflow); with TF32 all
rounded that convolutions and the last layer multiply. Kept are the logits and the losses, and of each parameter's gradient and of the
parameter after the last step a few numbers: norm, mean, and four elements.

ReLU is no smooth function: where its input is 0 but for rounding, gradients of two right computations
differ a lot. So batch norm's biases push channels up and down in turn, and of several batches the
one is taken whose inputs of ReLU stay furthest from 0 in all ten steps. (Of ResNet-50's 31 million
inputs the closest is 3e-8 to 2e-6 from 0, which is about what rounding to float32 moves it by: 128 batches are
tried, which takes ten minutes.) Batches are left out where a parameter has no gradient but
for rounding: where ReLU passes all of each channel it passes, the next batch norm takes a bias away again, and the
error of such a gradient has nothing to be compared with.

Needs torch, numpy; checkpoint also safetensors. The networks are written out here: torchvision is
not needed.
"""

import json
import math
import pathlib
import sys

import numpy
import torch
from torch import nn

STEPS = 10
MOMENTUM, DECAY = 0.9, 5e-4
SAMPLED = 4
BATCHES = {"resnet8": 8, "resnet18": 8, "resnet50": 128}  # tried
SMALLEST_GRADIENT = 2e-3  # of a parameter, relative to the average

smallest = [math.inf]  # distance of an input of ReLU from 0

# name: (block, blocks of each stage, channels, image size, images, classes)
NETWORKS = {
    "resnet8": ("basic", [1, 1, 1], 16, 16, 8, 10),
    "resnet20": ("basic", [3, 3, 3], 16, 16, 8, 10),
    "resnet18": ("basic", [2, 2, 2, 2], 64, 64, 4, 20),
    "resnet50": ("bottleneck", [3, 4, 6, 3], 64, 64, 4, 20),
}
# At the others' rate ResNet-50's losses go up and down by a factor of ten, and each rounding's effect with them.
RATES = {"resnet8": 0.005, "resnet18": 0.005, "resnet50": 0.001}
WRITTEN = list(RATES)


# ---- The numbers that both sides compute ----------------------------------------------------------


def mix(x):
    x = x + numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def uniform(seed, count):
    """float64 in [-1, 1), each exact in float32."""
    index = numpy.arange(count, dtype=numpy.uint64)
    hashed = mix(mix(numpy.full(1, seed, dtype=numpy.uint64)) ^ index)
    return (hashed >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-23 - 1


def rounded(values, shape):
    """The numbers as float32 has them, in float64."""
    return torch.from_numpy(values.astype(numpy.float32).astype(numpy.float64)).reshape(shape)


def start_of(index, name, shape):
    """A parameter at the start; `index` counts the network's parameters."""
    values = uniform(1000 + index, math.prod(shape))
    if len(shape) == 4:
        return rounded(values * math.sqrt(6.0 / (shape[0] * shape[2] * shape[3])), shape)
    if name.startswith("fc."):
        return rounded(values * 0.03125, shape)
    if name.endswith("weight"):
        return rounded(0.25 + 0.0625 * values, shape)
    push = 0 if ".downsample." in name else 0.75 - 1.5 * (numpy.arange(len(values)) % 2)
    return rounded(push + 0.03125 * values, shape)


# ---- The networks ---------------------------------------------------------------------------------


def as_is(x):
    return x


def to_tfloat32(x):
    """To ten digits behind the first, ties to even; what is not finite stays."""
    bits = x.detach().contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class Precision:
    """What is rounded, each on the way forward and on the way back."""

    def __init__(self, dtype, stored=as_is, multiplied=as_is, scale=1):
        self.dtype, self.stored, self.multiplied, self.scale = dtype, stored, multiplied, scale


PRECISIONS = {
    "float64": Precision(torch.float64),
    "float32": Precision(torch.float32),
    "tfloat32": Precision(torch.float32, multiplied=to_tfloat32),
    "float16": Precision(torch.float32, stored=lambda x: x.half().float(), scale=1024),
    "bfloat16": Precision(torch.float32, stored=lambda x: x.bfloat16().float()),
}
now_in = [PRECISIONS["float64"]]


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(context, x, forward, backward):
        context.back = backward
        return forward(x)

    @staticmethod
    def backward(context, gradient):
        return context.back(gradient), None, None


def stored(x):
    rounding = now_in[0].stored
    return x if rounding is as_is else Rounded.apply(x, rounding, rounding)


def product(multiply, x, weight):
    """multiply(x, weight), whose result is stored: the weight as it is in memory, and of all three what is
    multiplied, forward and backward."""
    rounding = now_in[0].multiplied
    if rounding is as_is:
        return stored(multiply(x, stored(weight)))
    result = multiply(Rounded.apply(x, rounding, as_is), Rounded.apply(weight, rounding, as_is))
    return Rounded.apply(result, as_is, rounding)


class Conv2d(nn.Conv2d):
    def forward(self, x):
        return product(lambda a, w: self._conv_forward(a, w, None), x, self.weight)


def relu(x):
    smallest[0] = min(smallest[0], x.detach().abs().min().item())
    return stored(torch.relu(x))


class Block(nn.Module):
    def __init__(self, kind, inputs, channels, stride):
        super().__init__()
        if kind == "basic":
            parts = [(3, channels, stride), (3, channels, 1)]
        else:
            parts = [(1, channels, 1), (3, channels, stride), (1, 4 * channels, 1)]
        now = inputs
        for number, (kernel, outputs, step) in enumerate(parts, 1):
            conv = Conv2d(now, outputs, kernel, step, kernel // 2, bias=False)
            setattr(self, f"conv{number}", conv)
            setattr(self, f"bn{number}", nn.BatchNorm2d(outputs))
            now = outputs
        self.parts = len(parts)
        self.downsample = None
        if stride != 1 or inputs != now:
            self.downsample = nn.Sequential(
                Conv2d(inputs, now, 1, stride, bias=False), nn.BatchNorm2d(now)
            )
        self.outputs = now

    def forward(self, x):
        shortcut = x if self.downsample is None else stored(self.downsample(x))
        for number in range(1, self.parts + 1):
            x = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(x))
            x = relu(x + shortcut if number == self.parts else x)
        return x


class ResNet(nn.Module):
    def __init__(self, name):
        super().__init__()
        kind, stages, channels, self.image_size, self.images, self.classes = NETWORKS[name]
        self.large = channels == 64
        kernel, stride = (7, 2) if self.large else (3, 1)
        self.conv1 = Conv2d(3, channels, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        now = channels
        self.stages = len(stages)
        for stage, blocks in enumerate(stages):
            layers = []
            for i in range(blocks):
                layers.append(Block(kind, now, channels, 2 if stage > 0 and i == 0 else 1))
                now = layers[-1].outputs
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
            channels *= 2
        self.fc = nn.Linear(now, self.classes)

    def forward(self, x):
        x = relu(self.bn1(self.conv1(x)))
        if self.large:
            x = nn.functional.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        features = stored(x.mean((2, 3)))
        if now_in[0].multiplied is as_is:  # The logits are float, whatever the rest.
            return nn.functional.linear(features, stored(self.fc.weight), self.fc.bias)
        return product(lambda a, w: nn.functional.linear(a, w), features, self.fc.weight) + self.fc.bias


# ---- What is kept ---------------------------------------------------------------------------------


def digest(tensor, index):
    """Norm, mean and four elements, at places that both sides compute."""
    flat = tensor.detach().double().flatten()
    hashed = mix(mix(numpy.full(1, 5000 + index, dtype=numpy.uint64)) ^ numpy.arange(SAMPLED, dtype=numpy.uint64))
    places = (hashed % numpy.uint64(flat.numel())).astype(numpy.int64)
    return [flat.norm().item(), flat.mean().item()] + [flat[int(place)].item() for place in places]


def start(name, dtype):
    network = ResNet(name).to(dtype)
    with torch.no_grad():
        for index, (key, parameter) in enumerate(network.named_parameters()):
            parameter.copy_(start_of(index, key, tuple(parameter.shape)).to(dtype))
    return network


def batch_of(network, seed, images=None):
    images, size = images or network.images, network.image_size
    return rounded(uniform(seed, images * 3 * size * size), (images, 3, size, size))


def labels_of(network):
    labels = numpy.arange(network.images, dtype=numpy.uint64)
    labels = mix(mix(numpy.full(1, 2, dtype=numpy.uint64)) ^ labels) % numpy.uint64(network.classes)
    return torch.from_numpy(labels.astype(numpy.int64))


def smallest_gradient(network):
    """The least root mean square of a parameter's gradient, relative to the average."""
    sizes = [p.grad.norm().item() / math.sqrt(p.numel()) for p in network.parameters()]
    return min(sizes) * len(sizes) / sum(sizes)


def best_batch(name):
    """Of the batches that give each parameter a gradient: the seed of the one whose inputs of ReLU stay furthest
    from 0 until the last step, and how far."""
    distances = {}
    for seed in range(1, BATCHES[name] + 1):
        network = start(name, torch.float64)
        nn.functional.cross_entropy(network(batch_of(network, seed)), labels_of(network)).backward()
        if smallest_gradient(network) >= SMALLEST_GRADIENT:
            smallest[0] = math.inf
            run(name, PRECISIONS["float64"], seed)
            distances[seed] = smallest[0]
    return max(distances.items(), key=lambda item: item[1])


def run(name, precision, seed):
    now_in[0] = precision
    network = start(name, precision.dtype)
    batch = stored(batch_of(network, seed).to(precision.dtype))
    labels = labels_of(network)
    decaying = [p for p in network.parameters() if p.dim() > 1]
    others = [p for p in network.parameters() if p.dim() == 1]
    sgd = torch.optim.SGD(
        [{"params": decaying, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}],
        lr=RATES[name],
        momentum=MOMENTUM,
    )
    kept = {"losses": []}
    for step in range(STEPS):
        sgd.zero_grad()
        logits = network(batch)
        loss = nn.functional.cross_entropy(logits, labels)
        (loss * precision.scale).backward()
        for parameter in network.parameters():
            parameter.grad /= precision.scale
        kept["losses"].append(loss.item())
        if step == 0:
            kept["logits"] = logits.detach().flatten().tolist()
            kept["gradients"] = [digest(p.grad, i) for i, p in enumerate(network.parameters())]
        sgd.step()
    kept["parameters"] = [digest(p, i) for i, p in enumerate(network.parameters())]
    kept["statistics"] = [
        digest(buffer, i)
        for i, (key, buffer) in enumerate(b for b in network.named_buffers() if "running" in b[0])
    ]
    network.eval()
    kept["inference"] = network(batch).detach().flatten().tolist()
    now_in[0] = PRECISIONS["float64"]
    return kept


def write(directory):
    for name in WRITTEN:
        seed, distance = best_batch(name)
        vectors = {
            "made_by": f"make_vectors.py, PyTorch {torch.__version__.split('+')[0]}",
            "names": [key for key, _ in ResNet(name).named_parameters()],
            "batch_seed": seed,
            "rate": RATES[name],
            **{key: run(name, precision, seed) for key, precision in PRECISIONS.items()},
        }
        # Nine digits tell any two float32 apart; the truth is kept with twelve, what is rounded to fewer with seven.
        for key in PRECISIONS:
            digits = {"float64": 12, "float32": 9}.get(key, 7)
            for what, values in vectors[key].items():
                vectors[key][what] = json.loads(
                    json.dumps(values), parse_float=lambda text, d=digits: float(f"%.{d}g" % float(text))
                )
        path = directory / f"{name}.json"
        text = json.dumps(vectors, separators=(",", ":"))
        path.write_text(text.replace("],[", "],\n[").replace('},"', '},\n"') + "\n")
        losses = vectors["float64"]["losses"]
        print(f"{path}: losses {losses[0]:.4f} .. {losses[-1]:.4f}, batch {seed}: {distance:.1e} from 0")


# ---- Checkpoints ----------------------------------------------------------------------------------


def checkpoint(source, target):
    from safetensors.torch import load_file, save_file

    tensors = load_file(source)
    model = {key: value for key, value in tensors.items() if not key.startswith("momentum.")}
    stem, last = model["conv1.weight"], model["fc.weight"]
    name = {(16, 9): "resnet8", (16, 21): "resnet20", (64, 20): "resnet18", (64, 53): "resnet50"}[
        (stem.shape[0], sum(1 for key in model if model[key].dim() == 4))
    ]
    network = ResNet(name)
    network.fc = nn.Linear(last.shape[1], last.shape[0])
    network.load_state_dict(model)  # strict
    network.eval()
    with torch.no_grad():
        logits = network(batch_of(network, 1, images=2).float())
    print(name, " ".join(f"{value:.6f}" for value in logits.flatten().tolist()[:8]))
    # One type of each that we take; and not the momenta.
    state = {key: value.clone() for key, value in network.state_dict().items()}
    state["fc.weight"] = state["fc.weight"].double()
    state["conv1.weight"] = state["conv1.weight"].bfloat16()
    state["bn1.weight"] = state["bn1.weight"].half()
    save_file(state, target)


def main(arguments):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if len(arguments) == 2 and arguments[0] == "write":
        write(pathlib.Path(arguments[1]))
    elif len(arguments) == 3 and arguments[0] == "checkpoint":
        checkpoint(arguments[1], arguments[2])
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
