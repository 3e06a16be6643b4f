# SPDX-License-Identifier: GPL-2.0-only
"""Are temporary folders removed, those of killed processes too, and never one that is in use?"""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cpio_archive import Entry, archive, write_archive
from orchestrator.errors import LabError
from orchestrator.files import ScratchFolder, read_bounded, read_bounded_text, write_whole

HOLDER = """
import sys
from pathlib import Path
from orchestrator.files import ScratchFolder
print(ScratchFolder("some-", Path(sys.argv[1])).path, flush=True)
sys.stdin.read()
"""


def test_a_folder_is_private_and_goes_with_its_content(tmp_path: Path) -> None:
    with ScratchFolder("some-", tmp_path) as scratch:
        assert scratch.parent == tmp_path
        assert scratch.stat().st_mode & 0o777 == 0o700
        (scratch / "file").write_text("")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    pipe = subprocess.PIPE
    other_path = tmp_path / "other-folder"
    other_path.mkdir()
    (tmp_path / "some-file").write_text("")
    (tmp_path / "some-link").symlink_to(other_path)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with ScratchFolder("some-", tmp_path):
            assert left.exists()
        process.kill()
        process.wait()
        assert left.exists()
        with ScratchFolder("some-", tmp_path):
            assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-folder", "some-file", "some-link"]


def test_no_folder_is_taken_from_who_has_just_made_it(tmp_path: Path) -> None:
    def use(number: int) -> bool:
        with ScratchFolder("some-", tmp_path) as scratch:
            file = scratch / "file"
            file.write_text(str(number))
            os.sched_yield()
            return file.read_text() == str(number)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(400)))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_closed_twice(tmp_path: Path) -> None:
    folder = ScratchFolder("some-", tmp_path)
    folder.close()
    with (tmp_path / "file").open("w") as other_iowrapper:  # has the number of the folder's descriptor
        folder.close()
        other_iowrapper.write("still open")
    assert (tmp_path / "file").read_text() == "still open"


# Is a file whole at any moment, whoever else writes it, and whatever another writer has left?

WRITERS = 4


ROUNDS = 50


