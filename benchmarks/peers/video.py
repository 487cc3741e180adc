#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clips of video files in batches on the GPU, by other loaders: SPDL, torchcodec and PyNvVideoCodec.

    video.py FOLDER [--threads 8,16] [--frames 16,64] [--seconds 4] [--peers spdl,torchcodec,pynvvideocodec]

It does what benchmarks/video_benchmark.cu does with the same files: clips of some frames that begin
anywhere, decoded by the video engines, resized to 112 x 112 pixels, in batches of 8. Each peer runs
in a thread pool, as its documentation shows it, and the main thread makes the batches. A peer that
is not installed is left out. The last lines are the frames of one random clip, as a latency.
"""

import argparse
import concurrent.futures
import pathlib
import random
import statistics
import threading
import time

CLIPS, SIZE, RATE, LENGTH = 8, 112, 30, 300


def spdl_clip():
    import spdl.io
    import torch

    config = spdl.io.cuda_config(device_index=0)

    def read(file, first, frames):
        window = (first / RATE, (first + frames) / RATE - 0.001)
        packets = spdl.io.demux_video(file, timestamp=window)
        packets = spdl.io.apply_bsf(packets, "h264_mp4toannexb")
        buffer = spdl.io.decode_packets_nvdec(packets, device_config=config, scale_width=SIZE, scale_height=SIZE)
        return spdl.io.to_torch(buffer)[:frames]

    return read, torch


def torchcodec_clip():
    import torch
    from torchcodec.decoders import VideoDecoder

    def read(file, first, frames):
        decoder = VideoDecoder(file, device="cuda", seek_mode="approximate")
        pixels = decoder.get_frames_in_range(first, first + frames).data
        return torch.nn.functional.interpolate(pixels.float(), size=(SIZE, SIZE), mode="bilinear")

    return read, torch


def pynvvideocodec_clip():
    import PyNvVideoCodec
    import torch

    kept = threading.local()

    def read(file, first, frames):
        if not hasattr(kept, "decoder"):
            kept.decoder = PyNvVideoCodec.SimpleDecoder(
                file, use_device_memory=True, output_color_type=PyNvVideoCodec.OutputColorType.RGBP,
                max_width=320, max_height=256)
        else:
            kept.decoder.reconfigure_decoder(file)
        planes = kept.decoder.get_batch_frames_by_index(list(range(first, first + frames)))
        pixels = torch.stack([torch.from_dlpack(plane) for plane in planes])
        return torch.nn.functional.interpolate(pixels.float(), size=(SIZE, SIZE), mode="bilinear")

    return read, torch


PEERS = {"spdl": spdl_clip, "torchcodec": torchcodec_clip, "pynvvideocodec": pynvvideocodec_clip}


def rate(read, torch, files, threads, frames, seconds):
    """Returns frames per second, after a warm-up of a quarter of the time."""
    choose = random.Random(1)

    def clip():
        return read(choose.choice(files), choose.randrange(LENGTH - frames), frames)

    done, begin, counted_from = 0, time.perf_counter(), None
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        ahead = [pool.submit(clip) for _ in range(threads + 2 * CLIPS)]
        while True:
            batch = []
            for _ in range(CLIPS):
                batch.append(ahead.pop(0).result())
                ahead.append(pool.submit(clip))
            torch.stack(batch)
            now = time.perf_counter()
            if counted_from is None and now - begin > seconds / 4:
                torch.cuda.synchronize()
                counted_from, done = time.perf_counter(), 0
            elif counted_from is not None:
                done += CLIPS * frames
                if now - counted_from > seconds:
                    torch.cuda.synchronize()
                    result = done / (time.perf_counter() - counted_from)
                    for left in ahead:
                        left.cancel()
                    return result


def latency(read, torch, files):
    """Returns the median milliseconds for one frame of a random file."""
    choose = random.Random(2)
    times = []
    for i in range(120):
        begin = time.perf_counter()
        read(choose.choice(files), choose.randrange(LENGTH - 1), 1)
        torch.cuda.synchronize()
        if i >= 20:
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", default="8,16")
    parser.add_argument("--frames", default="16,64")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--peers", default=",".join(PEERS))
    options = parser.parse_args()
    files = sorted(str(file) for file in options.folder.glob("benchmark_*.mp4"))
    if not files:
        parser.error(f"{options.folder} has no benchmark_*.mp4: video_benchmark makes them")
    for peer in options.peers.split(","):
        try:
            read, torch = PEERS[peer]()
        except ImportError as error:
            print(f"{peer}: not installed ({error})")
            continue
        try:
            shape = tuple(read(files[0], 60, 16).shape)
            print(f"{peer}: a clip is {shape}, its first frame takes {latency(read, torch, files):.2f} ms", flush=True)
            for frames in map(int, options.frames.split(",")):
                for threads in map(int, options.threads.split(",")):
                    found = rate(read, torch, files, threads, frames, options.seconds)
                    print(f"{peer}: clips of {frames} frames, {threads} threads: {found:.0f} frames/s", flush=True)
        except Exception as error:  # noqa: BLE001: the next peer still runs
            print(f"{peer}: fails: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
