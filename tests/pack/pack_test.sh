#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of penstock-pack from outside: pack_test.sh <case> <penstock-pack>. A case is one of the functions
# below. Works in a temporary directory of its own.

set -euo pipefail
pack=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Runs the program, which must exit with $1 and write $2, a fixed string, to out.txt or err.txt.
expect() {
  local exit_code=0
  "$pack" "${@:3}" > out.txt 2> err.txt || exit_code=$?
  [[ $exit_code == "$1" ]] || fail "exit code $exit_code, not $1: ${*:3}: $(cat err.txt)"
  grep --quiet --fixed-strings -- "$2" out.txt err.txt || fail "no '$2' in: $(cat out.txt err.txt)"
}

# make_folder COUNT: two classes, one of them with COUNT files of file_bytes bytes.
make_folder() {
  mkdir -p images/cat images/dog
  head -c $((file_bytes * $1)) /dev/urandom > all
  (cd images/cat && split -b "$file_bytes" -a 6 -d --additional-suffix=.jpg ../../all "")
  echo "a dog" > images/dog/1.jpg
  rm all
}
file_bytes=1000

copies() {
  make_folder 300
  expect 0 "a.pack: 301 records, 300 kB in" images -o a.pack
  [[ ! -e a.pack.partial ]] || fail "the partial file is left"
  expect 0 "301 records, 300 kB in" --verify a.pack
  grep --quiet "none damaged" out.txt || fail "$(cat out.txt)"
  # The bytes lie in the pack one file behind the other.
  for file in images/cat/000000.jpg images/cat/000299.jpg images/dog/1.jpg; do
    python3 -c 'import sys; sys.exit(open(sys.argv[1], "rb").read() not in open("a.pack", "rb").read())' "$file" ||
      fail "$file is not in the pack"
  done
  expect 0 "b.pack: 301 records" a.pack -o b.pack --threads 1  # of a pack, the same
  cmp a.pack b.pack
  expect 0 "c.pack: 301 records" images -o c.pack --threads 7
  cmp a.pack c.pack
}

index_videos() {
  mkdir -p clips/a
  ffmpeg -nostdin -v error -f lavfi -i testsrc2=size=96x64:rate=25:duration=2 -c:v libx264 -pix_fmt yuv420p clips/a/1.mp4
  cp clips/a/1.mp4 clips/2.MP4
  echo "no video" > clips/notes.txt
  expect 0 "2 videos, 100 frames" --index-videos clips
  grep --quiet "2 indexes made, 0 were there, 0 files failed" out.txt || fail "$(cat out.txt)"
  [[ -s clips/a/1.mp4.frames && -s clips/2.MP4.frames ]] || fail "no index is beside its file"
  expect 0 "0 indexes made, 2 were there" --index-videos clips --threads 1
  head -c 9 clips/a/1.mp4.frames > short && mv short clips/a/1.mp4.frames
  expect 0 "1 indexes made, 1 were there" --index-videos clips
  expect 0 "2 indexes made, 0 were there" --index-videos clips --index-folder indexes
  [[ $(find indexes -type f | wc -l) == 2 ]] || fail "$(ls indexes)"
  head -c 500 clips/a/1.mp4 > clips/bad.mp4
  expect 1 "clips/bad.mp4: " --index-videos clips
  grep --quiet "0 indexes made, 2 were there, 1 files failed" out.txt || fail "$(cat out.txt)"
  expect 1 "missing.mp4: " --index-videos missing.mp4
  mkdir empty
  expect 2 "empty has no files .mp4" --index-videos empty
  expect 2 "excludes" --index-videos clips -o a.pack
}