def test_several_writers_at_once_each_write_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    sizes = [(number + 1) * 100_000 for number in range(WRITERS)]
    contents = {bytes([number]) * size for number, size in enumerate(sizes)}
    done = threading.Event()
    write_whole(file, min(contents))

    def read() -> set[bytes]:
        found = {file.read_bytes()}
        while not done.is_set():
            found.add(file.read_bytes())
        return found

    def write(content: bytes) -> None:
        for _ in range(ROUNDS):
            write_whole(file, content)

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        reader = pool.submit(read)
        try:
            for writer in [pool.submit(write, content) for content in contents]:
                writer.result()
        finally:
            done.set()
        assert reader.result() <= contents
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_killed_writer_left_is_overwritten(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "file", tmp_path / "elsewhere"
    (tmp_path / ".file.new").write_text("longer than what comes")
    write_whole(file, "short")
    assert file.read_text() == "short"
    elsewhere.write_text("not to be touched")
    (tmp_path / ".file.new").symlink_to(elsewhere)
    write_whole(file, "à")
    assert (file.read_bytes(), elsewhere.read_text()) == ("à".encode(), "not to be touched")
    assert {entry.name for entry in tmp_path.iterdir()} == {"file", "elsewhere"}


def test_what_cannot_be_written_leaves_the_old_file_alone(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(folder, "content")
    assert list(tmp_path.iterdir()) == [folder]


# Does another reader find in the archive what was put in, and are the bytes the same each time?

TREE = [
    Entry.folder("dev"),
    Entry.character_device("dev/console", 5, 1),
    Entry.folder("bin"),
    Entry.file("bin/busybox", b"\x7fELF\0\1\2"),
    Entry.link("bin/sh", "busybox"),
    Entry.file("etc-empty", b"", 0o644),
]


FIELDS = ("ino", "mode", "uid", "gid", "nlink", "mtime", "filesize", "devmajor", "devminor", "rdevmajor", "rdevminor")


def unpacked(data: bytes) -> tuple[list[Entry], list[dict[str, int]]]:
    """Read an archive by the format's description, checking what the kernel would stumble over."""
    entries: list[Entry] = []
    headers: list[dict[str, int]] = []
    at = 0
    while True:
        assert at % 4 == 0
        assert data[at : at + 6] == b"070701"
        words = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        header = dict(zip(FIELDS, words, strict=False))
        name_size, checksum = words[11:]
        assert checksum == 0
        name = data[at + 110 : at + 110 + name_size]
        assert name.endswith(b"\0")
        at += (110 + name_size + 3) // 4 * 4
        content = data[at : at + header["filesize"]]
        assert len(content) == header["filesize"]
        at += (header["filesize"] + 3) // 4 * 4
        if name == b"TRAILER!!!\0":
            assert data[at:] == b""
            return entries, headers
        device = (header["rdevmajor"], header["rdevminor"])
        entries.append(Entry(name[:-1].decode(), header["mode"], content, device))
        headers.append(header)


def test_everything_is_found_again() -> None:
    entries, headers = unpacked(archive(TREE))
    assert entries == TREE
    assert [stat.filemode(entry.mode) for entry in entries] == [
        "drwxr-xr-x",
        "crw-------",
        "drwxr-xr-x",
        "-rwxr-xr-x",
        "lrwxrwxrwx",
        "-rw-r--r--",
    ]
    assert {(h["uid"], h["gid"], h["mtime"], h["devmajor"], h["devminor"]) for h in headers} == {(0, 0, 0, 0, 0)}
    # Two files with one inode number and more than one link would be taken for the same file.
    assert len({h["ino"] for h in headers}) == len(TREE)
    assert [h["nlink"] for h in headers] == [2, 1, 2, 1, 1, 1]


def test_the_same_bytes_twice() -> None:
    assert archive(TREE) == archive(iter(TREE))
    assert archive(TREE) != archive(TREE[::-1])


@pytest.mark.skipif(shutil.which("cpio") is None, reason="needs cpio")
def test_cpio_lists_it() -> None:
    listed = subprocess.run(["cpio", "-it", "--quiet"], input=archive(TREE), check=True, capture_output=True).stdout
    assert listed.decode().split() == [entry.path for entry in TREE]


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)


modes = st.sampled_from([stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK]).flatmap(
    lambda kind: st.integers(0, 0o7777).map(lambda bits: kind | bits)
)


anything = st.builds(Entry, names.filter(lambda name: name != "TRAILER!!!"), modes, st.binary(max_size=50))


@given(st.lists(anything, max_size=8))
def test_any_entries_are_found_again(entries: list[Entry]) -> None:
    assert unpacked(archive(entries))[0] == entries


@pytest.mark.parametrize("size", [0, 1, 3, 4, 1_000_003])
def test_a_file_of_the_host_is_written_as_its_bytes_are(size: int, tmp_path: Path) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    file = tmp_path / "content"
    file.write_bytes(content[:size])
    whole = io.BytesIO()
    write_archive(whole, [Entry.folder("a"), Entry.file("a/b", file), Entry.file("c", b"12345")])
    assert whole.getvalue() == archive(
        [Entry.folder("a"), Entry.file("a/b", content[:size]), Entry.file("c", b"12345")]
    )


def test_what_the_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as sparse:
        os.truncate(sparse.fileno(), 1 << 32)
    whole = io.BytesIO()
    with pytest.raises(LabError, match=r"huge/file is too large for an initramfs: 4.3 GB"):
        write_archive(whole, [Entry.file("huge/file", file)])
    assert whole.getvalue() == b""


def test_a_file_of_another_size_than_it_had_is_an_error() -> None:
    with pytest.raises(LabError, match="/proc/version changed while it was read"):  # its size is reported as 0
        write_archive(io.BytesIO(), [Entry.file("file", Path("/proc/version"))])


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xc3\xa9\r\nb")
    assert read_bounded(file, 5) == b"\xc3\xa9\r\nb"
    assert read_bounded(file, 4) is None
    assert read_bounded_text(file, 3) == "\u00e9\nb"
    assert read_bounded_text(file, 2) is None
    file.write_bytes(b"a" * 9)
    assert read_bounded_text(file, 2) is None


def test_a_pipe_is_read_up_to_its_bound(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pipe.open("r+b", buffering=0) as end, subprocess.Popen(["yes"], stdout=end) as endless:
        try:
            assert read_bounded(pipe, 1 << 20) is None
        finally:
            endless.kill()
