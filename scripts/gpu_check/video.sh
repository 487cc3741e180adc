# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its step measures clips of video files beside other loaders, and training from them.

video_targets="penstock_video_gpu_tests video_benchmark 17_video"

# T17 beside one batch that stays on the device, on the files that the benchmark has made.
video_training() {
  local videos=$build/training-videos
  mkdir -p "$videos"
  ln -sf "$PENSTOCK_VIDEO_CLIPS"/benchmark_*.mp4 "$videos"
  limited 240 python3 scripts/gpu_check/video_measure.py --program "$build/examples/resnet/video/17_video" \
    --videos "$videos" --plans "$build" --json "$folder/training.json" --seconds "$(($(time_left) - 10))"
}

# The tests of the video engines, what the benchmark measures, the peers that Python has, and training.
video() {
  export PENSTOCK_VIDEO_CLIPS=${PENSTOCK_VIDEO_CLIPS:-$build/clips}
  mkdir -p "$PENSTOCK_VIDEO_CLIPS"
  if [[ ! -x $build/benchmarks/video_benchmark ]]; then
    echo "there is no video_benchmark: it needs nvcc, the headers of FFmpeg's libraries and those of libffmpeg-nvenc-dev"
    return 1
  fi
  limited 120 "$build/tests/gpu/penstock_video_gpu_tests" &&
    limited 300 "$build/benchmarks/video_benchmark" --benchmark_out="$folder/video.json" --benchmark_out_format=json &&
    limited 120 python3 benchmarks/peers/video.py "$PENSTOCK_VIDEO_CLIPS" | tee "$folder/peers.txt" &&
    video_training
}
