"""The same images and labels give the same data set or the same error by every route."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tasks.datasets.catalog import load, load_with_boxes, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.features.kinds import decode_picture_file
from tasks.datasets.notes import data_notes
from tasks.worker import files
from tasks.worker.files import File
from tests.tasks.worker.test_size_limits import png

SUFFIX = ".png"  # of every file: the content decides the format
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))


@dataclass(frozen=True)
class Reading:
    """The result of a route: class names, and class and pixels of each image."""

    names: tuple[str, ...]
    labels: list[int]
    pixels: list[np.ndarray]


@dataclass(frozen=True)
class Sample:
    """Images, labels and splits, and class names in the metadata of a Parquet file."""

    pictures: list[bytes]
    labels: list[Any]
    splits: list[str]
    declared: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The labels as written in a CSV file or as folder names."""
        result = []
        for label in self.labels:
            result.append(self.declared[label] if self.declared else str(label))
        return result

    def schema(self, **kinds: pa.DataType) -> pa.Schema:
        schema = pa.schema(list(kinds.items()))
        if not self.declared:
            return schema
        features = {"label": {"names": self.declared, "_type": "ClassLabel"}}
        return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})

    def label_column(self) -> pa.Array:
        return pa.array(self.labels)


def write_files(folder: Path, sample: Sample) -> list[str]:
    """Write the images as files and return their names."""
    (folder / "scans").mkdir()
    names = [f"scans/{row:02d}{SUFFIX}" for row in range(len(sample.pictures))]
    for name, picture in zip(names, sample.pictures, strict=True):
        (folder / name).write_bytes(picture)
    return names


def by_folder(folder: Path, sample: Sample) -> str:
    for row, (picture, label, split) in enumerate(zip(sample.pictures, sample.texts, sample.splits, strict=True)):
        path = folder / "scans" / split / label
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{row:02d}{SUFFIX}").write_bytes(picture)
    return f"folder:{folder / 'scans'}"


def write_tar(path: Path, members: Mapping[str, bytes], archive_format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=archive_format) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def by_list(folder: Path, sample: Sample) -> str:
    rows = zip(write_files(folder, sample), sample.texts, sample.splits, strict=True)
    (folder / "list.csv").write_text("path;label;split\n" + "".join(f"{';'.join(row)}\n" for row in rows))
    return f"list:{folder / 'list.csv'}"


def by_list_in_parquet(folder: Path, sample: Sample) -> str:
    labels = sample.label_column()
    schema = sample.schema(path=pa.string(), label=labels.type, split=pa.string())
    pq.write_table(pa.table([write_files(folder, sample), labels, sample.splits], schema=schema), folder / "l.parquet")
    return f"list:{folder / 'l.parquet'}"


def by_parquet(folder: Path, sample: Sample) -> str:
    labels = sample.label_column()
    for split in ("train", "test"):
        rows = []
        for row, split_of_row in enumerate(sample.splits):
            if split_of_row == split:
                rows.append(row)
        schema = sample.schema(image=pa.binary(), label=labels.type)
        columns = [pa.array([sample.pictures[row] for row in rows], pa.binary()), labels.take(pa.array(rows))]
        (folder / "data").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns, schema=schema), folder / "data" / f"{split}-00000-of-00001.parquet")
    return f"parquet:{folder}"


def by_shards(folder: Path, sample: Sample) -> str:
    """Two shards for each split, of which the second has the last image."""
    rows = list(enumerate(zip(sample.pictures, sample.texts, sample.splits, strict=True)))
    for split in ("train", "test"):
        of_split = [(row, picture, label) for row, (picture, label, split_of_row) in rows if split_of_row == split]
        for number, part in enumerate((of_split[:-1], of_split[-1:])):
            members = {}
            for row, picture, label in part:
                members[f"{row:02d}{SUFFIX}"] = picture
                members[f"{row:02d}.cls"] = label.encode()
            write_tar(folder / f"{split}-{number:06d}.tar", members)
    return f"webdataset:{folder}"


