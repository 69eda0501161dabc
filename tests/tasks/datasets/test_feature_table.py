"""Tables of features: the same values give the same data set in any format, and invalid cells are refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.datasets.notes import data_notes

AGES = [34.5, 51, 28, 63, 45.25, 39, 70, 22, 58, 47]
WARDS = ["east", "west", "east", "north, upper", "west", "east", "west", "north, upper", "east", "west"]
OUTCOMES = ["well", "ill"] * 5
COLUMNS: Mapping[str, Sequence[Any]] = {"age": AGES, "ward": WARDS, "outcome": OUTCOMES}


def write_csv(path: Path, columns: Mapping[str, Sequence[Any]] = COLUMNS, separator: str = ",") -> str:
    lines = [separator.join(columns)]
    for cells in zip(*columns.values(), strict=True):
        lines.append(separator.join(f'"{cell}"' if "," in str(cell) else str(cell) for cell in cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"table:{path}#label=outcome"


def write_parquet(path: Path, columns: Mapping[str, Any] = COLUMNS) -> str:
    pq.write_table(pa.table(dict(columns)), path)
    return f"table:{path}#label=outcome"


def read(name: str) -> Images:
    return load(Dataset(name))


def all_features(images: Images) -> np.ndarray:
    """The features of both splits, sorted, since rows are in random order."""
    rows = np.concatenate([images.train_images, images.test_images])[:, 0, 0]
    return rows[np.lexsort(rows.T)]


def test_numbers_are_standardised_and_texts_are_one_hot(tmp_path: Path) -> None:
    images = read(write_csv(tmp_path / "a.csv"))
    assert images.shape == (1, 1, 4)
    assert images.features == ("age", "ward is east", "ward is north, upper", "ward is west")
    assert images.names == ("ill", "well")
    assert (len(images.train_images), len(images.test_images)) == (8, 2)
    features = all_features(images)
    ages = (np.array(AGES) - np.mean(AGES)) / np.std(AGES)
    assert np.sort(features[:, 0]) == pytest.approx(np.sort(ages), abs=1e-6)
    assert features[:, 1:].sum(axis=1).tolist() == [1] * 10
    assert features[:, 1:].sum(axis=0).tolist() == [4, 2, 4]


def test_same_values_have_same_digest_in_every_format(tmp_path: Path) -> None:
    names = [
        write_csv(tmp_path / "a.csv"),
        write_csv(tmp_path / "b.csv", separator=";"),
        write_csv(tmp_path / "c.csv", {"AGE": AGES, "Ward": WARDS, "Outcome": OUTCOMES}),
        write_parquet(tmp_path / "a.parquet"),
        write_parquet(tmp_path / "b.parquet", {**COLUMNS, "ward": pa.array(WARDS).dictionary_encode()}),
        write_parquet(tmp_path / "c.parquet", {**COLUMNS, "age": pa.array(AGES, pa.float32())}),
    ]
    digests = [pin(Dataset(name)).digest for name in names]
    assert digests == digests[:1] * len(digests)
    assert digests[0] == "95877ff81e3183cc706aec20fb7cb43ab8641662c1089d1c854c2a3b29f94bf7"
    changed = write_csv(tmp_path / "d.csv", {**COLUMNS, "age": [34.25, *AGES[1:]]})
    assert len({*digests, pin(Dataset(changed)).digest, pin(Dataset(f"table:{tmp_path}/a.csv#label=ward")).digest}) == 3


def test_splits_and_members_do_not_change_features(tmp_path: Path) -> None:
    splits = ["train", "train", "test", "test"] * 2 + ["train", "test"]
    marks = [1, 0, 0, 1, 1, 0, 0, 1, 0, 1]
    plain = read(write_csv(tmp_path / "a.csv"))
    divided = read(write_csv(tmp_path / "b.csv", {**COLUMNS, "split": splits}))
    name = write_csv(tmp_path / "c.csv", {**COLUMNS, "trained": marks})
    assert (len(divided.train_images), len(divided.test_images)) == (5, 5)
    assert np.array_equal(all_features(divided), all_features(plain))
    selected = np.concatenate([all_features(read(f"{name}#{kind}(trained)")) for kind in ("members", "others")])
    assert np.array_equal(selected[np.lexsort(selected.T)], all_features(plain))


def test_missing_numbers_become_median_and_marker(tmp_path: Path) -> None:
    ages: list[Any] = [*AGES]
    ages[:3] = ["", "NA", "nan"]
    wards = ["", *WARDS[1:]]
    name = write_csv(tmp_path / "a.csv", {"age": ages, "ward": wards, "outcome": OUTCOMES})
    images = read(name)
    assert images.features[:3] == ("age", "age is missing", "ward is missing")
    features = all_features(images)
    present = np.array(AGES[3:])
    filled = (np.median(present) - present.mean()) / present.std()
    assert features[features[:, 1] == 1, 0] == pytest.approx([filled] * 3, abs=1e-6)
    notes = data_notes(pin(Dataset(name)), {})
    assert [note.partition(": ")[2] for note in notes] == [
        "missing numbers in age (3) are replaced by the median of the column, and a feature marks them"
    ]


def test_raw_numbers_stay_as_they_are(tmp_path: Path) -> None:
    name = write_csv(tmp_path / "a.csv", {"age": AGES, "outcome": OUTCOMES})
    assert np.array_equal(all_features(read(f"{name}#raw"))[:, 0], np.sort(np.array(AGES, np.float32)))
    with pytest.raises(DatasetError, match=r"column 'ward' is text, and with #raw a model takes the numbers"):
        read(f"{write_csv(tmp_path / 'b.csv')}#raw")
    with pytest.raises(DatasetError, match=r"column 'age': row 2 has no value \(1 have none\), and with #raw"):
        read(f"{write_csv(tmp_path / 'c.csv', {'age': [1, '', *AGES[2:]], 'outcome': OUTCOMES})}#raw")


def test_copies_share_a_split(tmp_path: Path) -> None:
    images = read(write_csv(tmp_path / "a.csv", {"age": [*AGES * 2, 1, 2], "outcome": [*OUTCOMES * 2, "ill", "well"]}))
    train, test = ({row.tobytes() for row in split} for split in (images.train_images, images.test_images))
    assert not train & test


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": AGES, "outcom": OUTCOMES}, r"has no column 'outcome'; it has age, outcom; did you mean 'outcom'\?"),
        ({"outcome": OUTCOMES}, "has no column other than 'outcome'"),
        ({"age": AGES, "outcome": ["ill"] * 10}, "column 'outcome' has only the class 'ill'; at least two are needed"),
        ({"age": AGES, "outcome": ["", *OUTCOMES[1:]]}, r"column 'outcome': row 1 has no label \(1 have none\)"),
        ({"age": AGES, "outcome": ["odd", *OUTCOMES[1:]]}, "class 'odd' has no row in the train split, and 1 in total"),
        (
            {"age": [*AGES[:9], "old"] * 2, "outcome": OUTCOMES * 2},
            "column 'age' has numbers, but row 10 has 'old'; it",
        ),
        ({"age": [*AGES[:9], "1e999"], "outcome": OUTCOMES}, "column 'age': row 10 is infinite or too large"),
        ({"age": ["1,000", *AGES[1:]], "outcome": OUTCOMES}, "column 'age': row 1 is '1,000'; write numbers without"),
        ({"age": [""] * 10, "outcome": OUTCOMES}, "column 'age' has no values; remove it"),
        ({**COLUMNS, "split": ["train", "left"] * 5}, "column 'split': row 2 is 'left'; it must be train or test"),
    ],
)
def test_invalid_cells_are_refused_by_column_and_row(
    columns: Mapping[str, Sequence[Any]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=message):
        read(write_csv(tmp_path / "a.csv", columns))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; the first line must name the columns"),
        (b"age,outcome\n", "has no rows"),
        (b"age,age,outcome\n1,2,ill\n", "has the column 'age' 2 times; names must differ"),
        ("age,outcome\n1,gesund\xfc\n".encode("latin-1"), "is not text in UTF-8: .* in line 2"),
        (b"age,outcome\n1,ill,3\n", "has a row that has 3 values; it must have 2"),
        (b"age outcome\n1 ill\n", "has no column 'outcome'; it has age outcome; columns are separated by commas"),
    ],
)
def test_invalid_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        read(f"table:{tmp_path}/a.csv#label=outcome")


def test_names_ids_and_dates_are_refused(tmp_path: Path) -> None:
    count = 10_000
    ids = [f"patient {number}" for number in range(count)]
    labels = OUTCOMES * (count // 10)
    with pytest.raises(DatasetError, match=r"column 'id' has 10,000 distinct texts \(row 1 has 'patient 0'\); it must"):
        read(write_csv(tmp_path / "a.csv", {"id": ids, "outcome": labels}))
    with pytest.raises(DatasetError, match=r"column 'outcome' has 10,000 distinct values; a label has at most 1,000"):
        read(write_csv(tmp_path / "b.csv", {"age": AGES * 1000, "outcome": ids}))
    dates = pa.array([0] * 10, pa.date32())
    with pytest.raises(DatasetError, match=r"column 'day' is date32\[day\]; it must have numbers"):
        read(write_parquet(tmp_path / "a.parquet", {**COLUMNS, "day": dates}))


def test_name_needs_a_label_and_no_image_options(tmp_path: Path) -> None:
    name = write_csv(tmp_path / "a.csv")
    with pytest.raises(DatasetError, match=r"name the column of the classes, such as table:a\.csv#label=outcome"):
        read(name.partition("#")[0])
    with pytest.raises(DatasetError, match="has the option #8x8; tables have no shape"):
        read(f"{name}#8x8")
    with pytest.raises(
        DatasetError, match="has no option #lable=outcome; the options of a table are #label=COLUMN, #raw"
    ):
        read(f"{name.partition('#')[0]}#lable=outcome")
