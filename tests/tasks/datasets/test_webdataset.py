"""WebDataset shards: layouts, samples and damaged archives. test_routes.py tests what all routes share."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets import webdataset
from tasks.datasets.catalog import image_names, load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.notes import data_notes
from tasks.datasets.tar_files import TarError, read_members
from tests.tasks.datasets.test_parquet import PICTURES, png
from tests.tasks.datasets.test_routes import write_tar

IMAGES = [png(pixels) for pixels in PICTURES]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))


def samples(count: int = 6, label: str = "cls") -> dict[str, bytes]:
    members = {}
    for row in range(count):
        members[f"{row:04d}.png"] = IMAGES[row]
        text = str(row % 2)
        members[f"{row:04d}.{label}"] = (f'{{"label": {text}, "fine": "{text}"}}' if label == "json" else text).encode()
    return members


def splits(folder: Path, **options: str) -> Path:
    folder.mkdir(exist_ok=True)
    for split in ("train", "test"):
        write_tar(folder / f"{split}-000000.tar", samples(4, **options))
    return folder


def digest(name: object) -> str:
    return pin(Dataset(f"webdataset:{name}")).digest


def error_of(name: object) -> str:
    with pytest.raises(DatasetError) as caught:
        pin(Dataset(f"webdataset:{name}"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_layouts_give_one_data_set(tmp_path: Path) -> None:
    expected = digest(splits(tmp_path / "names"))
    for split, name in (("train", "Train"), ("test", "val")):
        (tmp_path / "folders" / name).mkdir(parents=True)
        write_tar(tmp_path / "folders" / name / "2.tar", dict(list(samples(4).items())[:4]))
        write_tar(tmp_path / "folders" / name / "10.tar", dict(list(samples(4).items())[4:]))
        write_tar(tmp_path / f"set-{split}-07.tar", samples(4))
    assert digest(tmp_path / "folders") == expected
    assert digest(tmp_path / "set-{train,test}-{07..07}.tar") == expected
    assert digest(tmp_path / "folders/{Train/{2,10},val/{2,10}}.tar") == expected
    assert digest(splits(tmp_path / "json", label="json")) == expected
    assert digest(f"{tmp_path / 'json'}#label=fine#image=png") == expected
    assert image_names(Dataset(f"webdataset:{tmp_path / 'names'}"))[0].endswith("/names/train-000000.tar:0000.png")


def test_one_shard_in_five_images_is_test(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "train-0.tar", samples(6))
    images = load(pin(Dataset(f"webdataset:{shard}")))
    assert (len(images.train), len(images.test)) == (4, 2)
    assert digest(shard) == digest(tmp_path / "train-{0..0}.tar")
    assert error_of(tmp_path) == (
        f"{tmp_path} has train-0.tar, but no shard of 'test'; it must have both. To draw a test split, name the "
        "shards, such as train-{000000..000009}.tar"
    )


@pytest.mark.parametrize(
    ("archive_format", "length"),
    [
        *((tarfile.USTAR_FORMAT, length) for length in (20, 80)),  # in the second, the folder is in another field
        *(
            (archive_format, length)
            for archive_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
            for length in (20, 200)
        ),
    ],
)
def test_members_equal_those_of_tarfile(tmp_path: Path, archive_format: int, length: int) -> None:
    name = f"{'d' * 60}/{'ü' * (length // 4)}{'k' * (length // 4)}.png"
    path = write_tar(tmp_path / "a.tar", {name: b"x" * 700, "b.cls": b"", "c.cls": b"1"}, archive_format)
    with tarfile.open(path) as archive:
        expected = [(member.name, member.offset_data, member.size) for member in archive]
    with path.open("rb") as file:
        assert [(member.name, member.offset, member.size) for member in read_members(file)] == expected


def test_headers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = splits(tmp_path / "set")
    expected = digest(folder)
    with monkeypatch.context() as patched:
        patched.setattr(webdataset, "read_index", None)
        assert digest(folder) == expected
    write_tar(folder / "test-000000.tar", samples(6))
    changed = digest(folder)
    assert changed != expected
    for index in (tmp_path / "cache").glob("*.webdataset"):  # a damaged index is not used
        index.write_bytes(index.read_bytes()[:-9] + b"different")
    assert digest(folder) == changed


def test_other_members_are_noted(tmp_path: Path) -> None:
    folder = splits(tmp_path / "set")
    members = samples(4)
    with_text = {}
    for name, content in members.items():
        with_text[name] = content
        if name.endswith("cls"):
            with_text[name.replace("cls", "txt")] = b"a caption"
    with_text["._0003.png"] = b"written by a Mac"
    before = digest(folder)
    write_tar(folder / "train-000000.tar", with_text)
    pinned = pin(Dataset(f"webdataset:{folder}"))
    assert pinned.digest == before
    note = f"webdataset:{folder}: these members of its shards are not read: 4 .txt"
    assert note in data_notes(pinned, {})


def test_one_of_several_images_is_chosen(tmp_path: Path) -> None:
    members = {}
    for row in range(6):
        members |= {f"{row}.left.png": IMAGES[row], f"{row}.right.png": IMAGES[5 - row], f"{row}.cls": b"1"}
    shard = write_tar(tmp_path / "a.tar", members)
    assert "has the sample 0 with several images; choose one, such as #image=left.png" in error_of(shard)
    assert digest(f"{shard}#image=left.png") != digest(f"{shard}#image=right.png")


def tar_of(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def tar_with_link() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("0.png")
        member.type = tarfile.SYMTYPE
        member.linkname = "/etc/passwd"
        archive.addfile(member)
    return file.getvalue()


PNG = IMAGES[0]
WHOLE = tar_of(samples(6))
DAMAGED = {
    "empty": (b"", "is empty; a shard must be a tar archive"),
    "text": (b"no archive" * 100, "is not a tar archive"),
    "gzip": (b"\x1f\x8b\x08" + b"\0" * 600, "is compressed; unpack it with gunzip, since images are read from"),
    "cut in a member": (WHOLE[: 512 + 20], "ends at byte 532 within 0000.png, which takes"),
    "cut between members": (WHOLE[:1024], "ends at byte 1024 without the mark that ends an archive; it may have been"),
    "joined": (WHOLE + WHOLE, "has data after its end at byte"),
    "a header": (WHOLE[:1024] + b"?" * 8 + WHOLE[1032:], "has a damaged header at byte 1024"),
    "link": (tar_with_link(), "has 0.png, which is a link or another special file; it must contain files only"),
    "no samples": (tar_of({}), "has no samples"),
    "no label": (tar_of({"0.png": PNG}), "has the sample 0 with .png; expected .cls, or .json with the field label"),
    "no image": (tar_of({"0.cls": b"1"}), "has the sample 0 with .cls; expected an image (.png, .jpg, "),
    "no extension": (tar_of({"README": b""}), "has the member README; names must be KEY.jpg, KEY.cls and the like"),
    "member twice": (WHOLE[:1024] + WHOLE, "has 0000.png twice; keys must differ"),
    "key twice": (
        tar_of({"0.png": PNG, "0.cls": b"1", "1.png": PNG, "1.cls": b"1", "0.jpg": PNG}),
        "has the key 0 again after others; members of a sample must be together",
    ),
    "empty label": (tar_of({"0.png": PNG, "0.cls": b" \n"}), "has the member 0.cls without a label"),
    "lines": (tar_of({"0.png": PNG, "0.cls": b"1\n2"}), r"has the member 0.cls with the label '1\n2'; a label must be"),
    "bytes": (tar_of({"0.png": PNG, "0.cls": b"\xff"}), "has the member 0.cls, which is not text in UTF-8"),
    "no JSON": (tar_of({"0.png": PNG, "0.json": b"{"}), "has the member 0.json, which is not JSON"),
    "nested": (tar_of({"0.png": PNG, "0.json": b"[" * 99999}), "has the member 0.json, which is not JSON"),
    "no field": (tar_of({"0.png": PNG, "0.json": b'{"x": 1}'}), "has the member 0.json without the field label"),
    "list": (tar_of({"0.png": PNG, "0.json": b'{"label": [1]}'}), "0.json: label is [1]; it must be text or a number"),
    "infinite": (tar_of({"0.png": PNG, "0.json": b'{"label": NaN}'}), "has the member 0.json without a label"),
    "long label": (tar_of({"0.png": PNG, "0.cls": b"1" * (1 << 20) + b"1"}), "of 1,048,577 bytes; a label has at most"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_shards_are_named(kind: str, tmp_path: Path) -> None:
    content, message = DAMAGED[kind]
    shard = tmp_path / "shard.tar"
    shard.write_bytes(content)
    found = error_of(shard)
    assert found.startswith(str(shard))
    assert message in found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", "no shards (.tar files) in {folder}/gone"),
        ("gone-{0..3}.tar", "no shards (.tar files) in {folder}/gone-{{0..3}}.tar"),
        ("train-{0..3}.tar", "there is no shard {folder}/train-1.tar; {folder}/train-{{0..3}}.tar names 4"),
        ("train-{3..0}.tar", "has the range {{3..0}}; it must be {{FIRST..LAST}}, of at most 100,000"),
        ("train-{0..999}{0..999}.tar", "names more than 100,000 shards"),
        ("train-0.tar.txt", "{folder}/train-0.tar.txt is not a shard; it must end in .tar"),
        (
            "mixed",
            "has other.tar, whose name has no split, and train.tar; put train or test in the name of every shard",
        ),
        ("both", "train-test.tar belongs to test and train by its name; it must have one split"),
        ("train-0.tar#label=fine", "has the sample 0000 with .png, .cls; expected .fine, or .json with the field fine"),
        ("train-0.tar#image=jpg", "has the sample 0000 with .png, .cls; expected .jpg"),
        ("train-0.tar#label=a#label=b", "has two labels, #label=a and #label=b; keep one"),
        ("train-0.tar#members(x)", "has the option #members(x); it is for list:, parquet:, hf:, table:"),
    ],
)
def test_invalid_names_are_refused(name: str, message: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "train-0.tar", samples(6))
    (tmp_path / "train-0.tar.txt").write_text("")
    for folder, files in (("mixed", ("other", "train")), ("both", ("train-test",))):
        (tmp_path / folder).mkdir()
        for file in files:
            write_tar(tmp_path / folder / f"{file}.tar", samples(2))
    assert message.format(folder=tmp_path) in error_of(tmp_path / name)


def test_damage_anywhere_ends_in_one_line(tmp_path: Path) -> None:
    """An archive that is cut, or has wrong bytes, is refused or gives valid images, but never raises another error."""
    draw = random.Random(0)
    outcomes = set()
    for number in range(150):
        content = bytearray(WHOLE if number % 3 else tar_of({f"{'k' * 120}{row}.png": PNG for row in range(3)}))
        if number % 2:
            content = content[: draw.randrange(len(content))]
        for _ in range(draw.randrange(1, 20) if number % 4 else 0):
            if content:
                content[draw.randrange(len(content))] = draw.randrange(256)
        shard = tmp_path / f"{number}.tar"
        shard.write_bytes(content)
        outcome = ""
        try:
            pin(Dataset(f"webdataset:{shard}"))
        except DatasetError as error:
            outcome = str(error)
        assert outcome == "" or outcome.isprintable()
        outcomes.add(outcome.partition(" ")[2][:12])
    assert len(outcomes) > 5  # different faults were found


def test_random_bytes_are_no_archive(tmp_path: Path) -> None:
    bits = np.random.default_rng(0)
    for size in (1, 511, 512, 513, 5000):
        path = tmp_path / f"{size}.tar"
        path.write_bytes(bits.bytes(size))
        with path.open("rb") as file, pytest.raises(TarError):
            list(read_members(file))
