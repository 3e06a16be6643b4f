#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# The checklist of a release: makes its files and proves them. Run it in a checkout whose HEAD is to be released.
#
#   ci/release.sh FOLDER    FOLDER, empty or new, gets the wheel and the source distribution
#
# 1. Nothing in the checkout is uncommitted, no tag has the version, and the changelog begins with it.
# 2. The wheel and the source distribution are built from a clone, and have the version and the data.
# 3. The first command, on a fresh machine that has only this wheel (tests/fresh/test_wheel.py).
# 4. Both commands, on fresh machines of Debian 12 and 13, and unstable: an hour and more.
#
# What is left for a person: the tag, and the upload of FOLDER's files.

set -eu

[ $# = 1 ] || { sed -n '6s/^# *//p' "$0" >&2 && exit 2; }

fail() {
    printf 'release: %s\n' "$*" >&2
    exit 1
}

step() {
    printf 'release: %s\n' "$*"
}

mkdir -p "$1"
[ -z "$(ls -A "$1")" ] || fail "$1 is not empty: what lies there would be uploaded, too"
folder=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "$0")")/.."

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' orchestrator/version.py)
step "$version: the checkout"
[ -z "$(git status --porcelain)" ] || fail 'something is not committed: git status'
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version is there already"
sed -n '/^## /{p;q;}' CHANGELOG.md | grep -q "^## $version " || fail "CHANGELOG.md does not begin with $version"

step 'the wheel and the source distribution'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/clone"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check hatchling
(cd "$work/clone" && "$work/venv/bin/python" -m hatchling build -d "$folder")
wheel=$folder/probe_lab-$version-py3-none-any.whl
"$work/venv/bin/python" -m zipfile -l "$wheel" >"$work/files"
for file in configs/quickstart.yaml images/host-packages.txt kmods/; do
    grep -q "^orchestrator/data/$file" "$work/files" || fail "$wheel has no $file"
done
tar -tzf "$folder/probe_lab-$version.tar.gz" >"$work/files"
for file in lab README.md Containerfile tests/conftest.py; do
    grep -Fqx "probe_lab-$version/$file" "$work/files" || fail "the source distribution has no $file"
done

step 'the wheel on a fresh machine'
LAB_WHEEL=$wheel ./lab test --nightly -n 0 tests/fresh/test_wheel.py
for release in ${LAB_RELEASES-bookworm trixie sid}; do
    step "both commands on $release"
    ./lab test --fresh "$release"
done
step "$version is proved; tag it v$version, and upload $folder"
