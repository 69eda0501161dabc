"""The least and most memorised images, near-duplicates and samples, as in figures 2 and 7 to 9."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.audits.density.observations import KINDS, Observations
from dashboards.audits.density.outliers import example_bins
from dashboards.columns import integers, numbers, with_columns
from dashboards.gallery import Gallery, Picture, describe_withheld, encode_png, error_reason, list_groups
from dashboards.run import Run
from orchestrator.errors import StoreError
from orchestrator.store import stored_keys
from tasks.audits.density.config import Density, KernelDensity, Memorization, NearDuplicates
from tasks.datasets.catalog import is_embedded, load
from tasks.datasets.dataset import is_numbered
from tasks.datasets.images import PictureRows
from tasks.datasets.picture_rows import one_image

EACH = 15  # observations per group
PAIRS = 8  # pairs of near-duplicates
BINS = 5  # bins of log P with examples of both kinds
EXAMPLES = 4  # examples per kind and bin
SAMPLES = 15
CAPTION = (
    f"Images with the {EACH} highest, {EACH} median and {EACH} lowest scores M as published, in nats, and their "
    "p-values; examples of highly memorised and regular images by log P; the closest pairs of training images; and "
    "samples of the model of all data, if they were measured."
)
NAMES = {"highest": "Most memorised", "median": "In the middle", "lowest": "Least memorised"}


def pictures(run: Run, show_images: bool) -> Gallery | None:
    """Show observations with the highest, median and lowest published scores, then outliers, duplicates and samples."""
    observations = Observations(run.table("scores"))
    groups = score_extremes(observations)
    if not groups and not run.table("duplicates").num_rows:
        return None
    config = run.private_config
    if not isinstance(config, Density) or isinstance(config.question, KernelDensity):
        return Gallery(CAPTION, False, "The images cannot be shown: the audit has changed since the run.")
    data = config.question.data
    rows_of_groups = {NAMES[name]: observations.rows[members] for name, members in groups.items()}
    rows = f"Rows of observations. {list_groups(rows_of_groups)}"
    if is_numbered(data):
        return Gallery(CAPTION, False, f"Engram knows these records only by number. {rows}")
    if not (show_images or is_embedded(data.name)):
        hidden = describe_withheld(f"Images of {data.named().name}")
        return Gallery(CAPTION, False, f"{hidden} {rows}")
    try:
        return Gallery(CAPTION, True, "", tuple(_measured_pictures(run, config.question, observations, groups)))
    except (ValueError, OSError, IndexError, StoreError) as error:  # includes DatasetError
        return Gallery(CAPTION, False, f"The images cannot be shown{error_reason(run, error)}. {rows}")


def _measured_pictures(
    run: Run, question: Memorization | NearDuplicates, observations: Observations, groups: dict[str, NDArray[np.int64]]
) -> Iterator[Picture]:
    """Yield the images for all measures in the run."""
    images = load(question.data)
    is_null = isinstance(question, Memorization) and question.is_null
    if is_null:
        observed = images.test
    else:
        observed = images.train
    yield from score_pictures(observations, groups, observed)
    yield from _outlier_pictures(run, observations, observed)
    yield from duplicate_pictures(run.table("duplicates"), images.train)
    yield from _sample_pictures(run, images.shape)


def score_extremes(observations: Observations) -> dict[str, NDArray[np.int64]]:
    """Return the indices of observations with the highest, median and lowest scores, which are disjoint.

    The highest come first, in descending order; the others are ascending.
    """
    scores = observations.column("m")
    defined = np.flatnonzero(~np.isnan(scores))
    if len(defined) != 0 and len(observations.rows) != len(scores):
        return {}
    order = defined[np.argsort(scores[defined], kind="stable")]
    count = min(EACH, len(order) // 3)
    if not count:
        if len(order):
            return {"highest": order[::-1]}
        return {}
    middle = (len(order) - count) // 2
    return {"highest": order[: -count - 1 : -1], "median": order[middle : middle + count], "lowest": order[:count]}


def score_pictures(
    observations: Observations, groups: dict[str, NDArray[np.int64]], observed: PictureRows
) -> Iterator[Picture]:
    for name, indices in groups.items():
        for index in indices:
            row = int(observations.rows[index])
            title = _observation_title(observations, int(index))
            yield Picture(encode_png(one_image(observed, row)), title, f"Observation, {title}", NAMES[name])


def _observation_title(observations: Observations, index: int) -> str:
    score = observations.column("m")
    p = observations.column("p_value")
    words = f"row {observations.rows[index]}, M {drawing.format_number(float(score[index]))}"
    if not len(p) or np.isnan(p[index]):
        return words
    return f"{words}, p {p[index]:.2g}"


def _outlier_pictures(run: Run, observations: Observations, observed: PictureRows) -> Iterator[Picture]:
    """Yield examples of both kinds from a few bins of log P."""
    index_by_row = {int(row): index for index, row in enumerate(observations.rows)}
    for name, rows in example_bins(run.table("outliers"), BINS):
        for kind, candidate_rows in rows.items():
            for row in islice((row for row in candidate_rows if row in index_by_row), EXAMPLES):
                title = f"{KINDS[kind]}, {_observation_title(observations, index_by_row[row])}"
                group = f"Highly memorised and regular, U {name} nats"
                yield Picture(encode_png(one_image(observed, row)), title, f"Observation, {title}, U {name}", group)


@with_columns(("rank", "row", "other", "distance"), list)
def duplicate_pictures(table: pa.Table, images: PictureRows) -> Iterator[Picture]:
    """Yield the closest pairs, with the two images of each pair side by side."""
    rank = integers(table, "rank")
    row = integers(table, "row")
    partner = integers(table, "other")
    distance = numbers(table, "distance")
    for pair_index in np.argsort(rank, kind="stable")[:PAIRS]:
        pair = (int(row[pair_index]), int(partner[pair_index]))
        title = f"rows {pair[0]} and {pair[1]}, distance {drawing.format_number(float(distance[pair_index]))}"
        side_by_side = np.concatenate(images.pixels(np.array(pair)), axis=1)
        yield Picture(
            encode_png(side_by_side), title, f"Two training images, {title}", "Closest pairs of training images"
        )


def _sample_pictures(run: Run, shape: tuple[int, int, int]) -> Iterator[Picture]:
    """Yield a few samples from the model trained on all data, if it has any."""
    samples = _read_samples(run, shape)
    for index, image in enumerate([] if samples is None else samples[:SAMPLES]):
        pixels = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
        yield Picture(encode_png(pixels), f"sample {index}", f"Sample {index} of the model", "Samples of the model")


def _read_samples(run: Run, shape: tuple[int, int, int]) -> NDArray[np.float32] | None:
    """Read the samples of a model, (images, h, w, c) in [0, 1]. Returns None if no model has any.

    The model is found through its record, because the tables of all models together may exceed memory.
    """
    stored_results = stored_keys(run.store)
    for key in run.journal.roots().get("fits", ()):
        if key not in stored_results:
            continue
        count = (run.store.record(key, check=False).get("config") or {}).get("drawn")
        if not count:
            continue
        table = run.store.read(key)
        samples = []
        if "samples" in table.column_names:
            samples = table["samples"].to_pylist()
        nonempty_samples = [sample for sample in samples if sample]
        if nonempty_samples:
            values = np.frombuffer(nonempty_samples[-1], np.float32)
        else:
            values = np.empty(0, np.float32)
        if len(values) and len(values) % int(np.prod(shape)) == 0:
            return values.reshape(-1, *shape)
    return None
