"""Samples of a generator become one score per record, and invalid samples are refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.programs.embedding import Embedding
from tasks.programs.samples import score_samples

AGES = np.array([34.5, 51, 28, 63, 45.25, 39, 70, 22, 58, 47])
WARDS = np.array(["east", "west", "east", "north, upper", "west", "east", "west", "north, upper", "east", "west"])
OUTCOMES = np.array(["1", "0"] * 5)
COLUMNS: Mapping[str, Any] = {"age": AGES, "ward": WARDS, "outcome": OUTCOMES}
CHANCE = np.random.default_rng(5)
PIXELS = CHANCE.integers(0, 256, (7, 4, 5, 3), dtype=np.uint8)


def write(path: Path, columns: Mapping[str, Any]) -> None:
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if path.suffix == ".csv":
        lines = [",".join(columns)]
        for row in table.to_pylist():
            lines.append(",".join(f'"{cell}"' if cell is not None else "" for cell in row.values()))
        path.write_text("\n".join(lines) + "\n")
    else:
        pq.write_table(table, path)


@pytest.fixture
def records(tmp_path: Path) -> Images:
    write(tmp_path / "records.csv", COLUMNS)
    return load(Dataset(f"table:{tmp_path / 'records.csv'}#label=outcome"))


@pytest.fixture
def pictures() -> Images:
    labels = np.zeros(len(PIXELS), np.int64)
    return Images(PIXELS.copy(), labels, PIXELS[:1].copy(), labels[:1], 1)


def expected_scores(records: Images, samples: Mapping[str, Any]) -> np.ndarray:
    """Minus the distances, computed from the cells of the file."""
    assert records.train_file_rows is not None
    coded = []
    for columns in (COLUMNS, samples):
        parts = [((columns["age"] - AGES.mean()) / AGES.std())[:, None]]
        for name in ("ward", "outcome"):
            if name in samples:
                parts.append(columns[name][:, None] == np.unique(COLUMNS[name]))
        coded.append(np.hstack(parts).astype(float))
    differences = coded[0][records.train_file_rows][:, None] - coded[1]
    return -np.sqrt((differences**2).sum(axis=2)).min(axis=1)


@pytest.mark.parametrize("name", ["samples.csv", "samples.parquet"])
@pytest.mark.parametrize("has_label", [True, False])
def test_table_score_is_minus_distance_to_nearest_sample(
    records: Images, name: str, has_label: bool, tmp_path: Path
) -> None:
    samples = {"ward": WARDS[[0, 3, 1]], "age": np.array([30, 63.0, 90]), "colour": np.array(["a", "b", "c"])}
    if has_label:
        samples["outcome"] = np.array(["0", "0", "1.0"])
    write(tmp_path / name, samples)
    if has_label:
        samples["outcome"] = np.array(["0", "0", "1"])
    rows = np.arange(len(records.train_images))
    expected = expected_scores(records, samples)
    scores = score_samples(tmp_path, records, rows)
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(score_samples(tmp_path, records, rows[[4, 1]]), scores[[4, 1]])


def test_raw_table_has_the_same_scores(tmp_path: Path) -> None:
    write(tmp_path / "records.csv", {"age": AGES, "weight": AGES[::-1] * 1e4, "outcome": OUTCOMES})
    write(tmp_path / "samples.csv", {"age": AGES[:2], "weight": AGES[:2] * 1e4})
    scores = []
    for options in ("", "#raw"):
        records = load(Dataset(f"table:{tmp_path / 'records.csv'}#label=outcome{options}"))
        scores.append(score_samples(tmp_path, records, np.arange(len(records.train_images))))
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-5)


def test_missing_numbers_are_allowed_if_records_lack_them(tmp_path: Path) -> None:
    ages = [None, *AGES[1:]]
    write(tmp_path / "records.csv", {"age": ages, "outcome": OUTCOMES})
    write(tmp_path / "samples.csv", {"age": [None, 51.0]})
    records = load(Dataset(f"table:{tmp_path / 'records.csv'}#label=outcome"))
    assert records.train_file_rows is not None
    scores = score_samples(tmp_path, records, np.arange(len(records.train_images)))
    assert scores[records.train_file_rows <= 1].tolist() == [0.0] * int((records.train_file_rows <= 1).sum())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": AGES, "wards": WARDS}, r"has no column 'ward'; it has age, wards; did you mean 'wards'\?"),
        ({"age": [1.0, None], "ward": WARDS[:2]}, r"'age': row 2 has no value \(1 have none\), and in the data set"),
        ({"age": [None], "ward": WARDS[:1]}, r"'age': row 1 has no value \(1 have none\), and in the data set"),
        ({"age": ["old", "1"], "ward": WARDS[:2]}, "column 'age' is text, and in the data set it has numbers"),
        ({"age": [1, 2e300], "ward": WARDS[:2]}, r"'age': row 2 is 2e\+300, too far from the data set's numbers"),
        ({"age": AGES[:2], "ward": ["east", "south"]}, "'ward': row 2 is 'south', which no row of the data set is;"),
        ({"age": AGES[:1], "ward": WARDS[:1], "outcome": ["0.5"]}, r"'outcome': row 1 is '0\.5', .* values \(0, 1\)"),
        ({"age": [], "ward": []}, "has no rows; write one row per record"),
    ],
)
def test_invalid_tables_are_refused(records: Images, columns: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "samples.csv", columns)
    with pytest.raises(DatasetError, match=message) as caught:
        score_samples(tmp_path, records, np.arange(4))
    assert "\n" not in str(caught.value)


def test_parquet_categories_may_be_encoded_but_not_nested(records: Images, tmp_path: Path) -> None:
    columns = {"age": AGES[:2], "ward": pa.array(WARDS[:2]).dictionary_encode()}
    pq.write_table(pa.table(columns), tmp_path / "samples.parquet")
    assert score_samples(tmp_path, records, np.arange(4)).shape == (4,)
    pq.write_table(pa.table({**columns, "ward": pa.array([["east"], ["west"]])}), tmp_path / "samples.parquet")
    with pytest.raises(DatasetError, match=r"column 'ward' is list<.*>; write text, as in the data set"):
        score_samples(tmp_path, records, np.arange(4))


def test_missing_and_ambiguous_files_are_refused(records: Images, pictures: Images, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"has no samples; write samples\.csv or samples\.parquet into it"):
        score_samples(tmp_path, records, np.arange(4))
    (tmp_path / "samples.npz").touch()
    with pytest.raises(DatasetError, match=r"has samples\.npz, and the data set is a table; write samples\.csv or"):
        score_samples(tmp_path, records, np.arange(4))
    (tmp_path / "samples").mkdir()
    with pytest.raises(DatasetError, match=r"has samples\.npz and samples; write only one"):
        score_samples(tmp_path, pictures, np.arange(4))


@pytest.mark.parametrize("form", ["bytes", "fractions", "folder"])
def test_image_scores_are_equal_in_every_form(pictures: Images, form: str, tmp_path: Path) -> None:
    samples = PIXELS[[2, 5]].copy()
    samples[0, 0, 0] ^= 1
    if form == "folder":
        (tmp_path / "samples").mkdir()
        for number, sample in enumerate(samples):
            Image.fromarray(sample).save(tmp_path / "samples" / f"{number}.png")
    else:
        np.savez(tmp_path / "samples.npz", images=samples if form == "bytes" else samples / 255)
    flat = PIXELS.reshape(7, -1) / 255
    differences = flat[:, None] - samples.reshape(2, -1) / 255
    expected = -np.sqrt((differences**2).sum(axis=2)).min(axis=1)
    scores = score_samples(tmp_path, pictures, np.arange(7))
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert scores[5] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": PIXELS[:, :3]}, r"has images \(7, 3, 5, 3\); write \(n, 4, 5, 3\)"),
        ({"images": PIXELS[:0]}, "has no images; write at least one sample"),
        ({"images": np.where(PIXELS > 250, np.nan, 0.5)}, r"image \d of 7, counted from 0, has values outside .* NaN"),
        ({"images": PIXELS.astype(int)}, r"has images of type int64; write uint8, or numbers in \[0, 1\]"),
        ({"samples": PIXELS}, r"has samples, but no images; save it with numpy\.savez\(path, images=\.\.\.\)"),
        ({"images": np.array([None])}, "cannot be read: Object arrays"),
    ],
)
def test_invalid_arrays_are_refused(
    pictures: Images, arrays: Mapping[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "samples.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=message):
        score_samples(tmp_path, pictures, np.arange(7))


def test_invalid_image_files_are_refused(pictures: Images, tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    with pytest.raises(DatasetError, match="has no images; write at least one sample"):
        score_samples(tmp_path, pictures, np.arange(7))
    Image.fromarray(PIXELS[0, :3]).save(folder / "0.png")
    with pytest.raises(DatasetError, match=r"0\.png is 3 x 5, and the records are 4 x 5; write samples of this size"):
        score_samples(tmp_path, pictures, np.arange(7))
    (folder / "log.txt").touch()
    with pytest.raises(DatasetError, match=r"log\.txt is not an image file; write only images"):
        score_samples(tmp_path, pictures, np.arange(7))


EMBEDDINGS = """
import numpy as np

