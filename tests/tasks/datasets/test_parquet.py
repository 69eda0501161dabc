import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tasks.datasets import parquet
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import as_shape

PICTURES = np.random.default_rng(0).integers(0, 256, (5, 6, 4, 3), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def table(pictures: list[bytes], column: str = "img", struct: bool = True) -> pa.Table:
    cells = [{"bytes": picture, "path": None} for picture in pictures] if struct else pictures
    return pa.table({column: cells, "label": pa.array([row % 3 for row in range(len(pictures))], pa.int32())})


def written(folder: Path, *, column: str = "img", struct: bool = True, group: int = 100) -> Path:
    folder.mkdir()
    pictures = [png(pixels) for pixels in PICTURES]
    pq.write_table(table(pictures, column, struct), folder / "train.parquet", row_group_size=group)
    pq.write_table(table(pictures[:2], column, struct), folder / "test.parquet")
    return folder


def read(folder: Path) -> parquet.ParquetContent:
    return parquet.ParquetContent(parquet.pictures(folder / "train.parquet"), parquet.pictures(folder / "test.parquet"))


@pytest.mark.parametrize("column", ["img", "image"])
@pytest.mark.parametrize("struct", [True, False])
def test_pictures_and_labels_come_back_as_they_were_written(tmp_path: Path, column: str, struct: bool) -> None:
    images = read(written(tmp_path / "set", column=column, struct=struct)).images()
    assert images.classes == 3
    for count, pictures, labels in (
        (5, images.train_images, images.train_labels),
        (2, images.test_images, images.test_labels),
    ):
        shown = sorted(zip(labels.tolist(), pictures.tolist(), strict=True))
        assert shown == sorted((row % 3, PICTURES[row].tolist()) for row in range(count))


def test_pictures_of_any_size_are_resized_as_asked(tmp_path: Path) -> None:
    folder = written(tmp_path / "set")
    pictures = [png(pixels[: 6 - row]) for row, pixels in enumerate(PICTURES)]
    pq.write_table(table(pictures), folder / "train.parquet")
    with pytest.raises(DatasetError, match="all must be of one size: add #64x64, or another height x width"):
        load(Dataset(f"parquet:{folder}"))
    images = load(pin(Dataset(f"parquet:{folder}#8x8#grey")))
    assert ((8, 8, 1), 5) == (images.shape, len(images.train_images))
    assert as_shape(PICTURES[2:3, :4], (8, 8, 1))[0].tolist() in images.train_images.tolist()


def test_row_groups_and_column_names_do_not_change_the_digest(tmp_path: Path) -> None:
    one = read(written(tmp_path / "one")).digest()
    two = read(written(tmp_path / "two", column="image", struct=False, group=2)).digest()
    assert one == two


def test_a_changed_label_changes_the_digest(tmp_path: Path) -> None:
    folder = written(tmp_path / "set")
    before = read(folder).digest()
    train = pq.read_table(folder / "train.parquet")
    labels = pa.array([1, 1, 2, 0, 1], pa.int32())
    pq.write_table(train.set_column(1, "label", labels), folder / "train.parquet")
    assert before != read(folder).digest()


def test_grey_pictures_have_one_channel(tmp_path: Path) -> None:
    pq.write_table(table([png(pixels[..., 0]) for pixels in PICTURES]), tmp_path / "grey.parquet")
    np.testing.assert_array_equal(
        PICTURES[..., :1], parquet.stack_pictures(parquet.pictures(tmp_path / "grey.parquet"))
    )


def test_a_grey_picture_among_coloured_ones_becomes_rgb(tmp_path: Path) -> None:
    pq.write_table(table([png(PICTURES[0]), png(PICTURES[1, ..., 0])]), tmp_path / "mixed.parquet")
    mixed = parquet.stack_pictures(parquet.pictures(tmp_path / "mixed.parquet"))
    np.testing.assert_array_equal(np.repeat(PICTURES[1, ..., :1], 3, axis=2), mixed[1])


def test_pictures_of_two_sizes_are_refused(tmp_path: Path) -> None:
    pq.write_table(table([png(PICTURES[0]), png(PICTURES[1, :3])]), tmp_path / "two.parquet")
    with pytest.raises(DatasetError, match="the picture in row 1 is 3 x 4, the first 6 x 4"):
        parquet.stack_pictures(parquet.pictures(tmp_path / "two.parquet"))


def test_what_is_no_picture_is_named(tmp_path: Path) -> None:
    pq.write_table(table([png(PICTURES[0]), b"no picture"]), tmp_path / "broken.parquet")
    with pytest.raises(DatasetError, match="the picture in row 1 cannot be decoded"):
        parquet.stack_pictures(parquet.pictures(tmp_path / "broken.parquet"))


def test_other_columns_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"pixels": [b""], "label": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DatasetError, match="has the columns pixels, label; expected img or image, and label"):
        parquet.pictures(tmp_path / "other.parquet")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DatasetError, match=r"train\.parquet cannot be read"):
        parquet.pictures(tmp_path / "train.parquet")