tar_files() {
  mkdir tars
  for i in 0 1 2 3; do
    echo "image $i" > "tars/000$i.jpg"
    echo "$((7 + i))" > "tars/000$i.cls"
  done
  (cd tars && tar --sort=name -cf ../0.tar 0000.* 0001.* && tar --sort=name -cf ../1.tar 0002.* 0003.*)
  expect 0 "a.pack: 4 records, 32 B in" 0.tar 1.tar -o a.pack
  grep --quiet "label" out.txt && fail "there are labels"
  (cd tars && tar -cf ../2.tar ./*.jpg)
  expect 0 "without labels" 2.tar -o b.pack
  # A label that cannot be read is not one that is missing.
  echo dog > tars/0000.cls
  (cd tars && tar -cf ../3.tar 0000.jpg 0000.cls)
  expect 1 "member 0000.cls (of sample 0) is lost" 3.tar -o d.pack
  head -c 1500 0.tar > cut.tar
  expect 1 "cut.tar" cut.tar -o c.pack
}

# labels_of PACK: the labels of its records.
labels_of() {
  python3 - "$1" << 'END'
import struct, sys
pack = open(sys.argv[1], "rb").read()
records, index = struct.unpack_from("<QQ", pack, 16)
print(*[struct.unpack_from("<QQIi", pack, index + 24 * i)[3] for i in range(records)])
END
}

# make_tar [NUMBER...]: a.tar of 0.jpg to 4.jpg, without labels for the numbers that are given.
make_tar() {
  rm -rf tars
  mkdir tars
  local i
  for i in 0 1 2 3 4; do
    echo "image $i" > "tars/$i.jpg"
    [[ " $* " == *" $i "* ]] || echo "$i" > "tars/$i.cls"
  done
  (cd tars && tar --sort=name -cf ../a.tar -- *)
}

# A sample without a label has -1, wherever it is, and is counted.
labels() {
  make_tar
  expect 0 "5 records" a.tar -o a.pack
  grep --quiet "label" out.txt && fail "there are labels: $(cat out.txt)"
  [[ $(labels_of a.pack) == "0 1 2 3 4" ]] || fail "$(labels_of a.pack)"
  make_tar 0
  expect 0 "; label -1, as they have no .cls: 1" a.tar -o b.pack
  [[ $(labels_of b.pack) == "-1 1 2 3 4" ]] || fail "$(labels_of b.pack)"
  make_tar 2 4
  expect 0 "; label -1, as they have no .cls: 2" a.tar -o c.pack
  [[ $(labels_of c.pack) == "0 1 -1 3 -1" ]] || fail "$(labels_of c.pack)"
  make_tar 0 1 2 3 4
  expect 0 "; without labels: no sample has a .cls" a.tar -o d.pack
  [[ $(labels_of d.pack) == "-1 -1 -1 -1 -1" ]] || fail "$(labels_of d.pack)"
}

empty_samples() {
  make_folder 10
  expect 0 "11 records" images -o good.pack
  : > images/cat/000003.jpg
  expect 1 "images/cat/000003.jpg: sample 3 is lost: the file is empty. Keep empty files with --allow-empty, or leave them out with --skip" \
    images -o a.pack
  expect 0 "8 records, 6.01 kB" images -o a.pack --allow-empty  # 3 are from before
  grep --quiet "and 3 from before" out.txt || fail "$(cat out.txt)"
  expect 0 "11 records, 9.01 kB" --verify a.pack
  expect 0 "11 records" a.pack -o b.pack  # What is in a pack was allowed.
  cmp a.pack b.pack
  make_tar
  : > tars/2.jpg
  (cd tars && tar --sort=name -cf ../a.tar -- *)
  expect 1 "a.tar/2.jpg: sample 2 is lost: the file is empty. Keep" a.tar -o c.pack
  expect 0 "and 2 from before" a.tar -o c.pack --allow-empty
  [[ $(labels_of c.pack) == "0 1 2 3 4" ]] || fail "$(labels_of c.pack)"
}

# Samples that cannot be read are left out, named and counted, up to a limit.
leaves_out_samples() {
  make_folder 30
  : > images/cat/000000.jpg
  : > images/cat/000007.jpg
  echo "version https://git-lfs.github.com/spec/v1" > images/cat/000029.jpg
  expect 1 "images/cat/000000.jpg: sample 0 is lost" images -o a.pack
  rm a.pack.partial
  expect 1 "images/cat/000029.jpg: more than 2 samples cannot be read, as --skip allows. This one: FileFolder: images/cat/000029.jpg: sample 29 is lost: it is a Git-LFS pointer" \
    images -o a.pack --skip 2
  [[ ! -e a.pack && -s a.pack.partial ]] || fail "there is no partial file"
  # The same command with a higher limit continues, and names all of them.
  expect 0 "1 records, 6 B" images -o a.pack --skip 3
  grep --quiet "and 27 from before; left out, as they cannot be read: 3" out.txt || fail "$(cat out.txt)"
  local name
  for name in 000000 000007 000029; do
    grep --quiet "^images/cat/$name.jpg is left out: FileFolder: .*is lost" err.txt || fail "$(cat err.txt)"
  done
  expect 0 "28 records, 27.0 kB" --verify a.pack
  expect 0 "28 records" images -o b.pack --skip 100 --threads 7
  cmp a.pack b.pack
  # One that could not be read, and now can, is not left out in silence.
  rm b.pack
  head -c 20000 a.pack > a.pack.partial
  mv a.pack good.pack
  echo "mended" > images/cat/000007.jpg
  expect 1 "record 6 is images/cat/000008.jpg with label 0, and the source has images/cat/000007.jpg with label 0 in its place" \
    images -o a.pack --skip 3
  : > images/cat/000007.jpg
  expect 1 "Give --skip again" images -o a.pack
  expect 0 "from before; left out, as they cannot be read: 3" images -o a.pack --skip 3
  cmp a.pack good.pack
  # Damage in a pack.
  python3 - << 'END'
pack = bytearray(open("good.pack", "rb").read())
pack[pack.index(open("images/cat/000011.jpg", "rb").read()) + 5] ^= 1
open("damaged.pack", "wb").write(pack)
END
  expect 1 "000011.jpg) is lost: its bytes have another checksum" damaged.pack -o c.pack
  rm c.pack.partial
  expect 0 "27 records" damaged.pack -o c.pack --skip 1
  grep --quiet "left out, as they cannot be read: 1" out.txt || fail "$(cat out.txt)"
  # A label that is no number.
  make_tar
  echo dog > tars/3.cls
  (cd tars && tar --sort=name -cf ../a.tar -- *)
  expect 1 "member 3.cls (of sample 3) is lost: \"dog\" is no number" a.tar -o d.pack
  expect 0 "left out, as they cannot be read: 1" a.tar -o d.pack --skip 1
  [[ $(labels_of d.pack) == "0 1 2 4" ]] || fail "$(labels_of d.pack)"
  # Nothing is left.
  rm images/dog/1.jpg images/cat/*
  : > images/dog/1.jpg
  : > images/cat/1.jpg
  expect 1 "no sample could be read" images -o e.pack --skip 9
}

what_the_bytes_are() {
  make_tar
  gzip --keep a.tar
  expect 1 "a.tar.gz: the tar is compressed: decompress it (gunzip)" a.tar.gz -o a.pack
  cp a.tar.gz a.tgz
  expect 1 "a.tgz: the tar is compressed" a.tgz -o a.pack
  expect 1 "a.tar.gz: the tar is compressed" a.tar.gz a.tgz -o a.pack
  cp a.tar shard
  expect 0 "5 records" shard -o shard.pack  # by its bytes
  gzip --keep shard
  expect 1 "shard.gz: the file is no pack: it does not begin with PNSTPACK; it is compressed with gzip" \
    shard.gz -o a.pack
  printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n' > pointer.tar
  cp pointer.tar pointer.pack
  expect 1 "pointer.tar: the file is no tar: it is a Git-LFS pointer" pointer.tar -o a.pack
  expect 1 "pointer.pack: the file is no pack" pointer.pack -o a.pack
  grep --quiet "it is a Git-LFS pointer" err.txt || fail "$(cat err.txt)"
  head -c $((10 * 1024)) a.tar > no_end.tar  # ten members of two blocks
  expect 1 "no_end.tar: the tar has no end" no_end.tar -o a.pack
  expect 0 "5 records" no_end.tar -o a.pack --allow-missing-end
}

indexes() {
  make_tar
  expect 0 "5 records" a.tar -o good.pack
  echo "v1.2 1
jpg 512 8 0.jpg" > a.idx
  expect 1 "--ignore-index" a.tar -o a.pack  # It has not the right place.
  grep --quiet "a.idx: member 0.jpg, 8 bytes, is not at byte 512 of the tar.*Remove the index" err.txt ||
    fail "$(cat err.txt)"
  expect 0 "5 records" a.tar -o a.pack --ignore-index
  cmp a.pack good.pack
}

left_by_tools() {
  make_folder 10
  expect 0 "11 records" images -o good.pack
  grep --quiet "ignored" out.txt && fail "$(cat out.txt)"
  mkdir -p images/.ipynb_checkpoints images/cat/.ipynb_checkpoints
  cp images/cat/000001.jpg images/cat/._000001.jpg
  cp images/cat/000001.jpg images/cat/.ipynb_checkpoints/a.jpg
  expect 0 "; ignored, as Jupyter or macOS left them: 3" images -o a.pack
  cmp a.pack good.pack
  (cd images/cat && tar -cf ../../a.tar 000001.jpg ._000001.jpg .ipynb_checkpoints/a.jpg)
  expect 0 "1 records, 1.00 kB" a.tar -o b.pack
  grep --quiet "; ignored, as Jupyter or macOS left them: 2" out.txt || fail "$(cat out.txt)"
}

# A file that cannot be read ends it. When it is mended, the same command continues, to the same bytes.
continues_after_an_error() {
  make_folder 3000
  expect 0 "3,001 records" images -o good.pack
  mv images/cat/002000.jpg kept
  : > images/cat/002000.jpg
  expect 1 "002000.jpg: sample 2000 is lost: the file is empty. Keep empty files with --allow-empty" \
    images -o a.pack --threads 3
  [[ ! -e a.pack && -s a.pack.partial ]] || fail "there is no partial file"
  expect 1 "002000.jpg" images -o a.pack
  mv kept images/cat/002000.jpg
  expect 0 "and 2,000 from before" images -o a.pack
  cmp a.pack good.pack
}

# A partial file is continued with the source that it was begun with, and no other.
keeps_to_its_source() {
  make_folder 300
  mkdir tars
  local i
  for i in {100..199}; do
    cp "images/cat/000$i.jpg" "tars/$i.jpg"
    echo "$i" > "tars/$i.cls"
  done
  (cd tars && tar --sort=name -cf ../a.tar ./*)
  expect 0 "100 records" a.tar -o a.pack
  mv a.pack good.pack
  head -c 60000 good.pack > begun
  cp begun a.pack.partial
  expect 0 "from before" a.tar -o a.pack
  cmp a.pack good.pack
  # Another label.
  rm a.pack
  cp begun a.pack.partial
  echo 999 > tars/101.cls
  (cd tars && tar --sort=name -cf ../a.tar ./*)
  expect 1 "record 1 is a.tar/./101.jpg with label 101, and the source has a.tar/./101.jpg with label 999" \
    a.tar -o a.pack
}

# Ctrl-C, or a terminal that is closed, and the same command again.
continues_after_ctrl_c() {
  file_bytes=8000 make_folder 4000
  expect 0 "4,001 records" images -o good.pack
  continues_after INT 130
  rm a.pack
  continues_after HUP 129
}
continues_after() {  # continues_after <signal> <exit status>
  local pid exit_code
  for _ in {1..10}; do
    "$pack" images -o a.pack --threads 1 > out.txt 2> err.txt &
    pid=$!
    until [[ (-s err.txt && -s a.pack.partial) || -e a.pack ]]; do sleep 0.002; done
    kill "-$1" "$pid" 2> /dev/null || true
    exit_code=0
    wait "$pid" || exit_code=$?
    [[ $exit_code == 0 ]] || break
    rm a.pack  # It was done before the signal came.
  done
  [[ $exit_code == "$2" ]] || fail "exit code $exit_code: $(cat out.txt err.txt)"
  grep --quiet "a.pack.partial: interrupted with .* of 4,001 records. The same command continues it" out.txt ||
    fail "$(cat out.txt)"
  [[ ! -e a.pack ]] || fail "the pack is there"
  expect 0 "from before" images -o a.pack
  cmp a.pack good.pack
}

# A limit on file sizes is an error like a full disk, and the same command continues.
continues_after_a_limit() {
  make_folder 300
  expect 0 "301 records" images -o good.pack
  local exit_code=0
  (ulimit -f 100 && "$pack" images -o a.pack > out.txt 2> err.txt) || exit_code=$?
  [[ $exit_code == 1 ]] || fail "exit code $exit_code: $(cat err.txt)"
  grep --quiet "a.pack.partial: cannot write: File too large" err.txt || fail "$(cat err.txt)"
  [[ ! -e a.pack ]] || fail "the pack is there"
  expect 0 "a.pack: " images -o a.pack
  cmp a.pack good.pack
}

# An empty word comes from a variable that is not set.
empty_words() {
  make_folder 3
  expect 2 "--output: the value is empty" images --output ""
  expect 2 "--output: the value is empty" images --output=
  expect 2 "-o: the value is empty" images -o ""
  expect 2 "one of them is empty" images "" -o a.pack
  expect 2 "one of them is empty" --verify ""
  expect 2 "--threads: the value is empty" images -o a.pack --threads=
  [[ ! -e a.pack && ! -e a.pack.partial ]] || fail "it began"
}

refuses() {
  make_folder 10
  expect 2 "source is required"
  expect 2 "--output" images
  expect 2 "--verify" images -o a.pack --verify
  expect 2 "--threads" images -o a.pack --threads 0
  expect 2 "--raw" images -o a.pack --raw --max-side 9 --quality 80
  expect 2 "--raw" a.pack --raw --verify
  expect 2 "several sources must be tar files" images images -o a.pack
  expect 2 "are for tar files, and images is none" images -o a.pack --ignore-index
  expect 2 "are for tar files, and images is none" images -o a.pack --allow-missing-end
  expect 2 "--skip" images -o a.pack --skip -1
  expect 2 "--skip" a.pack --skip 1 --verify
  expect 1 "missing: cannot open" missing -o a.pack
  expect 1 "is no pack" images/cat/000001.jpg -o a.pack
  expect 1 "cannot open it for writing" images -o no/a.pack
  : > there.pack
  expect 2 "there.pack is there already: remove it" images -o there.pack
  # The partial file is of something else.
  : > images/cat/000005.jpg
  expect 1 "the file is empty" images -o a.pack
  rm images/cat/000005.jpg
  expect 1 "was made in another way" images -o a.pack  # another number of samples
  echo x > images/cat/0000001.jpg
  expect 1 "record 1 is images/cat/000001.jpg with label 0, and the source has images/cat/0000001.jpg with label 0 in its place" images -o a.pack
  rm a.pack.partial
  expect 0 "11 records" images -o a.pack
}

verifies() {
  make_folder 10
  expect 0 "11 records" images -o good.pack
  make_folder 100
  expect 0 "101 records" images -o a.pack
  python3 - << 'END'
pack = bytearray(open("a.pack", "rb").read())
for number in (7, 42):
    place = pack.index(open(f"images/cat/{number:06}.jpg", "rb").read())
    pack[place + 500] ^= 1
open("a.pack", "wb").write(pack)
END
  expect 1 "2 damaged" --verify a.pack
  for name in images/cat/000007.jpg images/cat/000042.jpg; do
    grep --quiet "a.pack: record .* ($name) is lost: its bytes have another checksum" err.txt || fail "$(cat err.txt)"
  done
  expect 1 "000007.jpg" a.pack -o b.pack  # What is damaged is not copied.
  head -c 5000 a.pack > cut.pack
  expect 1 "it was cut" --verify cut.pack
  # One that is missing does not hide the next.
  expect 1 "missing: cannot open" --verify good.pack missing a.pack
  grep --quiet "^good.pack: 11 records.* none damaged" out.txt || fail "$(cat out.txt)"
  grep --quiet "^a.pack: 101 records.* 2 damaged" out.txt || fail "$(cat out.txt)"
  expect 1 "missing: cannot open" --verify missing good.pack
}

"$1"
