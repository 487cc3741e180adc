#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# video_recipe_test.sh PROGRAM: the recipe clips_of_video over videos of three colours, one of which is cut.
set -euo pipefail
if [[ -n ${NEEDS_GPU-} ]] && ! nvidia-smi -L 2> /dev/null | grep --quiet GPU; then
  echo "skipped: no GPU"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for colour in red green blue; do
  mkdir -p "videos/$colour"
  for number in 1 2 3; do
    ffmpeg -v error -nostdin -f lavfi -i "color=$colour:size=128x96:rate=30:duration=0.$((3 * number))" -pix_fmt yuv420p \
      -c:v libx264 "videos/$colour/$number.mp4"
  done
done
head -c 700 videos/red/1.mp4 >videos/red/cut.mp4
VIDEO_FOLDER=videos timeout 120 "$1" | tee log
for line in 'class 1: green' 'train: 18 clips right, 0 wrong, 2 could not be read' \
  'validate: 18 clips right, 0 wrong, 2 could not be read'; do
  grep -qx "$line" log
done
grep -q '^bad clip: videos/red/cut.mp4: ' log
[[ $(find indexes -type f | wc -l) == 9 ]]
! timeout 120 "$1"
