# SPDX-License-Identifier: Apache-2.0
"""What tests of the training programs share: runs, interrupts at a place that is certain, checkpoints."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time

SMALL = ["--model", "resnet8", "--image-size", "16", "--cache", "."]  # the emulated programs', on tiny sets
F_SETPIPE_SZ = 1031
PAGE = os.sysconf("SC_PAGE_SIZE")


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def run(command, status=0, **more):
    """What the program wrote: to its output, to its error output. It must end with `status`."""
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=300, **more)  # fmt: skip
    require(done.returncode == status,
            f"{' '.join(map(str, command))}\nexit status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")  # fmt: skip
    return done.stdout, done.stderr


def interrupt(command, room, number=signal.SIGINT):
    """Interrupts a program once it has told of its progress, and before it tells more than `room` bytes: its
    messages go into a pipe with no more room than that, at which it stands still until it has the signal. Returns
    what it wrote to its output; it must end as an interrupted program does."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, PAGE)
    os.write(writer, b"\n" * (PAGE - room))
    child = subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as messages:
        while True:
            waiting = int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4), sys.byteorder)
            if waiting > PAGE - room:
                break
            require(child.poll() is None, f"{command} ended before it was interrupted")
            time.sleep(0.002)
        child.send_signal(number)
        told = messages.read().strip().decode()
    output = child.stdout.read()
    status = child.wait(300)
    require(status == 128 + number, f"{command}: exit status {status} after an interrupt\n{output}{told}")
    return output


def header_of(data):
    """Of a safetensors file: the header, and where it ends."""
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), end


def without_checksum(data):
    """A safetensors file of our programs as those of earlier versions wrote it."""
    header, end = header_of(data)
    header.get("__metadata__", {}).pop("penstock.crc32c", None)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[end:]


def with_value(data, tensor, value, element=0):
    """A safetensors file with another value in a tensor of float32, and no checksum."""
    data = without_checksum(data)
    header, end = header_of(data)
    place = end + header[tensor]["data_offsets"][0] + 4 * element
    return data[:place] + struct.pack("<f", value) + data[place + 4 :]


def notes_of(checkpoint):
    """What is in a checkpoint besides tensors."""
    return json.loads(header_of(checkpoint.read_bytes())[0]["__metadata__"]["penstock"])


def tensors_of(checkpoint):
    """Places and bytes of all tensors, to be compared."""
    data = checkpoint.read_bytes()
    header, end = header_of(data)
    del header["__metadata__"]
    return header, data[end:]
