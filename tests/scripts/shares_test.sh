#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# shares_test.sh ROOT: which share .ci/run takes: by the number of the commit, by --share, in a shallow clone, and
# without git; that it refuses what is no share; and that the
# workflow runs all shares.
set -euo pipefail

root=$1
command -v git >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/project"
cd "$work/project"
mkdir -p .ci scripts tests
cp "$root/.ci/run" .ci/
cp "$root/scripts/lib.sh" scripts/
cp "$root/tests/shares.cmake" tests/
count=$(sed -nE 's/^set\(penstock_share_count ([0-9]+)\)$/\1/p' tests/shares.cmake)
as_nobody=(-c user.name=nobody -c user.email=nobody@localhost -c commit.gpgsign=false)

# says WANTED FOLDER [OPTION...]: the line that .ci/run prints there.
says() {
  local wanted=$1 said
  said=$("$2/.ci/run" --show-share "${@:3}") || true
  if [[ $said != *"$wanted"* ]]; then
    echo "${*:2}: not '$wanted' but '$said'"
    exit 1
  fi
}
refuses() {
  local said
  if said=$(.ci/run --show-share "$@" 2>&1) || [[ $said != *"0/$count to $((count - 1))/$count"* ]]; then
    echo "$*: not refused, but: $said"
    exit 1
  fi
}

# The public workflow runs all of them.
wanted=$(for ((share = 0; share < count; ++share)); do echo "\"$share/$count\""; done)
found=$(grep -oE '"[0-9]+/[0-9]+"' "$root/.github/workflows/ci.yml")
if [[ $found != "$wanted" ]]; then
  echo "the workflow runs $found of $count shares"
  exit 1
fi

says "Share 0/$count" .
says "git knows no commit here" .
git init --quiet
git add .
for ((number = 1; number <= count + 1; ++number)); do
  git "${as_nobody[@]}" commit --quiet --allow-empty --message "commit $number"
  says "Share $((number % count))/$count of what only --full has: the commit's number is $number" .
done
says "Share 2/$count of what only --full has: as --share says" . --share "2/$count"

git clone --quiet --depth 1 "file://$work/project" "$work/shallow"
hash=$(git rev-parse HEAD)
says "Share $((16#${hash:0:12} % count))/$count" "$work/shallow"
says "the clone is shallow" "$work/shallow"
says "Share $((count - 1))/$count of what only --full has: as --share says" "$work/shallow" --share "$((count - 1))/$count"

# A folder without git's in a folder that git knows.
git clone --quiet . "$work/outer"
git -C "$work/outer" archive --prefix=inner/ HEAD | tar -x -C "$work/outer"
says "git knows no commit here" "$work/outer/inner"

refuses --share "$count/$count"
refuses --share "1/$((count + 1))"
refuses --share 1
refuses --share "-1/$count"
refuses --share "x/$count"
refuses --share
