"""What a program returns: numbers per record, or a model that is evaluated here. Both become one score per record.

The numbers are in `scores.parquet`, `scores.csv` or `scores.npy` in {out}, or are the result of the function: one per
requested record in the requested order, or one per row of the data set. A table has a column named like
`training.returns`, or a single column besides `row` (the row number; the records may then be in any order) and `label`.
Class probabilities are (records, classes) in an array, or the columns p0, p1, ...

Higher scores mean a better fit. A loss of at least 0 in nats becomes the log-odds log(p / (1 - p)) with p = exp(-loss);
for losses other than cross-entropy, this is an increasing function of minus the loss, which every rank test accepts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.images import PictureSet
from tasks.datasets.picture_rows import Selected, gather, is_in_memory
from tasks.programs.function import to_numbers
from tasks.programs.process import ProgramFailed
from tasks.worker.delimited_text import DelimitedTextError, read_delimited
from tasks.worker.size_limits import TooLarge, read_parquet

if TYPE_CHECKING:
    from tasks.datasets.images import Pixels
    from tasks.external.audit_inputs import Records, RecordSet
    from tasks.programs.config import Returns
    from tasks.programs.embedding import Embedding

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]

SUFFIXES = (".parquet", ".csv", ".npy")
ROW = "row"
LABEL = "label"
PROBABILITY = re.compile(r"p\d+")
SMALLEST_P = 1e-12  # probabilities are kept this far from 0 and 1, so that log-odds are finite
SMALLEST_LOSS = 1e-12
BATCH = 256  # records of one evaluation of a model


@dataclass(frozen=True, eq=False)
class Requested:
    """The records that a program has to score.

    numbers: Their numbers as the program sees them, in the order of {ask}. total: Number of records that the program
    numbers. images: The data set, or None if only numbers are known. is_member: Whether each record is trained on.
    places: Their positions in the training split of the data set; by default, their numbers.
    """

    numbers: Rows
    total: int
    images: PictureSet | None
    is_member: Mask
    places: Rows | None = None

    @property
    def rows(self) -> Rows:
        """The positions of the records in the training split of the data set."""
        return self.numbers if self.places is None else self.places

    def labels(self) -> Rows | None:
        """Return the labels of the records, or None if they are unknown."""
        return None if self.images is None else self.images.train.labels[self.rows]


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of the requested records, (records,) each. `correct` is None if it is unknown."""

    score: Floats
    correct: Mask | None


def score_result(
    result: Any, out: Path, returns: Returns, requested: Requested, embedding: Embedding | None = None
) -> Scored:
    """Score the records by what the program returned: the result of a function, or the files in `out`.

    Samples are compared in the space of the embedding, if any. Raises ProgramFailed, in one line with a remedy, if this
    is impossible.
    """
    if returns == "samples":
        return _score_samples(out, requested, embedding)
    if returns == "log_likelihood" and _is_model(result):
        raise ProgramFailed(
            "the training function returned a model, and training.returns is log_likelihood: return one "
            "log-likelihood per requested record"
        )
    if returns == "model" or _is_model(result):
        return _score_by_model(_find_model(out) if result is None else result, requested)
    numbers, labels, where = _read_numbers(result, out, returns, requested)
    return score_numbers(numbers, returns, requested.labels() if labels is None else labels, where)


def class_outputs(result: Any, out: Path, returns: Returns, asked: Pixels, known: RecordSet, classes: int) -> Floats:
    """Return the log-probabilities (images, classes) of the asked images, which have no labels.

    They are the class probabilities that the program returned, or the outputs of its model. The labels of the known
    records show in which form the model accepts images.

    Raises ProgramFailed, in one line with a remedy, if this is impossible.
    """
    from tasks.external.audited_model import ask_images
    from tasks.external.outputs import read_answers

    if returns == "model" or _is_model(result):
        model = _find_model(out) if result is None else result
        try:
            return ask_images(str(model) if isinstance(model, Path) else model, known, asked, classes, BATCH)
        except ValueError as error:
            raise ProgramFailed(f"the model that the program returned: {error}") from error
    rows = np.arange(len(asked))
    requested = Requested(rows, len(asked), None, np.zeros(len(asked), bool))
    numbers, _, where = _read_numbers(result, out, returns, requested)
    try:
        return read_answers(numbers, "probabilities", len(asked), where=where, classes=max(2, classes)).log_p
    except ValueError as error:
        raise ProgramFailed(str(error)) from None


def score_numbers(numbers: Floats, returns: str, labels: Rows | None, where: str) -> Scored:
    """Convert the numbers of the records, (records,) or (records, classes), to scores.

    Raises ProgramFailed for numbers that are not finite or impossible.
    """
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    is_invalid: Any = ~np.isfinite(numbers)
    _refuse(is_invalid, numbers, where, "a finite number; NaN means that the training diverged or skipped a record")
    if returns == "probabilities":
        return _score_probabilities(numbers, labels, where)
    if numbers.ndim != 1:
        raise ProgramFailed(
            f"{where} has {numbers.shape[1]} numbers per record; {returns} is one number per record. For class "
            "probabilities set training.returns=probabilities"
        )
    if returns == "loss":
        _refuse(numbers < 0, numbers, where, "at least 0; for logarithms set training.returns=log_likelihood")
        losses = np.maximum(numbers, SMALLEST_LOSS)
        return Scored(-losses - np.log(-np.expm1(-losses)), None)  # -log(exp(loss) - 1) without overflow
    return Scored(numbers, None)


