"""A table of a model's losses or outputs for the images of two data sets, as CSV or Parquet.

Column `image` names each image: the end of its path, such as `members/cat/1.png`; `train.parquet:7` for row 7 of a
Parquet file; or, for any data set, `members:7` and `others:7`, its position in the data set (training split first, then
test split). The other columns are one of:

- `loss`, the cross-entropy of the label in nats;
- `confidence` or `log_confidence`, the probability of the label or its natural logarithm;
- outputs for all classes (`tasks.external.outputs`).

Rows of other images are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.catalog import image_names
from tasks.datasets.dataset import Dataset
from tasks.external.audit_inputs import RecordSet
from tasks.external.audited_model import Scores, check_and_score
from tasks.external.confidences import ALONE
from tasks.external.outputs import FLOOR, outputs_of
from tasks.external.sent_table import Sent, read_sent
from tasks.worker.files import File

LOSS = "loss"
SETS = ("members", "others")
SHOWN = 3  # components of a path in a message
ROUNDED = 1e-6  # nats by which a loss may be below 0
ORDER = "order its columns by our class numbers"


def read_scores(file: File, data: tuple[Dataset, Dataset], sets: tuple[RecordSet, RecordSet]) -> tuple[Scores, Scores]:
    """Read the scores of both sets, whose positions refer to these data sets.

    Raises ValueError, in one line, if the file cannot be read, if an image is missing, ambiguous or has two rows, or if
    a number is invalid.
    """
    table = read_sent(file)
    rows = table.rows(_match_ids(table, data, sets))
    count = len(sets[0].labels)
    first, second = (_Rows(table, part) for part in (rows[:count], rows[count:]))
    if LOSS in table.columns:
        return first.of_losses(), second.of_losses()
    alone = next((column for column in ALONE if column in table.columns), None)
    if alone is not None:
        return first.of_confidences(alone), second.of_confidences(alone)
    outputs = outputs_of(table)
    most = max(int(records.labels.max()) for records in sets)
    if most >= outputs.classes:
        raise ValueError(
            f"{table.name} has {outputs.classes} classes, but the labels reach up to {most}; expected at least "
            f"{most + 1} classes"
        )
    answers = [outputs.select([table.ids[row] for row in part.rows]).log_p for part in (first, second)]
    return check_and_score(answers, sets, table.name, ORDER)


class _Rows:
    """Some rows of a table that has one number per row."""

    def __init__(self, table: Sent, rows: NDArray[np.int64]) -> None:
        self.table = table
        self.rows = rows

    def of_losses(self) -> Scores:
        losses = self._numbers(LOSS)
        self._refuse(losses < -ROUNDED, LOSS, losses, "at least 0")
        return Scores(-np.maximum(losses, 0.0), None)

    def of_confidences(self, column: str) -> Scores:
        numbers = self._numbers(column)
        if ALONE[column] == "probabilities":
            self._refuse((numbers < 0) | (numbers > 1), column, numbers, "in [0, 1]")
            return Scores(np.log(np.maximum(numbers, FLOOR)), None)
        self._refuse(numbers > ROUNDED, column, numbers, "at most 0 (a natural logarithm)")
        return Scores(np.minimum(numbers, 0.0), None)

    def _numbers(self, column: str) -> NDArray[np.float64]:
        numbers = self.table.numbers(column)[self.rows]
        self._refuse(~np.isfinite(numbers), column, numbers, "finite")
        return numbers

    def _refuse(self, is_invalid: NDArray[np.bool_], column: str, numbers: NDArray[np.float64], allowed: str) -> None:
        if not is_invalid.any():
            return
        first = int(is_invalid.argmax())
        raise ValueError(
            f"{self.table.name}: {column} of image {self.table.ids[self.rows[first]]!r} is {numbers[first]:.6g}; "
            f"expected a number {allowed}; {int(is_invalid.sum())} of {len(numbers)} are not"
        )


def _match_ids(table: Sent, data: tuple[Dataset, Dataset], sets: tuple[RecordSet, RecordSet]) -> list[str]:
    """Return the id of each record of both sets in the table."""
    names = []
    for role, dataset, records in zip(SETS, data, sets, strict=True):
        all_names = image_names(dataset)
        for position in records.rows().tolist():
            names.append((f"{role}:{position}", all_names[position] if all_names else ""))
    records_by_name: dict[str, list[int]] = {}
    for record, (numbered, path) in enumerate(names):
        for name in (numbered, *_endings(path)):
            records_by_name.setdefault(name, []).append(record)
    id_of: dict[int, str] = {}
    for image in table.ids:
        matches = records_by_name.get(image.replace("\\", "/").removeprefix("./"), [])
        if len(matches) > 1:
            others = " and ".join(_shorten(names[match]) for match in matches[:2])
            raise ValueError(
                f"{table.name}: {image!r} names {len(matches)} images, such as {others}; write more of their paths"
            )
        for record in matches:
            if record in id_of:
                raise ValueError(f"{table.name} has two rows for one image, {id_of[record]!r} and {image!r}")
            id_of[record] = image
    missing = [_shorten(name) for record, name in enumerate(names) if record not in id_of]
    if missing:
        raise ValueError(
            f"{table.name} has no row for {min(missing)}; {len(missing):,} of {len(names):,} images are missing in its "
            "column image"
        )
    return [id_of[record] for record in range(len(names))]


def _endings(path: str) -> Iterator[str]:
    """Yield the path and each of its endings, in whole components. Yields nothing for an empty path."""
    if not path:
        return
    components: Sequence[str] = PurePosixPath(path).parts
    yield path
    for start in range(1, len(components)):
        yield "/".join(components[start:])


def _shorten(names: tuple[str, str]) -> str:
    """Return the end of an image's path or, without files, its position."""
    numbered, path = names
    return "/".join(PurePosixPath(path).parts[-SHOWN:]) or numbered
