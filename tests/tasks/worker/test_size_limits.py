"""Small files that would fill memory are refused by their directory or header, before they are read."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from tasks.datasets import pictures
from tasks.external import model_file
from tasks.external.model_file import ModelFile
from tasks.external.sent_table import read_sent
from tasks.worker import size_limits
from tasks.worker.files import File
from tasks.worker.size_limits import MOST_PIXELS, TIMES, UNPACKED, TooLarge


def archive(announced: int, names: tuple[str, ...] = ("weight.npy",)) -> bytes:
    """A small zip archive whose directory declares `announced` bytes in total."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for name in names:
            zip_file.writestr(name, bytes(1000))
        for entry in zip_file.infolist():
            entry.file_size = announced // len(names)
    return out.getvalue()


def png(height: int, width: int) -> bytes:
    """A black image with one bit per pixel, in a few kilobytes."""
    rows = zlib.compressobj()
    row = bytes(1 + -(-width // 8))
    packed = b"".join(rows.compress(row) for _ in range(height)) + rows.flush()
    parts = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", packed), (b"IEND", b""))
    body = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def constants(path: Path, rows: int) -> Path:
    """Write a Parquet file of `rows` equal labels and ids, which takes kilobytes."""
    part = pa.table({"image": pa.array(["a"] * 10**6), "label": np.zeros(10**6, np.int8)})
    with pq.ParquetWriter(path, part.schema, compression="zstd") as file:
        for _ in range(rows // len(part)):
            file.write_table(part)
    return path


def test_archive_may_unpack_to_gigabyte_or_twentyfold() -> None:
    size_limits.check_archive(archive(UNPACKED))
    size_limits.check_archive(b"no archive")
    size_limits.check_unpacked(TIMES * UNPACKED, UNPACKED)
    with pytest.raises(TooLarge, match=r"it unpacks to 1,100 MB from 0\.00. MB; at most 1,000 MB"):
        size_limits.check_archive(archive(1_100_000_000, ("a", "b", "c", "d")))
    with pytest.raises(TooLarge, match="cut short"):
        size_limits.check_archive(archive(10)[:-10])


@pytest.mark.parametrize("name", ["model.pt", "model.pt2", "timm:resnet18+weights.npz", "timm:resnet18+weights.pt"])
def test_oversized_model_is_refused_when_pinned(name: str, tmp_path: Path) -> None:
    before, plus, file = name.rpartition("+")
    (tmp_path / file).write_bytes(archive(6_600_000_000))
    with pytest.raises(ValueError, match="cannot be read: it unpacks to 6,600 MB from") as caught:
        model_file.pin(ModelFile(f"{before}{plus}{tmp_path / file}"))
    assert "\n" not in str(caught.value)


def test_compressed_weights_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "weights.npz", bias=np.zeros(1 << 20))
    pinned = model_file.pin(ModelFile(f"timm:resnet18+{tmp_path / 'weights.npz'}"))
    assert len(pinned.digest) == 64
    torch.save({"bias": torch.zeros(10)}, tmp_path / "weights.pt")
    assert len(model_file.pin(ModelFile(f"timm:resnet18+{tmp_path / 'weights.pt'}")).digest) == 64


@pytest.mark.parametrize(("height", "width"), [(12_000, 12_000), (20_000, 20_000)])
@pytest.mark.filterwarnings("error")
def test_image_of_too_many_pixels_is_refused(height: int, width: int) -> None:
    encoded = png(height, width)
    with pytest.raises(pictures.PictureError, match=f"it has .* pixels; an image may have {MOST_PIXELS:,}$") as caught:
        pictures.pixels(encoded)
    assert "\n" not in str(caught.value)


def test_image_of_hundred_million_pixels_opens(recwarn: pytest.WarningsRecorder) -> None:
    with size_limits.open_picture(png(9000, 12_000)) as picture:
        assert picture.size == (12_000, 9000)
    assert not [
        str(warned.message) for warned in recwarn if issubclass(warned.category, Image.DecompressionBombWarning)
    ]


def test_table_of_repeated_values_is_refused_by_metadata(tmp_path: Path) -> None:
    path = constants(tmp_path / "outputs.parquet", 70 * 10**6)
    assert path.stat().st_size < 500_000
    with pytest.raises(ValueError, match=r"outputs\.parquet cannot be read: it unpacks to 1,120 MB from"):
        read_sent(File(str(path)))


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda content: gzip.compress(content[:10]) + gzip.compress(content[10:])]
)
def test_gunzip_returns_the_original(pack: Callable[[bytes], bytes]) -> None:
    assert bytes(range(256)) == size_limits.gunzip(pack(bytes(range(256))))


def test_gunzip_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_limits, "UNPACKED", 10**6)
    with pytest.raises(TooLarge, match="it unpacks to more than 1 MB from"):
        size_limits.gunzip(gzip.compress(bytes(2 * 10**6)))
