"""Only regular files are opened: a pipe, socket, device or folder is an error at once, never a wait."""

import io
import os
import socket
from pathlib import Path

import pytest

from cohort_runs import COLUMNS, of, run_cohort, run_frames, write_csv
from cxr.base.regular_files import open_regular, read_regular
from cxr.base.tables import read_table
from cxr.dicom import files
from cxr.dicom.decode import decode_file
from cxr.dicom.files import Rejected
from cxr.imaging.cohort import header


def make_irregular(folder: Path, kind: str) -> Path:
    """Make something that is no regular file, as ``thing`` in the folder."""
    path = folder / "thing"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to a pipe":
        os.mkfifo(folder / "pipe")
        path.symlink_to(folder / "pipe")
    elif kind == "link to itself":
        path.symlink_to(path)
    return path


KINDS = ("pipe", "socket", "device", "folder", "link to a pipe", "link to itself")
WORDS = {
    "pipe": "a pipe, not a file", "link to a pipe": "a pipe, not a file", "socket": "a socket, not a file",
    "device": "a device, not a file", "folder": "a folder, not a file", "link to itself": "symbolic links",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_an_error(tmp_path, kind):
    with pytest.raises(OSError, match=WORDS.get(kind, "")) as caught:
        open_regular(make_irregular(tmp_path, kind))
    assert isinstance(caught.value, IsADirectoryError) is (kind == "folder")


def test_files_and_links_to_files_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"\xc3\xa4")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"\xc3\xa4"
    with open_regular(tmp_path / "file", "r", encoding="utf-8") as file:
        assert file.read() == "ä"
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_no_file_is_one_row(tmp_path, kind):
    """The cohort excludes it with what it is; the other image passes."""
    make_irregular(tmp_path, kind)
    (tmp_path / "good.dcm").write_bytes(of())
    rows = [("p", "s", "good", "good.dcm", ""), ("q", "t", "thing", "thing", "")]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows), shards=1)
    result.check_conserved(2)
    assert result.reasons == {"thing": "missing_file" if kind == "folder" else "unreadable_file"}
    if kind not in ("folder", "link to itself"):
        assert result.details["thing"] == WORDS[kind]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_an_image_that_is_replaced_after_the_cohort_was_made_is_one_row(tmp_path, kind):
    (tmp_path / "thing").write_bytes(of())
    rows = [("q", "t", "thing", "thing", "")]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows), shards=1)
    (tmp_path / "thing").unlink()
    make_irregular(tmp_path, kind)
    (path,) = result.paths.values()
    assert run_frames(path, tmp_path / "0.h5") == {"thing": "unreadable_file"}
    (detail,) = read_table(tmp_path / "0.excluded.parquet")["detail"]
    assert detail == WORDS[kind]


# ---------------------------------------------------------------------------------------- files of zeros

HEADS = {
    "preamble alone": bytes(128) + b"DICM",
    "DICOM": None,
    "PNG": b"\x89PNG\r\n\x1a\n",
    "JPEG": b"\xff\xd8\xff",
    "nothing": b"",
}


def make_zeros(path: Path, head: bytes, size: int) -> None:
    """Make a file of a given start whose other bytes are zeros, as a broken transfer or preallocation leaves it."""
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(size)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("size", [20 << 20, 5 << 30])
def test_a_file_of_zeros_is_given_up_without_reading_it(tmp_path, monkeypatch, kind, size):
    head = HEADS[kind] if HEADS[kind] is not None else of()[:700]
    make_zeros(tmp_path / "zeros", head, size)
    seen = []

    class CountingFile(io.FileIO):
        def readinto(self, buffer):
            count = super().readinto(buffer)
            seen.append(count)
            return count

        def read(self, size=-1):
            data = super().read(size)
            seen.append(len(data))
            return data

        def readall(self):
            raise AssertionError("the whole file is read")

    def opened(path, mode="rb", **_):
        return io.BufferedReader(CountingFile(path))

    for module in (files, header):
        monkeypatch.setattr(module, "open_regular", opened)
    path = str(tmp_path / "zeros")
    if kind == "DICOM":  # its header is whole, what follows is not
        assert header.read_header(path).size is not None
    else:
        with pytest.raises(Rejected) as caught:
            header.read_header(path)
        assert caught.value.reason in ("unreadable_header", "not_dicom")
        assert caught.value.detail or caught.value.reason == "not_dicom"
    assert sum(seen) < 1 << 20


@pytest.mark.parametrize("kind", HEADS)
def test_a_large_file_of_zeros_is_not_decoded(tmp_path, kind):
    head = HEADS[kind] if HEADS[kind] is not None else of()[:700]
    make_zeros(tmp_path / "zeros", head, 5 << 30)
    with pytest.raises(Rejected) as caught:
        decode_file(str(tmp_path / "zeros"))
    assert caught.value.detail == "the file has 5368709120 bytes, more than 100000000 pixels need"


@pytest.mark.parametrize("kind", HEADS)
def test_a_file_of_zeros_is_a_reason(tmp_path, kind):
    head = HEADS[kind] if HEADS[kind] is not None else of()[:700]
    make_zeros(tmp_path / "zeros", head, 4 << 20)
    with pytest.raises(Rejected) as caught:
        decode_file(str(tmp_path / "zeros"))
    assert caught.value.reason in ("undecodable", "not_dicom", "no_pixels")