def colour(images):
    assert images.shape[1:] == (3, 4, 5) and images.max() <= 1
    return images.mean(axis=(2, 3))

def nothing(images):
    return np.full((len(images), 2), np.nan)

def one(images):
    return images[:1, 0, 0]

def broken(images):
    raise RuntimeError("no\\nweights")
"""


def test_embedding_maps_records_and_samples(pictures: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_embeddings.py").write_text(EMBEDDINGS)
    monkeypatch.syspath_prepend(tmp_path)
    np.savez(tmp_path / "samples.npz", images=PIXELS[[3], ::-1])
    embedding = Embedding("own_embeddings:colour").pin({})
    assert len(embedding.digest) == 64
    scores = score_samples(tmp_path, pictures, np.arange(7), embedding)
    colours = PIXELS.mean(axis=(1, 2)) / 255
    np.testing.assert_allclose(scores, -np.linalg.norm(colours - colours[3], axis=1), atol=1e-6)
    for function, message in [
        ("nothing", "embedding own_embeddings:nothing returns 7 of 7 vectors with NaN or infinity"),
        ("one", r"embedding own_embeddings:one returns float32 \(1, 5\) for 7 rows; return numbers \(7, d\)"),
        ("broken", "embedding own_embeddings:broken failed: RuntimeError: no weights"),
    ]:
        with pytest.raises(ValueError, match=message):
            score_samples(tmp_path, pictures, np.arange(7), Embedding(f"own_embeddings:{function}"))
    with pytest.raises(ValueError, match="embedding is 'colour'"):
        Embedding("colour").pin({})