def _score_probabilities(numbers: Floats, labels: Rows | None, where: str) -> Scored:
    """Return the log-odds of the label. A vector contains the probabilities of the labels."""
    _refuse((numbers < 0) | (numbers > 1), numbers, where, "a probability from 0 to 1")
    correct = None
    if numbers.ndim == 2:
        if labels is None:
            raise ProgramFailed(
                f"{where} has the probabilities of {numbers.shape[1]} classes, and Engram holds no labels of these "
                "records: return only the probability of each record's label, or add a column label"
            )
        if labels.max() >= numbers.shape[1]:
            raise ProgramFailed(
                f"{where} has the probabilities of {numbers.shape[1]} classes, but the labels reach up to "
                f"{labels.max()}"
            )
        correct = numbers.argmax(axis=1) == labels
        numbers = numbers[np.arange(len(labels)), labels]
    return Scored(_log_odds(numbers), correct)


def _log_odds(probabilities: Floats) -> Floats:
    """Return log(p / (1 - p)), finite also for probabilities of 0 and 1."""
    p = np.clip(probabilities, SMALLEST_P, 1 - SMALLEST_P)
    log_odds: Floats = np.log(p) - np.log1p(-p)
    return log_odds


def _read_numbers(result: Any, out: Path, returns: Returns, requested: Requested) -> tuple[Floats, Rows | None, str]:
    """Return the numbers of the requested records, their labels if the file has any, and what errors call the source.

    They are the result of a function or, without one, in a file in `out`.
    """
    labels = None
    if result is None:
        file = find_file(out, "scores", SUFFIXES)
        numbers, labels = _read_file(file, returns, requested)
        where = file.name
    else:
        numbers = _as_array(result)
        where = "the result of the training function"
    return _select_requested(numbers, where, requested), labels, where


def _refuse(is_invalid: NDArray[np.bool_], numbers: Floats, where: str, expected: str) -> None:
    """Raise ProgramFailed if a number of any record is invalid; both arrays have the same shape."""
    is_bad_record: Mask = np.asarray(is_invalid.reshape(len(numbers), -1).any(axis=1))
    if is_bad_record.any():
        first = int(is_bad_record.argmax())
        value = np.array2string(numbers[first], precision=6) if numbers.ndim > 1 else f"{numbers[first]:.6g}"
        raise ProgramFailed(
            f"{where}: number {first} is {value}; expected {expected}. {int(is_bad_record.sum())} of "
            f"{len(numbers)} are not"
        )


def _as_array(result: Any) -> Floats:
    try:
        return to_numbers(result)
    except (TypeError, ValueError):
        raise ProgramFailed(
            f"the training function returned a {type(result).__name__}; expected one number per record, a torch module "
            "or another model, or None with the results in job.out"
        ) from None


def find_file(out: Path, stem: str, suffixes: tuple[str, ...]) -> Path:
    """Return the file `stem` with one of these suffixes. Raises ProgramFailed if there is none, or more than one."""
    files = [out / f"{stem}{suffix}" for suffix in suffixes if (out / f"{stem}{suffix}").is_file()]
    if len(files) == 1:
        return files[0]
    names = " or ".join(f"{stem}{suffix}" for suffix in suffixes)
    if files:
        raise ProgramFailed(f"the program wrote {' and '.join(path.name for path in files)} into {{out}}; write one")
    listing = sorted(path.name for path in out.iterdir())[:5]
    raise ProgramFailed(
        f"the program wrote no {names} into {{out}} (the folder in ENGRAM_OUT); it wrote "
        f"{', '.join(listing) or 'nothing'}"
    )


def _read_file(file: Path, returns: str, requested: Requested) -> tuple[Floats, Rows | None]:
    """Return the numbers in a file, in the order of the requested rows if it has row numbers, and labels if any."""
    if file.suffix == ".npy":
        try:
            array = np.load(file, allow_pickle=False)
            return np.asarray(array, np.float64), None
        except (OSError, ValueError, EOFError) as error:
            raise ProgramFailed(f"{file.name} cannot be read: {' '.join(str(error).split())}") from None
    table = _read_table(file)
    names = [name for name in table.column_names if name not in (ROW, LABEL)]
    if returns == "probabilities" and names and all(PROBABILITY.fullmatch(name) for name in names):
        columns = sorted(names, key=lambda name: int(name[1:]))
    elif returns in names:
        columns = [returns]
    elif len(names) == 1:
        columns = names
    else:
        raise ProgramFailed(
            f"{file.name} has the columns {', '.join(table.column_names)}; name the one with the numbers {returns}"
        )
    numbers = np.stack([_numbers(table, name, file) for name in columns], axis=1)
    numbers = numbers[:, 0] if len(columns) == 1 else numbers
    labels = None
    if LABEL in table.column_names:
        labels = _numbers(table, LABEL, file).astype(np.int64)
    if ROW in table.column_names:
        order = _order_of_rows(_numbers(table, ROW, file).astype(np.int64), file, requested)
        numbers = numbers[order]
        labels = None if labels is None else labels[order]
    return numbers, labels


