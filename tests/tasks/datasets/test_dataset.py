"""Digests and stamps of data sets agree with existing keys and stores."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets.source import Source, digest_of


def test_digest_covers_rule_and_length_prefixed_parts() -> None:
    content = b"rule" + b"ab" + b"" + b"\x01\x02\x03\x04"
    assert len(content) == 10
    framed = b"".join(len(part).to_bytes(8, "little") + part for part in (b"rule", b"ab", b"", b"\x01\x02\x03\x04"))
    numbers = memoryview(np.array([0x0201, 0x0403], "<u2"))  # two items, four bytes
    assert hashlib.sha256(framed).hexdigest() == digest_of("rule", [b"ab", b"", numbers])


def test_digest_of_known_content_never_changes() -> None:
    expected = "ed3f2aaa86d36b77ea5a4f230f7e6442bda0a9e23a592c14459b885e0abbf080"
    assert expected == digest_of("labelled pictures 1", [b"[]", b"[[1, 2]]"])


def test_different_lists_of_parts_have_different_digests() -> None:
    lists = [[b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""], [b"", b"abc"], []]
    digests = {digest_of(rule, parts) for rule in ("r", "s") for parts in lists}
    assert 2 * len(lists) == len(digests)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "a", tmp_path / "b"
    for path in paths:
        path.write_bytes(b"12")
    return paths


def stamp(*files: Path, rule: str = "rule") -> str:
    def unread() -> None:
        raise AssertionError("a stamp reads no file")

    return Source(rule, files, unread).stamp()  # type: ignore[arg-type]


def test_stamp_changes_with_rule_and_files(files: tuple[Path, Path]) -> None:
    first = stamp(*files)
    assert first == stamp(*files)
    assert len({first, stamp(*files, rule="other"), stamp(*files[::-1]), stamp(files[0])}) == 4
    state = files[1].stat()
    changes: list[Callable[[], object]] = [
        lambda: os.utime(files[1], ns=(state.st_atime_ns, state.st_mtime_ns + 1000)),
        lambda: (files[1].write_bytes(b"123"), os.utime(files[1], ns=(state.st_atime_ns, state.st_mtime_ns))),
    ]
    for change in changes:
        change()
        assert first != stamp(*files)
        files[1].write_bytes(b"34")
        os.utime(files[1], ns=(state.st_atime_ns, state.st_mtime_ns))
        assert first == stamp(*files)  # the content is not read
