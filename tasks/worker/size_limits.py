"""Memory limits for users' files, which reject extremely compressed files before they are unpacked.

A small file may announce terabytes, by accident or as an attack. Its directory or header is therefore read first, which
is cheap, and an error is raised if it is above the limits.
"""

from __future__ import annotations

import gzip
import io
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tasks.worker.confined import TooLarge as TooLarge
from tasks.worker.confined import megabytes, read_table

if TYPE_CHECKING:
    import pyarrow as pa
    from PIL.Image import Image

# Weights and numeric tables have compression ratios of a few, text of ten, and decompression bombs of a thousand.
UNPACKED = 10**9  # bytes that any file may unpack to
TIMES = 20  # a large file may unpack to this multiple of its own size
MOST_PIXELS = 1 << 27  # of one image; 12,000 x 9,000 passes and takes 0.4 GB as RGB
LOCAL_ENTRY = b"PK\3\4"  # first bytes of an archive: APPNOTE.TXT 6.3.10, section 4.3.7
WIDEST = 8  # bytes of a number in a table
ROWS = 4096  # rows of a Parquet file that are unpacked at a time


def most_bytes(packed: int) -> int:
    """Return the number of bytes that a file of `packed` bytes may unpack to."""
    return max(UNPACKED, TIMES * packed)


def check_unpacked(unpacked: int, packed: int, byte_limit: int | None = None) -> None:
    """Raise TooLarge if a file of `packed` bytes unpacks to more than the limit, which is `most_bytes` by default."""
    limit = most_bytes(packed) if byte_limit is None else byte_limit
    if unpacked > limit:
        raise TooLarge(
            f"it unpacks to {megabytes(unpacked)} from {megabytes(packed)}; at most {megabytes(limit)} "
            f"({megabytes(UNPACKED)}, or {TIMES} times the file's size) are read"
        )


def check_archive(source: bytes | BinaryIO) -> None:
    """Raise TooLarge for a zip archive whose directory announces too much. Other files pass.

    TorchScript, torch.export, torch.save and .npz files are zip archives. Their readers take no more from an entry than
    the directory states.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        file.seek(0)
        if file.read(len(LOCAL_ENTRY)) != LOCAL_ENTRY:
            return
        # torch's own reader might still find entries in it.
        raise TooLarge("it is an archive whose directory cannot be read; it may have been cut short") from None
    check_unpacked(unpacked, file.seek(0, io.SEEK_END))


def read_parquet(file: Path | bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Read some columns, or all, of a Parquet file.

    The file is read by a child with limited memory (`tasks.worker.confined`), since its footer may announce less than
    it contains. Raises TooLarge if it unpacks to too much, OSError or ArrowException.
    """
    function = "tasks.worker.size_limits:unpack_parquet"
    column_names = list(columns) if columns is not None else None
    if isinstance(file, Path):
        return read_table(function, path=str(file), columns=column_names, byte_limit=most_bytes(file.stat().st_size))
    with tempfile.NamedTemporaryFile(prefix="engram-read-", suffix=".parquet") as copy:
        copy.write(file)
        copy.flush()
        return read_table(function, path=copy.name, columns=column_names, byte_limit=most_bytes(len(file)))


def read_row_groups(file: Path, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Read some columns of some row groups of a Parquet file, in a child as in `read_parquet`.

    Raises TooLarge if they unpack to too much, OSError or ArrowException.
    """
    function = "tasks.worker.size_limits:unpack_parquet"
    byte_limit = most_bytes(file.stat().st_size)
    return read_table(function, path=str(file), columns=list(columns), byte_limit=byte_limit, groups=list(groups))


def unpack_parquet(
    path: str, columns: Sequence[str] | None, byte_limit: int, groups: Sequence[int] | None = None
) -> pa.Table:
    """Read a table, or some of its row groups, batch by batch while counting its bytes.

    Raises TooLarge, OSError or ArrowException.

    Usually, the footer already shows that a table is too large. Repeated values take no space in the file, so every
    value counts as a number in addition to the unpacked bytes of its column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed = Path(path).stat().st_size
    with pq.ParquetFile(path) as opened:
        metadata = opened.metadata
        parts = []
        for group in range(metadata.num_row_groups) if groups is None else groups:
            for column in range(metadata.num_columns):
                parts.append(metadata.row_group(group).column(column))
        check_unpacked(
            sum(max(part.total_uncompressed_size, WIDEST * part.num_values) for part in parts), packed, byte_limit
        )
        batches = []
        unpacked = 0
        for batch in opened.iter_batches(ROWS, row_groups=groups, columns=columns, use_threads=False):
            unpacked += batch.nbytes
            check_unpacked(unpacked, packed, byte_limit)
            batches.append(batch)
        schema = batches[0].schema if batches else opened.read(columns).schema
    return pa.Table.from_batches(batches, schema)


def gunzip(content: bytes) -> bytes:
    """Return the unpacked bytes.

    Raises TooLarge if there are too many, and OSError, EOFError and zlib.error like `gzip`.
    """
    limit = most_bytes(len(content))
    with gzip.open(io.BytesIO(content)) as file:
        unpacked = file.read(limit + 1)
    if len(unpacked) > limit:
        raise TooLarge(f"it unpacks to more than {megabytes(limit)} from {megabytes(len(content))}")
    return unpacked


@contextmanager
def open_picture(file: bytes | BinaryIO, formats: tuple[str, ...] | None = None) -> Iterator[Image]:
    """Open an image with Pillow without decoding its pixels. Raises TooLarge if its header announces too many."""
    from PIL import Image

    # Pillow warns above a certain number of pixels, in two lines. Such images are rejected below instead.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    try:
        picture = Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=formats)
    except Image.DecompressionBombError:
        raise TooLarge(f"it has too many pixels; an image may have {MOST_PIXELS:,}") from None
    with picture:
        width, height = picture.size
        if width * height > MOST_PIXELS:
            raise TooLarge(f"it has {height:,} x {width:,} pixels; an image may have {MOST_PIXELS:,}")
        yield picture
