"""Third-party files are read in a child process with limited memory; errors have one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.external.sent_table import read_embeddings, read_sent
from tasks.worker import confined, size_limits
from tasks.worker.confined import check_file_size, memory_limit, read_table
from tasks.worker.files import File
from tasks.worker.size_limits import TooLarge, read_parquet


def varint(number: int, length: int = 0) -> bytes:
    """A number in zigzag, as in Thrift's compact protocol, padded to a length."""
    rest = 2 * number
    parts = []
    while rest > 127 or (length and len(parts) < length - 1):
        parts.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*parts, rest])


def write_lie(path: Path, size: int = 40 * 10**6, groups: int = 3) -> Path:
    """Write a table of a few kB with values of `size` bytes and a footer that declares 1 kB."""
    table = pa.table({"image": pa.array([bytes(size)], pa.binary())})
    with pq.ParquetWriter(path, table.schema, compression="zstd", use_dictionary=False, write_statistics=False) as file:
        for _ in range(groups):
            file.write_table(table)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    true = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    encoded = varint(true)
    assert content[footer:].count(encoded)
    path.write_bytes(content[:footer] + content[footer:].replace(encoded, varint(1000, len(encoded))))
    return path


READERS: dict[str, Callable[[Path], object]] = {
    "a Parquet file": read_parquet,
    "its bytes": lambda path: read_parquet(path.read_bytes()),
    "a table": lambda path: read_sent(File(str(path))),
    "embeddings": lambda path: read_embeddings(File(str(path))),
}


@pytest.mark.parametrize("reader", READERS)
def test_false_footer_is_detected(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_limits, "UNPACKED", 10**8)
    path = write_lie(tmp_path / "lie.parquet")
    assert path.stat().st_size < 200_000
    with pytest.raises(ValueError, match=r"it unpacks to 120 MB from 0\.\d+ MB; at most 100 MB") as refused:
        READERS[reader](path)
    assert "\n" not in str(refused.value)


def test_table_is_read_unchanged(tmp_path: Path) -> None:
    table = pa.table({"a": range(10_000), "b": [[1.5]] * 10_000, "c": [b"x", None] * 5_000})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_parquet(tmp_path / "t.parquet") == table
    assert read_parquet(tmp_path / "t.parquet", ["c"]) == table.select(["c"])
    pq.write_table(table[:0], tmp_path / "none.parquet")
    assert read_parquet(tmp_path / "none.parquet") == table[:0]


def take_memory(size: int) -> pa.Table:
    return pa.table({"a": pa.array([len(bytearray(size))])})


def die() -> pa.Table:
    os.abort()


def fail(message: str) -> pa.Table:
    raise ValueError(message)


def test_failing_child_gives_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    here = "tests.tasks.worker.test_confined"
    monkeypatch.setenv(confined.VARIABLE, "1.5GB")
    assert read_table(f"{here}:take_memory", size=10**8).to_pylist() == [{"a": 10**8}]
    for function, request in (("take_memory", {"size": 3 * 10**9}), ("die", {})):
        with pytest.raises(TooLarge, match=r"^it .*a file may take 1,500 MB \(half of this machine's memory, unless"):
            read_table(f"{here}:{function}", **request)
    with pytest.raises(ValueError, match=r"^no$"):
        read_table(f"{here}:fail", message="no")


def report_process() -> pa.Table:
    return pa.table({"reader": [os.getppid()], "child": [os.getpid()], "setting": [os.environ.get("TOLD", "")]})


def test_reader_forks_a_child_for_each_file(monkeypatch: pytest.MonkeyPatch) -> None:
    function = "tests.tasks.worker.test_confined:report_process"
    first = read_table(function).to_pylist()[0]
    monkeypatch.setenv("TOLD", "later")
    second = read_table(function).to_pylist()[0]
    assert second["reader"] == first["reader"]
    assert second["child"] != first["child"]
    assert second["setting"] == "later"
    with pytest.raises(TooLarge):
        read_table("tests.tasks.worker.test_confined:die")
    assert read_table(function).to_pylist()[0]["reader"] == first["reader"]


def test_ended_reader_is_replaced() -> None:
    function = "tests.tasks.worker.test_confined:report_process"
    first = read_table(function).to_pylist()[0]["reader"]
    os.kill(first, signal.SIGKILL)
    assert read_table(function).to_pylist()[0]["reader"] != first


def test_file_larger_than_memory_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(confined.VARIABLE, "1GB")
    with (tmp_path / "outputs.csv").open("wb") as file:
        file.write(b"image,p0,p1\n")
        file.truncate(3 * 10**9)
    with pytest.raises(ValueError, match=r"outputs\.csv cannot be read: it has 3,000 MB, which take \d times that"):
        read_sent(File(str(tmp_path / "outputs.csv")))


def test_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, size in (("2GB", 2 * 10**9), ("1500 MB", 1500 * 10**6), ("4000000000", 4 * 10**9)):
        monkeypatch.setenv(confined.VARIABLE, limit)
        assert memory_limit() == size
    check_file_size(10**9)
    for limit in ("much", "10MB", "-1GB"):
        monkeypatch.setenv(confined.VARIABLE, limit)
        with pytest.raises(ValueError, match="it must be a size of at least 1,000 MB, such as 4GB"):
            memory_limit()
    monkeypatch.delenv(confined.VARIABLE)
    assert 10**9 <= memory_limit() <= max(10**9, confined.total_memory() // 2)
