#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# video_test.sh CLIPS FFMPEG: the example delivers the clips of a folder, and names the file that is no video.
set -euo pipefail
clips=$1 ffmpeg=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for number in $(seq 9); do
  if [[ $number -eq 1 ]]; then
    "$ffmpeg" -v error -nostdin -f lavfi -i testsrc2=size=128x96:rate=25:duration=2 -c:v libx264 "$folder/1.mp4"
  else
    cp "$folder/1.mp4" "$folder/$number.mp4"
  fi
done
"$clips" "$folder" | tee "$folder/log"
grep -qx '9 clips' "$folder/log"
[[ -s $folder/9.mp4.frames ]]
echo 'no video' >"$folder/bad.mkv"
"$clips" "$folder" | tee "$folder/log"
grep -q 'bad.mkv: is no MP4 or Matroska file' "$folder/log"
