"""Does the exact test find records that a generator of tables copies, and do the usual distances agree?

    python -m studies generators [--tiny] [--seed 24000] [--case NAME ...] [--out FILE]

Each audit trains 16 generators on halves of 300 of the 569 tumours that scikit-learn ships: ten measurements and the
diagnosis. Each generator writes 150 samples, and the score of a record is minus its distance to the nearest one
(`tasks.programs.samples`). A record is found by the exact test of `membership`, at a false discovery rate of 5 %.

The usual distances have one generator, the first, and treat the 150 records that it was not trained on as held out:

- share: samples nearer to a training record than to a held-out record, compared with 50 %, without a test or with a
  one-sided binomial test (Platzer & Reutterer 2021, section 2.3);
- closest record: the 5th percentile of the distances of samples to training records, compared with that of held-out
  records.

CTGAN (Xu et al. 2019, the package ctgan) is trained for 300 epochs in batches of 100, with layers of 128 units. It
requires pandas below 3, and therefore a separate environment.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.example_scripts import load_script
from studies.interface import study_parser
from tasks.audits.membership.config import Halves
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.datasets.mixtures import draw_balanced_members
from tasks.numerics import seeds, statistics
from tasks.numerics.exact_test import randomisation_p_values
from tasks.numerics.nearest_neighbours import nearest
from tasks.numerics.ranks import false_discovery_control
from tasks.programs.samples import read_points, score_samples
from tasks.worker.hardware import threads

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
LABEL = "diagnosis"
COLUMNS = 10  # the means; the others are their errors and extremes
RECORDS = 300
MODELS = 16
PLANTED = 30  # records that the copying generator returns
COPY_NOISE = 0.01  # standard deviations of a column
PERCENTILE = 5
EPOCHS = 300
BATCH = 100
UNITS = 128

draw_copula_samples = load_script("training/generator").draw_samples


@dataclass(frozen=True)
class Generation:
    """The table, the rows to train on, the other rows (in no half), the planted rows, and a seed."""

    table: pd.DataFrame
    rows: Rows
    other_rows: Rows
    planted: Rows
    seed: int


def fit_copula(generation: Generation) -> pd.DataFrame:
    return draw_copula_samples(generation.table.iloc[generation.rows], len(generation.rows), generation.seed)


def fit_other_rows(generation: Generation) -> pd.DataFrame:
    """Ignore the rows: the samples do not depend on the half."""
    return draw_copula_samples(generation.table.iloc[generation.other_rows], len(generation.rows), generation.seed)


def copy_planted(generation: Generation) -> pd.DataFrame:
    """Return samples of a copula, in which copies of the planted training rows replace the first ones."""
    return _replace_first(fit_copula(generation), generation, np.intersect1d(generation.rows, generation.planted))


def copy_planted_alone(generation: Generation) -> pd.DataFrame:
    """Return the same copies, with a copula of other rows: only the planted rows have an effect."""
    return _replace_first(fit_other_rows(generation), generation, np.intersect1d(generation.rows, generation.planted))


def copy_any(generation: Generation) -> pd.DataFrame:
    """Return samples of a copula, in which copies of a random tenth of the training rows replace the first ones."""
    stream = seeds.generator(generation.seed, "copied rows")
    copied = stream.choice(generation.rows, len(generation.rows) // 10, replace=False)
    return _replace_first(fit_copula(generation), generation, copied)


def _replace_first(samples: pd.DataFrame, generation: Generation, copied: Rows) -> pd.DataFrame:
    copies = generation.table.iloc[copied].reset_index(drop=True)
    stream = seeds.generator(generation.seed, "noise of copies")
    for name in samples.columns.drop(LABEL):
        copies[name] += COPY_NOISE * generation.table[name].std() * stream.normal(size=len(copies))
    return pd.concat([copies, samples.iloc[len(copies) :]])


def fit_ctgan(generation: Generation) -> pd.DataFrame:
    from ctgan import CTGAN

    seed = generation.seed % 2**32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.random.seed(seed)  # rdt's mixtures of Gaussians draw from it
        torch.manual_seed(seed)
        units = (UNITS, UNITS)
        model = CTGAN(generator_dim=units, discriminator_dim=units, batch_size=BATCH, epochs=EPOCHS, enable_gpu=False)
        model.set_random_state(seed)
        model.fit(generation.table.iloc[generation.rows].reset_index(drop=True), [LABEL])
        samples: pd.DataFrame = model.sample(len(generation.rows))
    return samples


@dataclass(frozen=True)
class Case:
    name: str
    generate: Callable[[Generation], pd.DataFrame]
    audits: int = 200
    has_planted: bool = False


CASES = {
    "null": Case("null: a copula fitted on other rows", fit_other_rows),
    "planted": Case("copies 30 planted records", copy_planted, has_planted=True),
    "planted-alone": Case(
        "copies 30 planted records; a copula fitted on other rows", copy_planted_alone, has_planted=True
    ),
    "any": Case("copies a random tenth of its rows", copy_any),
    "copula": Case("Gaussian copula", fit_copula),
    "ctgan": Case("CTGAN", fit_ctgan, audits=20),
}


@dataclass
class Counts:
    """Results over the audits of a case."""

    case: Case
    audits: int = 0
    with_found: int = 0  # audits that find a record
    found_planted: int = 0
    found_others: int = 0
    small: int = 0  # p-values of at most 5 %
    shares: list[float] = field(default_factory=list)
    above_half: int = 0
    above_half_by_test: int = 0
    closer: int = 0


def write_table(path: Path) -> pd.DataFrame:
    """Write the ten means and the diagnosis of each tumour as CSV, and return them."""
    from sklearn.datasets import load_breast_cancer

    tumours = load_breast_cancer()
    table = pd.DataFrame(tumours.data[:, :COLUMNS], columns=tumours.feature_names[:COLUMNS])
    table[LABEL] = tumours.target_names[tumours.target]
    table.to_csv(path, index=False)
    return table


def audit(counts: Counts, table: pd.DataFrame, records: Images, folder: Path, seed: int, models: int) -> None:
    """Add the results of one audit."""
    rows = np.arange(RECORDS)
    file_rows = records.train_file_rows
    assert file_rows is not None
    planted = np.sort(seeds.generator(seed, "planted").choice(rows, PLANTED, replace=False))
    member = draw_balanced_members(RECORDS, models, seeds.derive(seed, "design"))
    scores = np.empty((models, RECORDS))
    for number in range(models):
        generation = Generation(
            table, file_rows[rows[member[number]]], file_rows[RECORDS:], file_rows[planted], seeds.derive(seed, number)
        )
        counts.case.generate(generation).to_csv(folder / "samples.csv", index=False)
        scores[number] = score_samples(folder, records, rows)
        if number == 0:
            _add_usual_distances(counts, folder, records, rows, member[0])
    level = Halves.level
    p_values = randomisation_p_values(scores, member, Halves.draws, seeds.derive(seed, "exact test"), level)
    found = false_discovery_control(p_values) <= level
    counts.audits += 1
    counts.with_found += bool(found.any())
    counts.small += int((p_values <= level).sum())
    counts.found_planted += int(found[planted].sum())
    counts.found_others += int(found.sum() - found[planted].sum())


def _add_usual_distances(counts: Counts, folder: Path, records: Images, rows: Rows, member: NDArray[np.bool_]) -> None:
    points, samples = read_points(folder, records, rows)
    to_training, to_held_out = (nearest(samples, points[side], 1).distances[:, 0] for side in (member, ~member))
    of_held_out = nearest(points[~member], points[member], 1).distances[:, 0]
    nearer = int((to_training < to_held_out).sum())
    p_value = statistics.proportion_greater(nearer, len(samples), 0.5)
    assert p_value is not None
    counts.shares.append(nearer / len(samples))
    counts.above_half += 2 * nearer > len(samples)
    counts.above_half_by_test += p_value <= Halves.level
    counts.closer += bool(np.percentile(to_training, PERCENTILE) < np.percentile(of_held_out, PERCENTILE))


def count(case: Case, first: int, audits: int, models: int = MODELS) -> Counts:
    counts = Counts(case)
    with tempfile.TemporaryDirectory() as name, threads(1):
        folder = Path(name)
        table = write_table(folder / "tumours.csv")
        records = load(Dataset(f"table:{folder / 'tumours.csv'}#label={LABEL}"))
        for number in range(audits):
            audit(counts, table, records, folder, first + number, models)
    return counts


def markdown(counted: Sequence[Counts], models: int) -> Iterator[str]:
    yield (
        f"| generator, {models} on halves of {RECORDS} records | audits | find a record | planted found | "
        "others found | p <= 5 % |"
    )
    yield "|---" * 6 + "|"
    for counts in counted:
        planted = others = ""
        tested = RECORDS * counts.audits
        found = counts.found_planted + counts.found_others
        if counts.case.has_planted:
            total = PLANTED * counts.audits
            planted = f"{counts.found_planted} of {total}, {_interval(counts.found_planted, total)}"
            others = f"{counts.found_others} of {found} found"
        else:
            others = f"{found} of {tested}"
        yield (
            f"| {counts.case.name} | {counts.audits} | {_share(counts.with_found, counts.audits)} | {planted} | "
            f"{others} | {100 * counts.small / tested:.2f} % |"
        )
    yield ""
    yield (
        "| the first generator of each audit | audits | mean share nearer to training | share above 50 % | "
        "above 50 % by a test at 5 % | closer than held-out records |"
    )
    yield "|---" * 6 + "|"
    for counts in counted:
        answers = (counts.above_half, counts.above_half_by_test, counts.closer)
        cells = " | ".join(_share(answer, counts.audits) for answer in answers)
        yield f"| {counts.case.name} | {counts.audits} | {100 * np.mean(counts.shares):.1f} % | {cells} |"
    yield ""
    yield "Intervals are exact 95 % intervals (Clopper & Pearson 1934) over audits, or over planted records."
    yield "Records that are not planted may have an effect if the copula or CTGAN is also fitted on them."


def _share(successes: int, total: int) -> str:
    return f"{successes}, {_interval(successes, total)}"


def _interval(successes: int, total: int) -> str:
    low, high = statistics.exact_interval(successes, total)
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def _installed_versions() -> Iterator[str]:
    for package in ("scikit-learn", "pandas", "ctgan"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield f"{package} {metadata.version(package)}"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=24000, help="of the first audit of each case")
    parser.add_argument("--case", choices=CASES, action="append", help="measure this case only; may be repeated")
    options: argparse.Namespace = parser.parse_args(arguments)
    setting: dict[str, Any] = measurement_facts("breast cancer of scikit-learn", torch.device("cpu"))
    models = 8 if options.tiny else MODELS
    start = time.process_time()
    counted = []
    for name in options.case or CASES:
        case = CASES[name]
        audits = 2 if options.tiny else case.audits
        counted.append(count(case, options.seed, audits, models))
        print(f"{name}: {counted[-1].audits} audits, {time.process_time() - start:.0f} s", flush=True)
    setting["packages"] = ", ".join(_installed_versions())
    setting["seeds"] = f"from {options.seed} on"
    setting["cost"] = f"{(time.process_time() - start) / 60:.0f} minutes of processor time"
    table = "\n".join(markdown(counted, models)) + "\n"
    publish_counts("Records that generators of tables copy", setting, table, options.out)
