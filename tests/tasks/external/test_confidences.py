"""Tables of confidences from model owners."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tasks.external import confidences
from tasks.external.confidences import Confidences, round_confidences
from tasks.external.model_file import Gives
from tasks.worker.files import File

IDS = ["query/000000.png", "query/000001.png", "query/000002.png"]
P = np.array([[0.5, 0.2, 0.3], [0.125, 0.125, 0.75], [0.25, 0.5, 0.25]])
LABELS = np.array([1, 2, 0])
TRUE = [0.2, 0.75, 0.25]  # of P


def csv(folder: Path, header: str, *lines: str) -> File:
    (folder / "outputs.csv").write_text("\n".join([header, *lines, ""]))
    return File(str(folder / "outputs.csv"))


def columns(folder: Path, header: str, *values: Sequence[object] | NDArray[np.float64]) -> File:
    lines = (",".join([name, *(f"{value}" for value in row)]) for name, *row in zip(IDS, *values, strict=True))
    return csv(folder, f"image,{header}", *lines)


def parquet(folder: Path, **columns: object) -> File:
    pq.write_table(pa.table({"image": IDS, **columns}), folder / "outputs.parquet")
    return File(str(folder / "outputs.parquet"))


def column_confidences(folder: Path, texts: Sequence[str], name: str = "confidence") -> Confidences:
    ids = [f"{row}.png" for row in range(len(texts))]
    file = csv(folder, f"image,{name}", *(f"{id},{text}" for id, text in zip(ids, texts, strict=True)))
    return confidences.read(file, ids, np.zeros(len(ids), np.int64))


@pytest.mark.parametrize(
    ("header", "values", "resolution"),
    [
        ("p0,p1,p2", P.T, 1e-3),
        ("p2,p0,p1", P.T[[2, 0, 1]], 1e-3),
        ("logp0,logp1,logp2", np.log(P).T, 0.0),
        ("logit0,logit1,logit2", np.log(P).T - 5, 0.0),
        ("confidence", [TRUE], 1e-2),
        ("log_confidence", [np.log(TRUE)], 0.0),
        ("label,confidence", [LABELS, TRUE], 1e-2),
        ("label,p0,p1,p2", [LABELS, *P.T], 1e-3),
        ("set,row,log_confidence,label", [["query"] * 3, range(3), np.log(TRUE), LABELS], 0.0),
    ],
)
def test_confidence_of_true_class_in_every_form(
    tmp_path: Path, header: str, values: NDArray[np.float64], resolution: float
) -> None:
    file = columns(tmp_path, header, *values)
    read_confidences = confidences.read(file, [IDS[2], IDS[0], IDS[1]], LABELS[[2, 0, 1]])
    assert resolution == read_confidences.resolution
    expected = np.array(TRUE)[[2, 0, 1]]
    np.testing.assert_allclose(read_confidences.values, expected, rtol=1e-7)
    if resolution:
        np.testing.assert_array_equal(read_confidences.values, expected)


@pytest.mark.parametrize(
    ("names", "gives", "values"),
    [
        (("cat", "dog", "emu"), "probabilities", P.T),
        (("cat", "dog", "emu"), "logits", 3 + np.log(P).T),
        (("sure",), "probabilities", [TRUE]),
        (("sure",), "log-probabilities", [np.log(TRUE)]),
    ],
)
def test_columns_may_have_other_names(
    tmp_path: Path, names: tuple[str, ...], gives: Gives, values: NDArray[np.float64]
) -> None:
    file = columns(tmp_path, ",".join(names), *values)
    read_confidences = confidences.read(file, IDS, LABELS, names, gives)
    np.testing.assert_allclose(read_confidences.values, TRUE, rtol=1e-7)


def test_parquet_has_columns_or_lists(tmp_path: Path) -> None:
    exact = np.array([1 / 3, 1 / 7, 6 / 7])
    single = exact.astype(np.float32).astype(np.float64)
    for table in (
        {"confidence": exact},
        {"confidence": exact, "label": LABELS},
        {"p0": 1 - exact, "p1": exact},
        {"logits": [[0.0, np.log(p / (1 - p))] for p in exact]},
        {"probabilities": [[1 - p, p] for p in exact]},
        {"probabilities": [[p] for p in exact]},  # the second of two
        {"log_probabilities": np.log([[1 - p, p] for p in exact]).tolist()},
    ):
        labels = LABELS if "label" in table else np.ones(3, np.int64)
        read_confidences = confidences.read(parquet(tmp_path, **table), IDS, labels)
        np.testing.assert_array_equal(single, read_confidences.values)
        assert read_confidences.resolution == 0
    assert confidences.read(parquet(tmp_path, confidence=TRUE), IDS, LABELS).resolution == 1e-2  # rounded before


def test_probabilities_are_neither_normalised_nor_raised(tmp_path: Path) -> None:
    file = columns(tmp_path, "p0,p1,p2", ["0.333", "1.000", "0.001"], ["0.333", "0.000", "0.999"], ["0.333", "0", "0"])
    read_confidences = confidences.read(file, IDS, np.array([0, 1, 1]))
    np.testing.assert_array_equal([0.333, 0.0, 0.999], read_confidences.values)
    assert read_confidences.resolution == 1e-3


@pytest.mark.parametrize(
    ("texts", "resolution"),
    [
        (["0.50", "0.25", "1"], 1e-2),
        (["0.9123", "1", "1.234e-05"], 1e-4),  # four digits each
        (["0.912345", "1.0", "1e-06"], 1e-6),  # rounded to six decimals
        (["0.12345678", "0.00000000", "1.00000000"], 1e-8),  # exactly eight decimals
        (["0.12345678", "1.2345678e-12", "1"], 0.0),  # a float32
        (["0.30000000000000004", "0.5", "0.1"], 0.0),  # a float64
        (["1.0", "0.012", "0.0"], 1e-3),  # nothing near 1
    ],
)
def test_resolution_is_last_decimal_near_1(tmp_path: Path, texts: list[str], resolution: float) -> None:
    read_confidences = column_confidences(tmp_path, texts)
    assert resolution == read_confidences.resolution
    np.testing.assert_array_equal(round_confidences(np.array(texts, np.float64), resolution), read_confidences.values)


def test_precision_of_logarithms_carries_over(tmp_path: Path) -> None:
    rounded = column_confidences(tmp_path, ["-0.000", "-0.001", "-2.303", "-inf"], "log_confidence")
    assert rounded.resolution == 1e-3
    np.testing.assert_array_equal([1.0, 0.999, 0.1, 0.0], rounded.values)
    full_precision = column_confidences(tmp_path, ["-0.693147181", "-1.86264515e-09"], "log_confidence")
    assert full_precision.resolution == 0
    np.testing.assert_array_equal([np.float64(np.float32(0.5)), 1.0], full_precision.values)


@pytest.mark.parametrize("places", [1, 2, 4, 7, 8, 9, 12])
def test_rounding_equals_printing_and_parsing(places: int) -> None:
    generator = np.random.default_rng(places)
    values = np.concatenate([generator.random(2000), generator.random(500) ** 20, np.arange(65) / 64])
    single = values.astype(np.float32).astype(np.float64)
    expected = np.array([float(f"{value:.{places}f}") for value in single])
    rounded = round_confidences(values, 10.0**-places)
    np.testing.assert_array_equal(expected, rounded)
    np.testing.assert_array_equal(rounded, round_confidences(rounded, 10.0**-places))
    np.testing.assert_array_equal(single, round_confidences(values, 0.0))


@pytest.mark.parametrize(
    ("header", "values", "message"),
    [
        ("confidence", [["1.5", "0.5", "-0.1"]], r"confidence of image .*000000.png' is 1.5; .*\[0, 1\]; 2 of 3 are"),
        ("confidence", [["0.5", "nan", "0.5"]], "confidence of image 'query/000001.png' is nan; expected a value in"),
        ("confidence", [["0.5", "x", "0.5"]], "x of image 'query/000001.png' in column confidence is not a number"),
        ("confidence", [["0.5", "", "0.5"]], "image 'query/000001.png' has no value in column confidence"),
        ("confidence", [["1", "0", "1"]], "has no decimals in its confidences"),
        ("confidence", [["1.0", "0.0", "1.0"]], "has no decimals in its confidences"),
        ("p0,p1,p2", [["1.0", "0.0", "0.0"], ["0.0", "1.0", "0.0"], ["0.0"] * 2 + ["1.0"]], "has no decimals in its"),
        (
            "log_confidence",
            [["0.1", "-1.5", "-1.0"]],
            r"is 0.1; expected a value of at most 0 \(a natural logarithm\); 1 of 3",
        ),
        ("log_confidence", [["-1", "-2", "-3"]], "has no decimals in its confidences"),
        ("label,confidence", [[1, 1, 1], TRUE], r"label of image .*000001.png' is 1, and ours is 2; 2 of 3 differ"),
        ("label,confidence", [["cat", "1", "1"], TRUE], "cat of image .* in column label is not a number"),
        ("label,p0,p1,p2", [[1, 2, 2], *P.T], r"label of image 'query/000002.png' is 2, and ours is 0; 1 of 3"),
        (
            "p0,p1",
            [[0.5, 0.25, 0.75], [0.5, 0.75, 0.25]],
            "has 2 classes, but the labels reach up to 2; expected at least 3",
        ),
        ("p0,p1,p2", [[0.5] * 3] * 3, "do not sum to 1"),
        ("confidence,score", [TRUE, TRUE], r"has the column 'score' \(1 such columns\) in addition to confidence"),
        ("confidence,p0,p1", [TRUE, TRUE, TRUE], r"has the column 'p0' \(2 such columns\) in addition to confidence"),
        ("confidence,log_confidence", [TRUE, TRUE], "has the column 'log_confidence' .* in addition to confidence"),
        ("score", [TRUE], "has no confidences; expected image and p0, .* found score"),
        ("label", [LABELS], "has no confidences"),
        ("p0,p1,p2,score", [*P.T, TRUE], "has the unknown column 'score'"),
        ("confidence,confidence", [TRUE, TRUE], "has two columns 'confidence'"),
    ],
)
def test_invalid_tables_are_refused(
    tmp_path: Path, header: str, values: Sequence[Sequence[object]], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^outputs .*outputs.csv.*{message}") as refused:
        confidences.read(columns(tmp_path, header, *values), IDS, LABELS)
    assert "\n" not in str(refused.value)


def test_wrong_class_order_is_refused_unless_named(tmp_path: Path) -> None:
    owners_probabilities = (0.9 * np.eye(3) + 0.1 / 3)[
        [2, 0, 1]
    ]  # for images of our classes 0, 1 and 2, in the owner's order
    labels = np.arange(30) % 3
    ids = [f"{row}.png" for row in range(30)]
    lines = []
    for id, label in zip(ids, labels, strict=True):
        lines.append(",".join([id, *map(str, owners_probabilities[label])]))
    file = csv(tmp_path, "image,p0,p1,p2", *lines)
    with pytest.raises(
        ValueError, match=r"is right for 0% of .*, but for 100% with its classes in another order: 2, 0, 1 for our"
    ):
        confidences.read(file, ids, labels)
    read_confidences = confidences.read(file, ids, labels, ["p2", "p0", "p1"])
    np.testing.assert_allclose(read_confidences.values, 0.9 + 0.1 / 3, rtol=1e-7)
    no_order = (
        owners_probabilities[labels].argmax(axis=1) + 1 + np.arange(30) // 3 % 2
    ) % 3  # always wrong, in every order often
    np.testing.assert_allclose(confidences.read(file, ids, no_order).values, 0.1 / 3, rtol=1e-7)


def test_every_image_occurs_once(tmp_path: Path) -> None:
    file = columns(tmp_path, "confidence", TRUE)
    with pytest.raises(ValueError, match=r"has no row for 'query/000003.png'; 1 of 2 are missing"):
        confidences.read(file, [IDS[0], "query/000003.png"], LABELS[:2])
    with pytest.raises(ValueError, match="has more than one row for 'a'"):
        confidences.read(csv(tmp_path, "image,confidence", "a,0.5", "a,0.25"), ["a"], LABELS[:1])


def test_column_names_must_exist_and_hold_confidences(tmp_path: Path) -> None:
    file = columns(tmp_path, "sure", TRUE)
    with pytest.raises(ValueError, match="has no column 'shure'; it has sure"):
        confidences.read(file, IDS, LABELS, ["shure"])
    with pytest.raises(ValueError, match="column 'sure' contains logits; a single logit is not a confidence"):
        confidences.read(file, IDS, LABELS, ["sure"], "logits")
