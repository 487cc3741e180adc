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

tar_files() {
  mkdir tars
  for i in 0 1 2 3; do
    echo "image $i" > "tars/000$i.jpg"
    echo "$((7 + i))" > "tars/000$i.cls"
  done
  (cd tars && tar --sort=name -cf ../0.tar 0000.* 0001.* && tar --sort=name -cf ../1.tar 0002.* 0003.*)
  expect 0 "a.pack: 4 records, 32 B in" 0.tar 1.tar -o a.pack
  grep --quiet "without labels" out.txt && fail "there are labels"
  (cd tars && tar -cf ../2.tar ./*.jpg)
  expect 0 "without labels" 2.tar -o b.pack
  # A label that cannot be read is not one that is missing: the index has it at the image's place.
  (cd tars && tar -cf ../3.tar 0000.jpg 0000.cls)
  echo "v1.2 1
jpg 512 8 0000.jpg cls 512 2 0000.cls" > 3.idx
  expect 1 "member 0000.cls (of sample 0) is lost" 3.tar -o d.pack
  head -c 1500 0.tar > cut.tar
  expect 1 "cut.tar" cut.tar -o c.pack
}

# A file that cannot be read ends it. When it is mended, the same command continues, to the same bytes.
continues_after_an_error() {
  make_folder 3000
  expect 0 "3,001 records" images -o good.pack
  mv images/cat/002000.jpg kept
  : > images/cat/002000.jpg
  expect 1 "002000.jpg: sample 2000 is lost: the file is empty" images -o a.pack --threads 3
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

# Ctrl-C, and the same command again.
continues_after_ctrl_c() {
  file_bytes=8000 make_folder 4000
  expect 0 "4,001 records" images -o good.pack
  local pid exit_code
  for _ in {1..10}; do
    "$pack" images -o a.pack --threads 1 > out.txt 2> err.txt &
    pid=$!
    until [[ (-s err.txt && -s a.pack.partial) || -e a.pack ]]; do sleep 0.002; done
    kill -INT "$pid" 2> /dev/null || true
    exit_code=0
    wait "$pid" || exit_code=$?
    [[ $exit_code == 0 ]] || break
    rm a.pack  # It was done before the signal came.
  done
  [[ $exit_code == 130 ]] || fail "exit code $exit_code: $(cat out.txt err.txt)"
  grep --quiet "a.pack.partial: interrupted with .* of 4,001 records. The same command continues it" out.txt ||
    fail "$(cat out.txt)"
  [[ ! -e a.pack ]] || fail "the pack is there"
  expect 0 "from before" images -o a.pack
  cmp a.pack good.pack
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