def _read_table(file: Path) -> pa.Table:
    try:
        if file.suffix == ".csv":
            return read_delimited(file.read_bytes()).table()
        return read_parquet(file)
    except (OSError, TooLarge, DelimitedTextError, pa.ArrowException) as error:
        raise ProgramFailed(f"{file.name} cannot be read: {' '.join(str(error).split())}") from None


def _numbers(table: pa.Table, name: str, file: Path) -> Floats:
    try:
        column = table[name].cast(pa.float64()).to_numpy()
    except pa.ArrowException as error:
        raise ProgramFailed(f"{file.name}: column {name} is not numbers: {' '.join(str(error).split())}") from None
    return np.asarray(column, np.float64)


def _order_of_rows(rows: Rows, file: Path, requested: Requested) -> Rows:
    """Return the position in the file of each requested row. Raises ProgramFailed if one is missing or occurs twice."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    if (ordered[1:] == ordered[:-1]).any():
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        raise ProgramFailed(f"{file.name} has two lines for row {twice}")
    places = np.searchsorted(ordered, requested.numbers)
    is_missing = (places >= len(ordered)) | (ordered[np.minimum(places, len(ordered) - 1)] != requested.numbers)
    if is_missing.any():
        raise ProgramFailed(
            f"{file.name} has no line for row {requested.numbers[is_missing.argmax()]}; {int(is_missing.sum()):,} of "
            f"{len(requested.numbers):,} requested records are missing"
        )
    selected: Rows = order[places]
    return selected


def _select_requested(numbers: Floats, where: str, requested: Requested) -> Floats:
    """Return the numbers of the requested records. Raises ProgramFailed if there are more or fewer."""
    count = len(requested.numbers)
    if numbers.ndim in (1, 2) and len(numbers) == count:
        return numbers
    if numbers.ndim in (1, 2) and len(numbers) == requested.total:
        return numbers[requested.numbers]
    size = "x".join(map(str, numbers.shape)) or "one number"
    alternative = f", or all {requested.total:,} rows" if requested.total != count else ""
    raise ProgramFailed(
        f"{where} has the size {size}; expected one number for each of the {count:,} requested records "
        f"({{ask}}{alternative})"
    )


def _is_model(result: Any) -> bool:
    return callable(result) or hasattr(result, "predict_proba") or isinstance(result, Path)


def _find_model(out: Path) -> str:
    files = sorted(path for path in out.glob("model*") if path.stem == "model" or path.name == "model")
    if len(files) != 1:
        raise ProgramFailed(
            f"the program wrote {len(files)} files named model.* into {{out}}; expected one, such as model.pt"
        )
    return str(files[0])


def _score_by_model(model: Any, requested: Requested) -> Scored:
    """Evaluate a model on the requested records."""
    from tasks.external.audit_inputs import RecordSet
    from tasks.external.audited_model import ask_model

    images = requested.images
    if images is None:
        raise ProgramFailed(
            "the program returned a model, but Engram knows these records only by number: return one score per record, "
            "or give the data set as data=NAME"
        )
    rows = requested.rows
    labels = images.train.labels[rows]
    sides = [np.flatnonzero(requested.is_member), np.flatnonzero(~requested.is_member)]
    sets = []
    for side in sides:
        records: Records = Selected(images.train, rows[side])
        if is_in_memory(images.train):
            records = gather([records])
        if images.is_table:
            records = records[:].reshape(len(side), -1)
        sets.append(RecordSet(records, labels[side], images.names))
    members, non_members = sets
    try:
        scores, _ = ask_model(str(model) if isinstance(model, Path) else model, (members, non_members), BATCH)
    except ValueError as error:
        raise ProgramFailed(f"the model that the program returned: {error}") from error
    log_p = np.empty(len(rows))
    correct = np.empty(len(rows), bool)
    for side, scored in zip(sides, scores, strict=True):
        assert scored.correct is not None
        log_p[side] = scored.log_p
        correct[side] = scored.correct
    return Scored(_log_odds(np.exp(log_p)), correct)


def _score_samples(out: Path, requested: Requested, embedding: Embedding | None) -> Scored:
    """Score the requested records by their distance to the nearest sample."""
    from tasks.programs.samples import score_samples

    if requested.images is None:
        raise ProgramFailed(
            "training.returns is samples, but Engram knows these records only by number: give the data set as data=NAME"
        )
    return Scored(score_samples(out, requested.images, requested.rows, embedding), None)