def by_hub_cache(folder: Path, sample: Sample) -> str:
    """The files that `datasets.load_dataset` writes, in two shards of the training split."""
    labels = sample.label_column()
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = sample.schema(image=kind, label=labels.type)
    cached = folder / "hub" / "clinic___scans" / "default" / "0.0.0" / COMMIT
    cached.mkdir(parents=True)
    splits = {}
    for split in ("train", "test"):
        rows = [row for row, split_of_row in enumerate(sample.splits) if split_of_row == split]
        images = pa.array([{"bytes": sample.pictures[row], "path": None} for row in rows], kind)
        table = pa.table([images, labels.take(pa.array(rows))], schema=schema)
        splits[split] = {"name": split, "num_examples": len(rows)}
        parts = {f"scans-{split}.arrow": table}
        if split == "train":
            splits[split]["shard_lengths"] = [1, len(rows) - 1]
            numbers = enumerate((table.slice(0, 1), table.slice(1)))
            parts = {f"scans-{split}-{number:05d}-of-00002.arrow": part for number, part in numbers}
        for name, part in parts.items():
            with pa.OSFile(str(cached / name), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
                stream.write_table(part)
    (cached / "dataset_info.json").write_text(json.dumps({"dataset_name": "scans", "splits": splits}))
    return f"hf:clinic/scans/default@{COMMIT}"


def by_boxes(folder: Path, sample: Sample) -> str:
    rows = zip(write_files(folder, sample), sample.texts, strict=True)
    lines = "".join(f"{path}\t{label}\t\t\t\t\n" for path, label in rows)
    (folder / "boxes.csv").write_text("Path\tLabel\tLeft\tTop\tRight\tBottom\n" + lines)
    return f"boxed:{folder / 'boxes.csv'}"


def by_boxes_in_parquet(folder: Path, sample: Sample) -> str:
    labels = sample.label_column()
    sides = {side: pa.int64() for side in ("left", "top", "right", "bottom")}
    schema = sample.schema(path=pa.string(), label=labels.type, **sides)
    nothing = [pa.nulls(len(labels), pa.int64()) for _ in sides]
    pq.write_table(pa.table([write_files(folder, sample), labels, *nothing], schema=schema), folder / "b.parquet")
    return f"boxed:{folder / 'b.parquet'}"


Route = Callable[[Path, Sample], str]
ROUTES: dict[str, Route] = {
    "folder": by_folder,
    "list": by_list,
    "list in Parquet": by_list_in_parquet,
    "Parquet": by_parquet,
    "WebDataset": by_shards,
    "hub": by_hub_cache,
    "boxes": by_boxes,
    "boxes in Parquet": by_boxes_in_parquet,
}
OF_FILES = {
    name: route for name, route in ROUTES.items() if name in ("list in Parquet", "Parquet", "hub", "boxes in Parquet")
}


def read(name: str) -> Reading:
    dataset = pin(Dataset(name))
    if name.startswith("boxed:"):
        boxed = load_with_boxes(dataset)
        return Reading(boxed.names, boxed.labels.tolist(), [boxed.picture(row) for row in range(len(boxed.ids))])
    images = load(dataset)
    labels = [*images.train_labels.tolist(), *images.test_labels.tolist()]
    return Reading(images.names, labels, [*images.train_images, *images.test_images])


def encode(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def turned(tag: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = tag
    return exif


GREY = np.array([[0, 100, 200], [255, 50, 1]], np.uint8)
RGB = np.dstack([GREY, GREY[::-1], 255 - GREY])
TWELVE = (GREY.astype(np.uint16) << 4) | (GREY >> 4)  # 0 to 4095
PALETTE = Image.fromarray(RGB).quantize(6)
CLEAR_PALETTE = encode(PALETTE, transparency=0)
NOISE = np.random.default_rng(0).integers(0, 256, (60, 60, 3), np.uint8)
CMYK = encode(Image.fromarray(np.full((2, 3, 4), (255, 0, 0, 0), np.uint8), "CMYK"), "JPEG", quality=100)
# The encoded image, the option for reading it, and its pixels.
SHOWN: dict[str, tuple[bytes, str, np.ndarray]] = {
    "8-bit grey": (encode(Image.fromarray(GREY)), "", GREY[..., None]),
    "16-bit grey": (encode(Image.fromarray(GREY.astype(np.uint16) * 257)), "", GREY[..., None]),
    "16-bit grey TIFF": (encode(Image.fromarray(GREY.astype(np.uint16) * 257), "TIFF"), "", GREY[..., None]),
    "12 bits of 16": (encode(Image.fromarray(TWELVE)), "#bits12", GREY[..., None]),
    "black and white": (encode(Image.fromarray(GREY > 99)), "", (255 * (GREY > 99))[..., None]),
    "palette": (encode(PALETTE), "", RGB),
    "palette with transparency": (CLEAR_PALETTE, "", RGB),
    "grey with alpha": (encode(Image.fromarray(np.dstack([GREY, GREY]), "LA")), "", GREY[..., None]),
    "RGBA": (encode(Image.fromarray(np.dstack([RGB, GREY]))), "", RGB),
    "CMYK JPEG": (CMYK, "", np.asarray(Image.open(io.BytesIO(CMYK)).convert("RGB"))),
    "turned by EXIF": (encode(Image.fromarray(GREY), exif=turned(6)), "", np.rot90(GREY, -1)[..., None]),
}
REFUSED: dict[str, tuple[bytes, str, str]] = {
    "two frames": (
        encode(Image.fromarray(RGB), "WEBP", save_all=True, append_images=[Image.fromarray(255 - RGB)]),
        "",
        "contains 2 images; it must contain one",
    ),
    "32-bit integers": (encode(Image.fromarray(GREY.astype(np.int32)), "TIFF"), "", "contains numbers of 32 bits"),
    "32-bit floats": (encode(Image.fromarray(GREY.astype(np.float32)), "TIFF"), "", "contains numbers of 32 bits"),
    "truncated": (encode(Image.fromarray(NOISE))[:-60], "", "cannot be read as an image: "),
    "too many pixels": (
        png(12_000, 12_000),
        "",
        "cannot be read as an image: it has 12,000 x 12,000 pixels",
    ),
    "another format": (encode(Image.fromarray(GREY), "GIF"), "", "cannot be read as an image: "),
    "above its bits": (
        encode(Image.fromarray(TWELVE)),
        "#bits11",
        "has the level 4095, above 2047; declare #bits12, or no bits",
    ),
    "bits of 8-bit grey": (
        encode(Image.fromarray(GREY)),
        "#bits12",
        "has no 16-bit grey levels; remove #bits12, which is for",
    ),
}
SPLITS = ["train", "train", "test", "test"]


def four(picture: bytes) -> Sample:
    return Sample([picture] * 4, [0, 1, 0, 1], SPLITS)


@pytest.mark.parametrize("kind", SHOWN)
@pytest.mark.parametrize("route", ROUTES)
def test_image_has_same_pixels_by_every_route(route: str, kind: str, tmp_path: Path) -> None:
    picture, option, expected = SHOWN[kind]
    for image_pixels in read(ROUTES[route](tmp_path, four(picture)) + option).pixels:
        # Boxed images are always RGB.
        assert image_pixels.tolist() == np.broadcast_to(expected, (*expected.shape[:2], image_pixels.shape[2])).tolist()
    assert route.startswith("boxes") or image_pixels.shape == expected.shape


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("route", ROUTES)
def test_image_is_refused_identically_by_every_route(route: str, kind: str, tmp_path: Path) -> None:
    picture, option, message = REFUSED[kind]
    with pytest.raises(DatasetError) as caught:
        read(ROUTES[route](tmp_path, four(picture)) + option)
    rows = {
        "Parquet": "train-00000-of-00001.parquet, row 0",
        "WebDataset": f"train-000000.tar, 00{SUFFIX}",
        "hub": "scans-train-00000-of-00002.arrow, row 0",
    }
    path = rows.get(route, f"/00{SUFFIX}")
    assert f"{path} {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind, (_, option, _) in SHOWN.items() if not option])
def test_feature_has_the_same_pixels(kind: str, tmp_path: Path) -> None:
    picture, _, expected = SHOWN[kind]
    (tmp_path / "stamp.png").write_bytes(picture)
    feature_pixels = decode_picture_file(files.pin(File(str(tmp_path / "stamp.png"))))
    assert feature_pixels.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", [kind for kind, (_, option, _) in REFUSED.items() if not option])
def test_feature_is_refused_identically(kind: str, tmp_path: Path) -> None:
    picture, _, message = REFUSED[kind]
    (tmp_path / "stamp.png").write_bytes(picture)
    with pytest.raises(ValueError, match=rf"stamp\.png {message}"):
        decode_picture_file(files.pin(File(str(tmp_path / "stamp.png"))))


@pytest.mark.parametrize("route", ROUTES)
def test_unused_grey_levels_are_noted(route: str, tmp_path: Path) -> None:
    name = ROUTES[route](tmp_path, four(SHOWN["12 bits of 16"][0]))
    (note,) = (note for note in data_notes(pin(Dataset(name)), {}) if "the levels" in note)
    assert note.startswith(f"{name}: the images use the levels 0 to 4095 of 0 to 65535, less than a tenth")
    assert "add #bits12 to the data set's name, so that 4095 is white" in note
    assert not any("the levels" in note for note in data_notes(pin(Dataset(f"{name}#bits12")), {}))


def pictures(count: int) -> list[bytes]:
    return [encode(Image.fromarray(GREY + np.uint8(row))) for row in range(count)]


def twice(labels: Sequence[Any], declared: tuple[str, ...] = ()) -> Sample:
    """Each label in both splits."""
    splits = ["train"] * len(labels) + ["test"] * len(labels)
    return Sample(pictures(2 * len(labels)), [*labels, *labels], splits, declared)


# Labels, and their classes by every route.
NUMBERED: dict[str, tuple[Sample, tuple[str, ...], list[int]]] = {
    "numbers from 1": (twice([1, 2, 3]), ("1", "2", "3"), [0, 1, 2]),
    "numbers with gaps": (twice([999, 0, 7]), ("0", "7", "999"), [2, 0, 1]),
    "ten after two": (twice([10, 2, 1]), ("1", "2", "10"), [2, 1, 0]),
    "below zero": (twice([0, -1, -10]), ("-10", "-1", "0"), [2, 1, 0]),
    "fractions of zeros": (twice([3.0, 1.0]), ("1", "3"), [1, 0]),
    "fractions": (twice([0.5, 10.0, 2.25]), ("0.5", "2.25", "10"), [0, 2, 1]),
    "0.50 and 0.5": (twice(["0.50", "0.5", "3.0"]), ("0.5", "3"), [0, 0, 1]),
    "1 and 1.0": (twice(["1", "1.0", "2", "10.0"]), ("1", "2", "10"), [0, 0, 1, 2]),
    "text": (twice(["well", "ill"]), ("ill", "well"), [1, 0]),
    "text with numbers": (twice(["img10", "img2", "a"]), ("a", "img2", "img10"), [2, 1, 0]),
    "numbers and text": (twice(["9a", "10", "-"]), ("10", "9a", "-"), [1, 0, 2]),
}
# Labels that only Parquet can store.
TYPED: dict[str, tuple[Sample, tuple[str, ...], list[int]]] = {
    "declared names": (twice([1, 0, 2], ("well", "ill", "dead")), ("well", "ill", "dead"), [1, 0, 2]),
    "decimals": (twice([Decimal(10), Decimal(2)]), ("2", "10"), [1, 0]),
    "float32": (twice([np.float32(0.1), np.float32(2.5)]), ("0.1", "2.5"), [0, 1]),
    "decimals with zeros": (twice([Decimal("0.50"), Decimal("1.00")]), ("0.5", "1"), [0, 1]),
    "declared names of fractions": (twice([1.0, 0.0], ("well", "ill")), ("well", "ill"), [1, 0]),
}


def labels_by_picture(reading: Reading) -> list[int]:
    """The classes in the original order of the images; the first level of an image is its number."""
    levels = [int(picture[0, 0, 0]) for picture in reading.pixels]
    return [label for _, label in sorted(zip(levels, reading.labels, strict=True))]


@pytest.mark.parametrize("kind", NUMBERED)
@pytest.mark.parametrize("route", ROUTES)
def test_classes_have_same_numbers_by_every_route(route: str, kind: str, tmp_path: Path) -> None:
    sample, names, numbers = NUMBERED[kind]
    reading = read(ROUTES[route](tmp_path, sample))
    assert reading.names == names
    assert labels_by_picture(reading) == [*numbers, *numbers]


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("route", OF_FILES)
def test_names_in_the_metadata_are_kept(route: str, kind: str, tmp_path: Path) -> None:
    sample, names, numbers = TYPED[kind]
    reading = read(OF_FILES[route](tmp_path, sample))
    assert reading.names == names
    assert labels_by_picture(reading) == [*numbers, *numbers]


@pytest.mark.parametrize("route", OF_FILES)
def test_dictionary_column_equals_its_text(route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sample, "label_column", lambda sample: pa.array(sample.labels).dictionary_encode())
    reading = read(OF_FILES[route](tmp_path, twice(["well", "ill"])))
    assert reading.names == ("ill", "well")
    assert labels_by_picture(reading) == [1, 0, 1, 0]


EMPTY = Sample(pictures(5), ["a", "b", "c", "a", "b"], ["train"] * 3 + ["test"] * 2)


@pytest.mark.parametrize("route", [name for name in ROUTES if not name.startswith("boxes")])
def test_class_missing_in_a_split_is_refused(route: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="class 'c' has no image in the test split, and 1 in total; each class must"):
        read(ROUTES[route](tmp_path, EMPTY))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "declares the class 'dead', which no image has; remove it from the names"),
        ([0, 2], "declares the class 'ill', which no image has"),
        ([0, 0.5], "is 0.5; the file's metadata has names for integers only"),
        ([0, -1], "is -1; the file's metadata has names for 0 to 2"),
        ([0, 3], "is 3; the file's metadata has names for 0 to 2"),
    ],
)
@pytest.mark.parametrize("route", OF_FILES)
def test_declared_names_must_fit_the_labels(route: str, labels: list[int], message: str, tmp_path: Path) -> None:
    sample = Sample(pictures(4), [*labels, *labels], SPLITS, ("well", "ill", "dead"))
    with pytest.raises(DatasetError) as caught:
        read(OF_FILES[route](tmp_path, sample))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_equal_images_have_one_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = twice(["ill", "well"])
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub" / "hub"))
    routes = {name: route for name, route in ROUTES.items() if not name.startswith("boxes")}
    digests = set()
    for name, route in routes.items():
        (tmp_path / name).mkdir()
        digests.add(pin(Dataset(route(tmp_path / name, sample))).digest)
    assert len(digests) == 1
