"""Parquet files of encoded images: layouts, columns and shards. test_routes.py tests what all routes share."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tasks.datasets import catalog, row_groups
from tasks.datasets.catalog import files, load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images, as_shape
from tasks.datasets.labelled import Labelled
from tasks.datasets.notes import data_notes
from tasks.datasets.row_groups import GroupedImages

PICTURES = np.random.default_rng(0).integers(0, 256, (6, 6, 4, 3), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def table(pictures: list[bytes], column: str = "img", struct: bool = True) -> pa.Table:
    if struct:
        cells = [{"bytes": picture, "path": None} for picture in pictures]
    else:
        cells = pictures
    return pa.table({column: cells, "label": pa.array([row % 3 for row in range(len(pictures))], pa.int32())})


def written(folder: Path, *, column: str = "img", struct: bool = True, group: int = 100) -> Path:
    folder.mkdir()
    pictures = [png(pixels) for pixels in PICTURES]
    pq.write_table(table(pictures, column, struct), folder / "train.parquet", row_group_size=group)
    pq.write_table(table(pictures[:3], column, struct), folder / "test.parquet")
    return folder


def read(folder: Path) -> Images:
    return load(pin(Dataset(f"parquet:{folder}")))


@pytest.mark.parametrize("column", ["img", "image", "Image"])
@pytest.mark.parametrize("struct", [True, False])
def test_images_and_labels_are_read_exactly(tmp_path: Path, column: str, struct: bool) -> None:
    images = read(written(tmp_path / "set", column=column, struct=struct))
    for count, pictures, labels in (
        (6, images.train_images, images.train_labels),
        (3, images.test_images, images.test_labels),
    ):
        pairs = sorted(zip(labels.tolist(), pictures.tolist(), strict=True))
        assert pairs == sorted((row % 3, PICTURES[row].tolist()) for row in range(count))
    assert images.names == ("0", "1", "2")


def test_images_of_any_size_are_resized(tmp_path: Path) -> None:
    folder = written(tmp_path / "set")
    pictures = [png(pixels[: 6 - row % 5]) for row, pixels in enumerate(PICTURES)]
    pq.write_table(table(pictures), folder / "train.parquet")
    with pytest.raises(
        DatasetError, match=r"parquet, row 1 is 5 x 4, train\.parquet, row 0 6 x 4; all images must have"
    ):
        load(Dataset(f"parquet:{folder}"))
    images = load(pin(Dataset(f"parquet:{folder}#8x8#grey")))
    assert images.shape == (8, 8, 1)
    assert as_shape(PICTURES[2:3, :4], (8, 8, 1))[0].tolist() in images.train_images.tolist()


def test_compression_does_not_change_the_digest(tmp_path: Path) -> None:
    one = written(tmp_path / "one")
    two = written(tmp_path / "two", column="image", struct=False, group=2)
    shards = tmp_path / "shards" / "data"
    shards.mkdir(parents=True)
    train = pq.read_table(one / "train.parquet")
    pq.write_table(train.slice(0, 2), shards / "train-00000-of-00002.parquet")
    pq.write_table(train.slice(2), shards / "train-00001-of-00002-0123456789abcdef.parquet")
    pq.write_table(pq.read_table(one / "test.parquet"), shards / "validation-00000-of-00001.parquet")
    converted = tmp_path / "converted" / "default"
    shards_of = {"train": [train.slice(0, 2), train.slice(2)], "test": [pq.read_table(one / "test.parquet")]}
    for split, tables in shards_of.items():
        (converted / split).mkdir(parents=True)
        for number, part in enumerate(tables):
            pq.write_table(part, converted / split / f"{number:04}.parquet")
    folders = (one, two, tmp_path / "shards", shards, tmp_path / "converted", converted)
    digests = {pin(Dataset(f"parquet:{folder}")).digest for folder in folders}
    assert len(digests) == 1
    (converted / "train" / "0000.parquet").unlink()
    with pytest.raises(DatasetError, match=r"train has 0001\.parquet; its files must be 0000\.parquet, 0001\.parquet"):
        pin(Dataset(f"parquet:{converted}"))
    pq.write_table(train, converted / "train.parquet")
    (converted / "train" / "0001.parquet").rename(converted / "train" / "0000.parquet")
    with pytest.raises(DatasetError, match=r"has train\.parquet and the folder 'train'; keep one of them"):
        pin(Dataset(f"parquet:{converted}"))
    assert files(Dataset(f"parquet:{one}")) == ()


def test_changed_label_changes_the_digest(tmp_path: Path) -> None:
    folder = written(tmp_path / "set")
    before = pin(Dataset(f"parquet:{folder}")).digest
    train = pq.read_table(folder / "train.parquet")
    labels = pa.array([1, 1, 2, 0, 1, 2], pa.int32())
    pq.write_table(train.set_column(1, "label", labels), folder / "train.parquet")
    assert before != pin(Dataset(f"parquet:{folder}")).digest


def test_unused_validation_images_are_noted(tmp_path: Path) -> None:
    folder = written(tmp_path / "set")
    before = pin(Dataset(f"parquet:{folder}")).digest
    pq.write_table(table([png(PICTURES[0])] * 4), folder / "validation.parquet")
    assert pin(Dataset(f"parquet:{folder}")).digest == before
    name = f"parquet:{folder}"
    note = "4 images of its validation split are not read, since it has a test split"
    assert f"{name}: {note}" in data_notes(Dataset(name, before), {})


@pytest.mark.parametrize(("present", "absent"), [("train", "test"), ("test", "train"), ("validation", "train")])
def test_split_without_the_other_is_refused(tmp_path: Path, present: str, absent: str) -> None:
    pq.write_table(table([png(PICTURES[0])]), tmp_path / f"{present}.parquet")
    with pytest.raises(DatasetError, match=rf"has {present}\.parquet, but not '{absent}'; it must have both"):
        pin(Dataset(f"parquet:{tmp_path}"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "train.parquet",
            pa.table({"pixels": [b""], "label": [1]}),
            "train.parquet has the columns pixels, label; expected img or image, and label",
        ),
        ("train.parquet", table([]), "train.parquet has no rows"),
        (
            "test.parquet",
            pa.table({"img": [png(PICTURES[0]), None, b"x"], "label": [0, 1, 2]}),
            "test.parquet, row 1 has no image",
        ),
        ("test.parquet", pa.table({"img": [b"x"], "label": [None]}), "test.parquet, row 0 has no label"),
        ("test.parquet", pa.table({"img": [b"x"], "label": [np.inf]}), "test.parquet, row 0: label is inf; it must be"),
        ("train-00001-of-00002.parquet", table([b"x"]), "expected all parts of train, once each"),
    ],
)
def test_invalid_tables_are_named(tmp_path: Path, name: str, content: pa.Table, message: str) -> None:
    folder = written(tmp_path / "set")
    pq.write_table(content, folder / name)
    with pytest.raises(DatasetError) as caught:
        pin(Dataset(f"parquet:{folder}"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (written(tmp_path / "set") / "train.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DatasetError, match=r"train\.parquet cannot be read"):
        pin(Dataset(f"parquet:{tmp_path / 'set'}"))


def test_any_columns_hold_images_and_labels(tmp_path: Path) -> None:
    expected = pin(Dataset(f"parquet:{written(tmp_path / 'usual')}")).digest
    folder = tmp_path / "named"
    folder.mkdir()
    for split in ("train", "test"):
        usual = pq.read_table(tmp_path / "usual" / f"{split}.parquet")
        columns = {"id": list(range(len(usual))), "picture": usual["img"], "fine_label": usual["label"]}
        pq.write_table(pa.table(columns), folder / f"{split}.parquet")
    for written_options in ("#image=picture,label=fine_label", "#label=Fine_Label#image=picture"):
        assert pin(Dataset(f"parquet:{folder}{written_options}")).digest == expected
    for option, message in {
        "": "columns id, picture, fine_label; expected img or image, and label. For other columns, add "
        "#image=picture#label=id to the data set's name",
        "#image=picture": "expected picture, and label. For other columns, add #label=id to the data set's name",
        "#image=id,label=id": "train.parquet: column id is int64; it must contain encoded images, as bytes or as",
        "#image=a,image=b": "has two images, #image=a and #image=b; keep one",
        "#columns=a": "has no option #columns=a; the options are #HEIGHTxWIDTH, #grey and #rgb, #bits9 to #bits16, "
        "#image=NAME and #label=NAME, and #inverted10",
    }.items():
        with pytest.raises(DatasetError) as caught:
            pin(Dataset(f"parquet:{folder}{option}"))
        assert message in str(caught.value)
    with pytest.raises(DatasetError, match="has no option #label=dogs; the options are"):
        pin(Dataset("folder:scans#label=dogs"))


def test_rows_are_read_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(row_groups, "TOGETHER", 1)
    monkeypatch.setattr(row_groups, "KEPT", 0)
    path = written(tmp_path / "set", group=2) / "train.parquet"
    images = GroupedImages({path: "img"})
    for rows in (range(6), (5, 0, 3, 1, 4, 2), (4, 0, 2, 5, 1, 3)):
        for row in rows:
            assert images.read(Labelled(path, 0, "train", row)) == png(PICTURES[row])
    assert list((tmp_path / "cache").iterdir()) == []  # the copy has no name
    with pytest.raises(DatasetError, match=r"train\.parquet has changed since its labels were read"):
        images.read(Labelled(path, 0, "train", 6))


def test_large_sets_have_the_digest_of_loaded_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    name = f"parquet:{written(tmp_path / 'set', group=2)}"
    expected = pin(Dataset(name))
    images = load(expected)
    monkeypatch.setattr(catalog, "LARGE", 0)
    monkeypatch.setattr(catalog, "_loaded", {})
    assert pin(Dataset(name)) == expected
    rows = load(expected)
    for split, of_rows in ((images.train, rows.train), (images.test, rows.test)):
        everything = np.arange(len(split))
        assert np.array_equal(split.pixels(everything), of_rows.pixels(everything))
        assert np.array_equal(split.labels, of_rows.labels)
