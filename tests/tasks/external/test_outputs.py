"""Tables of outputs from model owners."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tasks.external.model_file import Gives
from tasks.external.outputs import FLOOR, read_answers, read_outputs
from tasks.worker.files import File, pin

IDS = ["a/000000.png", "a/000001.png", "b/000000.png"]
P = np.array([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75], [0.25, 0.5, 0.25]])


def csv(folder: Path, text: str) -> File:
    (folder / "outputs.csv").write_text(text)
    return pin(File(str(folder / "outputs.csv")))


def lines(header: str, values: np.ndarray, ids: list[str] | None = None) -> str:
    rows = []
    for name, row in zip(ids or IDS, values, strict=True):
        rows.append(",".join([name, *map(str, row.tolist())]))
    return "\n".join([header, *rows, ""])


@pytest.mark.parametrize(
    ("header", "values"),
    [("image,p0,p1,p2", P), ("image,logit0,logit1,logit2", np.log(P) - 5), ("image,logp0,logp1,logp2", np.log(P))],
)
def test_csv_is_read_in_any_order(tmp_path: Path, header: str, values: np.ndarray) -> None:
    table = read_outputs(csv(tmp_path, lines(header, values)))
    answers = table.select([IDS[2], IDS[0], IDS[2]])
    assert table.classes == 3
    assert answers.floored == 0
    np.testing.assert_allclose(answers.log_p, np.log(P[[2, 0, 2]]), rtol=0, atol=1e-12)


def test_columns_may_be_shuffled_among_metadata(tmp_path: Path) -> None:
    rows = []
    for n, (name, p) in enumerate(zip(IDS, P, strict=True)):
        rows.append(f"{name},a,{n},cat,{p[2]},{p[0]},{p[1]}")
    table = read_outputs(csv(tmp_path, "\n".join(["image,set,row,label,p2,p0,p1", *rows])))
    np.testing.assert_allclose(table.select(IDS).log_p, np.log(P), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("names", "gives"), [(("cat", "dog", "emu"), "probabilities"), (("emu", "cat", "dog"), "log-probabilities")]
)
def test_classes_may_have_names(tmp_path: Path, names: tuple[str, ...], gives: Gives) -> None:
    order = [names.index(name) for name in ("cat", "dog", "emu")]
    values = P if gives == "probabilities" else np.log(P)
    table = read_outputs(csv(tmp_path, lines("image,cat,dog,emu", values[:, order])), names, gives)
    np.testing.assert_allclose(table.select(IDS).log_p, np.log(P), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 3)])
@pytest.mark.parametrize("name", ["probabilities", "log_probabilities", "logits"])
def test_parquet_has_columns_or_lists(tmp_path: Path, kind: pa.DataType, name: str) -> None:
    values = P if name == "probabilities" else np.log(P)
    lists = pa.table({"image": IDS, name: pa.array(values.tolist(), kind)})
    columns = pa.table({"image": IDS, **{f"p{k}": P[:, k] for k in range(3)}})
    for table in (lists, columns):
        pq.write_table(table, tmp_path / "outputs.parquet")
        outputs = read_outputs(File(str(tmp_path / "outputs.parquet")))
        np.testing.assert_allclose(outputs.select(IDS).log_p, np.log(P), rtol=0, atol=1e-12)


def test_zero_becomes_half_of_last_decimal(tmp_path: Path) -> None:
    table = read_outputs(csv(tmp_path, "image,p0,p1\na,1.0,0.0\nb,0.99, 0.010\n"))
    answers = table.select(["a"])
    assert answers.floored == 1
    assert answers.floor == 0.0005
    np.testing.assert_allclose(np.exp(answers.log_p), [[1 / 1.0005, 0.0005 / 1.0005]])
    exact = read_outputs(csv(tmp_path, "image,p0,p1\na,1.0,0.0\nb,0.99999,1e-5\n")).select(["a"])
    assert exact.floored == 1
    assert exact.floor == FLOOR
    assert exact.log_p[0, 1] == pytest.approx(math.log(FLOOR))
    pq.write_table(pa.table({"image": ["a"], "p0": [1.0], "p1": [0.0]}), tmp_path / "outputs.parquet")
    assert read_outputs(File(str(tmp_path / "outputs.parquet"))).select(["a"]).floor == FLOOR


def test_rounding_errors_in_sums_are_accepted(tmp_path: Path) -> None:
    header = ",".join(["image", *(f"p{k}" for k in range(300))])
    table = read_outputs(csv(tmp_path, "\n".join([header, ",".join(["a", *["0.003"] * 300])])))
    np.testing.assert_allclose(table.select(["a"]).log_p, -math.log(300))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "image,p0,p1\na,0.5,0.5\nb,0.5,0.5\na,1,0\na,1,0\n",
            "more than one row for 'a'; 2 rows repeat an id",
        ),
        (
            "image,p0,p1\na,0.5,0.5\nb,0.5,0.4\nc,0.4,0.4\n",
            r"numbers of image 'b' do not sum to 1: .*sum 0.9\); this applies to 2 of 3",
        ),
        ("image,p0,p1\na,0.5,x\nb,y,0.5\n", "y of image 'b' in column p0 is not a number; 1 are not"),
        ("image,p0,p1\na,0.5,nan\nb,0.5,0.5\n", "numbers of image 'a' are not all finite"),
        ("image,p0,p1\na,0.5,\nb,0.5,0.5\n", "image 'a' has no value in column p1; 1 have none"),
        ("image,p0,p1,cat,dog\na,1,0,0,0\n", r"unknown column 'cat' \(2 in total\)"),
        ("image,p0,p2\na,1,0\n", "from 0 without gaps"),
        ("image,p0,logit1\na,1,0\n", "expected one kind"),
        ("image,p0\na,1\n", "for at least two classes"),
        ("image\na\n", "has the columns none; expected one kind"),
        ("name,p0,p1\na,1,0\n", "has no column image; found name, p0, p1"),
        ("image,p0,p0\na,1,0\n", "has two columns 'p0'"),
        ("image,p0,p1\n,1,0\n", "has no image in row 0; 1 rows have none"),
        ("image,p0,p1\n", "has no rows"),
        ("image,p0,p1\na,1\n", "has a row that has 2 values; it must have 3"),
        ("", "is empty; the first line must name the columns"),
        ("image,p0,p1\na,1,0\nb,0,1\n", "has no decimals in its probabilities"),
    ],
)
def test_invalid_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^outputs .*outputs.csv.*{message}") as refused:
        read_outputs(csv(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_lists_must_have_one_length(tmp_path: Path) -> None:
    for lists, message in (
        ([[0.5, 0.5], [1.0], None], "the list of image 'b' differs in length from the first; 2 do"),
        ([[0.5, 0.5], [0.5, None], [0.5, 0.5]], "the list of image 'b'"),
        (["x", "y", "z"], "string in its list column"),
    ):
        pq.write_table(pa.table({"image": ["a", "b", "c"], "probabilities": lists}), tmp_path / "outputs.parquet")
        with pytest.raises(ValueError, match=message):
            read_outputs(File(str(tmp_path / "outputs.parquet")))


def test_missing_image_is_named(tmp_path: Path) -> None:
    table = read_outputs(csv(tmp_path, lines("image,p0,p1,p2", P)))
    with pytest.raises(ValueError, match="has no row for 'c'; 2 of 3 are missing"):
        table.select([IDS[0], "c", "d"])
    with pytest.raises(ValueError, match="no column 'bird'"):
        read_outputs(File(table.name.removeprefix("outputs ")), ["bird", "p0"])
    (tmp_path / "outputs.txt").write_text("")
    with pytest.raises(ValueError, match=r"expected a \.csv or a \.parquet file"):
        read_outputs(File(str(tmp_path / "outputs.txt")))


ANSWERS = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])


@pytest.mark.parametrize(
    ("outputs", "gives"),
    [(np.log(ANSWERS) + 3, "logits"), (ANSWERS, "probabilities"), (np.log(ANSWERS), "log-probabilities")],
)
def test_equivalent_output_kinds_agree(outputs: NDArray[np.float64], gives: Gives) -> None:
    answers = read_answers(outputs, gives, 2, where="model")
    assert answers.floored == 0
    np.testing.assert_allclose(answers.log_p, np.log(ANSWERS), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("output", "gives"), [(math.log(3), "logits"), (0.75, "probabilities"), (math.log(0.75), "log-probabilities")]
)
@pytest.mark.parametrize("shape", [(2, 1), (2,)])
def test_one_column_is_the_second_of_two_classes(output: float, gives: Gives, shape: tuple[int, ...]) -> None:
    answers = read_answers(np.full(shape, output), gives, 2, where="model", classes=2)
    np.testing.assert_allclose(answers.log_p, np.log([[0.25, 0.75]] * 2), rtol=0, atol=1e-12)


def test_zeros_become_the_floor_and_are_counted() -> None:
    answers = read_answers(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), "probabilities", 2, where="model")
    assert answers.floored == 3
    assert answers.floor == FLOOR
    assert answers.log_p[0, 1] == pytest.approx(math.log(2**-149))
    high = read_answers(np.array([[1.0, 0.0]]), "probabilities", 1, where="model", floor=0.25)
    np.testing.assert_allclose(np.exp(high.log_p), [[0.8, 0.2]])
    logs = read_answers(np.array([[0.0, -np.inf]]), "log-probabilities", 1, where="model")
    assert logs.floored == 1
    assert logs.log_p[0, 1] == pytest.approx(math.log(FLOOR))


def test_sums_within_tolerance_are_normalised() -> None:
    answers = read_answers(ANSWERS * 1.0005, "probabilities", 2, where="model")
    np.testing.assert_allclose(np.exp(answers.log_p).sum(1), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(answers.log_p, np.log(ANSWERS), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("outputs", "gives", "message"),
    [
        (np.zeros((3, 2)), "logits", r"model returns \(3, 2\) for 2 images; expected \(2, classes\)"),
        (np.zeros((2, 2, 1)), "logits", r"model returns \(2, 2, 1\)"),
        (np.zeros((2, 3)), "logits", "model returns 3 columns, but there are 4 classes"),
        (np.array([[0, 1, 2, 3], [0, np.nan, 0, 0]]), "logits", "the numbers of row 1 are not all finite: 0, nan"),
        (
            np.array([[1, 0, 0, 0], [0.4, 0.4, 0, 0]]),
            "probabilities",
            r"row 1 do not sum to 1: .* \(sum 0.8\); this applies to 1 of 2",
        ),
        (
            np.array([[2, -1, 0, 0], [1, 0, 0, 0]]),
            "probabilities",
            r"row 0 are not all probabilities, in \[0, 1\]: 2, -1",
        ),
        (
            np.full((2, 4), -1.0),
            "log-probabilities",
            r"exponentials do not sum to 1: .*\(sum 1.47152\); this applies to 2 of 2",
        ),
        (np.full((2, 4), -np.inf), "log-probabilities", r"\(sum 0\)"),
        (np.array([[0.25] * 4, [0.1, 0.2, 0.3, 0.4]]), "logits", "these are probabilities, not logits"),
    ],
)
def test_invalid_outputs_are_refused(outputs: NDArray[np.float64], gives: Gives, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        read_answers(outputs, gives, 2, where="model", classes=4)
    assert "\n" not in str(refused.value)


def test_log_probability_above_0_is_refused() -> None:
    with pytest.raises(ValueError, match=r"row 1 are not logarithms of probabilities \(at most 0\): 2"):
        read_answers(np.array([-1.0, 2.0]), "log-probabilities", 2, where="model")


@pytest.mark.parametrize(("places", "decimals_text"), [(1, "1 decimal,"), (2, "2 decimals,"), (3, "3 decimals,")])
def test_table_with_few_decimals_is_refused(places: int, decimals_text: str) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(10), 40)
    limit = 5 * 10.0**-places
    with pytest.raises(
        ValueError, match=f"printed with {decimals_text} which changes a sum by up to {limit:.2g}: print eight, or"
    ):
        read_answers(np.round(p, places), "probabilities", 40, where="table.csv")
    with pytest.raises(ValueError, match="do not sum to 1") as refused:
        read_answers(np.round(p, places) * 0.5, "probabilities", 40, where="table.csv")
    assert "printed" not in str(refused.value)  # rounding does not explain the sum


def test_eight_decimals_are_no_rounding_to_speak_of() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(10), 40)
    assert len(read_answers(np.round(p, 8), "probabilities", 40, where="table.csv").log_p) == 40
