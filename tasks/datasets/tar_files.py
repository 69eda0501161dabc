"""Read the headers of tar archives: the position and the size of each member, without reading what it contains.

Uncompressed archives in the formats ustar, GNU and pax are read (POSIX.1-2017, "pax - portable archive interchange";
GNU tar 1.35, "Basic Tar Format"). Unlike `tarfile`, which ends at a damaged header as if the archive ended there, this
module raises an error, so that no member is silently omitted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

BLOCK = 512
MOST_EXTENDED = 1 << 20  # bytes of an extended header, which holds a name
MOST_PADDING = 1 << 20  # bytes after the mark that ends an archive
CUT_SHORT = "it may have been cut short"
FILES = (b"\x00", b"0", b"7")  # types of members: POSIX.1-2017, table 4-14
FOLDER = b"5"
PAX = b"x"
PAX_OF_ALL = b"g"
LONG_NAME = b"L"
LONG_LINK = b"K"
COMPRESSED = {b"\x1f\x8b": "gunzip", b"BZ": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}


class TarError(ValueError):
    """An archive cannot be read. The message continues a sentence that begins with the archive's name."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive: its name, and the position and number of its bytes."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Header:
    name: str
    size: int
    kind: bytes


def read_members(file: BinaryIO) -> Iterator[Member]:
    """Yield the files of an archive, in order. Raises TarError if it is damaged, compressed or contains links."""
    length = os.fstat(file.fileno()).st_size
    position = 0
    name = ""  # from an extended header, for the next member
    size: int | None = None
    while True:
        file.seek(position)
        block = file.read(BLOCK)
        if position == 0:
            _check_start(block)
        if len(block) < BLOCK:
            raise TarError(f"ends at byte {length} without the mark that ends an archive; {CUT_SHORT}")
        if not any(block):
            _check_end(file, length)
            return
        header = _parse_header(block, position)
        start = position + BLOCK
        content_size = header.size if size is None or header.kind not in FILES else size
        if start + content_size > length:
            of_member = show_name(name or header.name)
            raise TarError(f"ends at byte {length} within {of_member}, which takes {content_size} bytes; {CUT_SHORT}")
        position = start + -(-content_size // BLOCK) * BLOCK
        if header.kind in (PAX, LONG_NAME):
            if content_size > MOST_EXTENDED:
                raise TarError(f"has a name of {content_size} bytes at byte {start}; it is damaged")
            extended = file.read(content_size)
            if header.kind == PAX:
                pax_name, size = _parse_pax(extended, start)
                name = pax_name or name
            else:
                name = _text(extended)
            continue
        if header.kind in FILES:
            yield Member(name or header.name, start, content_size)
        elif header.kind not in (FOLDER, PAX_OF_ALL, LONG_LINK):
            of_member = show_name(name or header.name)
            raise TarError(f"has {of_member}, which is a link or another special file; it must contain files only")
        if header.kind not in (PAX_OF_ALL, LONG_LINK):
            name = ""
            size = None


def read_at(path: Path, offset: int, size: int) -> bytes:
    """Return some bytes of a file. Raises OSError if it cannot be read, or ends before."""
    handle = os.open(path, os.O_RDONLY)
    try:
        content = os.pread(handle, size, offset)
    finally:
        os.close(handle)
    if len(content) < size:
        raise OSError(f"it ends before byte {offset + size}")
    return content


def show_name(name: str) -> str:
    """Return a member's name for a message: on one line, and not too long."""
    printable = name if name.isprintable() else ascii(name)
    return f"{printable:.80}"


def _check_start(block: bytes) -> None:
    if not block:
        raise TarError("is empty; a shard must be a tar archive")
    for magic, command in COMPRESSED.items():
        if block.startswith(magic):
            raise TarError(f"is compressed; unpack it with {command}, since images are read from their positions")


def _check_end(file: BinaryIO, length: int) -> None:
    """Raise TarError if an archive has anything but zeros after the mark that ends it."""
    position = file.tell()
    if length - position > MOST_PADDING or any(file.read(length - position)):
        raise TarError(f"has data after its end at byte {position}; archives that were joined must be separate files")


def _parse_header(block: bytes, position: int) -> _Header:
    stated = _number(block[148:156])
    counted = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    size = _number(block[124:136])
    if stated != counted or size is None or size < 0:
        if position == 0:
            raise TarError("is not a tar archive")
        raise TarError(f"has a damaged header at byte {position}")
    name = _text(block[:100])
    if block[257:262] == b"ustar" and block[257:265] != b"ustar  \0":  # GNU's format has other fields there
        prefix = _text(block[345:500])
        if prefix:
            name = f"{prefix}/{name}"
    kind = block[156:157]
    return _Header(name, 0 if kind == FOLDER else size, kind)


def _number(field: bytes) -> int | None:
    """Return a number in octal digits, or in GNU's binary form for large numbers. None if it is neither."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
    digits = field.strip(b" \0")
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        return 0 if not digits else None
    return int(digits, 8)


def _parse_pax(content: bytes, start: int) -> tuple[str, int | None]:
    """Return the name and the size in an extended header, if any. Its records are `LENGTH KEY=VALUE` lines."""
    name = ""
    size = None
    position = 0
    while position < len(content):
        digits, _, _ = content[position : position + 20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = content[position : position + length]
        key, equals_sign, value = record[len(digits) + 1 : -1].partition(b"=")
        if not equals_sign or not record.endswith(b"\n"):
            raise TarError(f"has a damaged extended header at byte {start}")
        if key.startswith(b"GNU.sparse"):
            raise TarError(f"has a sparse file at byte {start}; write the archive without --sparse")
        if key == b"path":
            name = _text(value)
        elif key == b"size":
            if not value.isdigit():
                raise TarError(f"has a damaged extended header at byte {start}")
            size = int(value)
        position += length
    return name, size


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")
