"""How often does `density` call an observation in complete runs without memorisation?

    python -m studies density_null_rates --keep runs.jsonl [--tiny] [--seed 7000] [--runs 200] [--planted 2]
                                          [--out FILE]

A null run is small but complete, from plan to verdict. Models trained on 60 8 x 8 digits from an image folder, with 5
partitions into 4 folds, score 40 other digits that no model was trained on. Every call in a null run is false. In a
planted run (6 partitions into 5 folds), two of 60 8 x 8 digits are negatives, are duplicated, or have the label of
another class, which a density model does not see. Calls of other images may be correct. Runs are stored in a file, and
stored runs are not repeated.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.density import AUDIT, plan
from tasks.audits.density.config import Density, KFold, Memorization, ModelTraining, ScoreMeasure
from tasks.audits.density.measures.scores import PLANTED_CALLED
from tasks.audits.density.presets import QUICKSTART
from tasks.audits.density.tail import LEAST_DRAWS
from tasks.contract.job import Job, marks
from tasks.contract.summaries import first_row, index_rows, numerator
from tasks.contract.verdict import Answer
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.external.handout import png
from tasks.numerics.statistics import exact_interval
from tasks.worker.compute_context import ComputeContext, use_context

ANSWERS: tuple[Answer, ...] = ("memorised", "not detected", "undecided")
STACKED = ComputeContext(way="stack")  # trains small models together, which is ten times as fast
# Images per class.
TRAINED = 6
ASKED = 4
NULL = "nothing memorised: images that no model was trained on"
PLANTED = {
    "two negatives planted": "#inverted2",
    "two images duplicated": "#duplicated2",
    "two images with another label": "#mislabelled2",
}
SMALL = replace(
    QUICKSTART, training=ModelTraining(width=0.1, epochs=10, evaluation_interval=0, batch=60, learning_rate=3e-3),
    estimator=KFold(4, evaluation_split="test"), measures=(ScoreMeasure(),), repetitions=5, samples=16, draws=8,
    permutations=LEAST_DRAWS,
)  # fmt: skip
WITH_PLANTED = replace(
    QUICKSTART, training=ModelTraining(width=0.25, epochs=15, evaluation_interval=0, batch=20, learning_rate=3e-3),
    measures=(ScoreMeasure(),), examples=60, samples=16, draws=8, permutations=LEAST_DRAWS,
)  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """One run: its answer, and how many observations are called among the planted ones and among all."""

    kind: str
    seed: int
    answer: Answer
    planted: int
    of_planted: int
    called: int
    observations: int


def run(kind: str, question: Memorization) -> Counted:
    """Execute a complete run and count its calls."""
    config = Density(question)
    summary = compute(plan(config)["summary"], {})
    assert AUDIT.verdict is not None
    rows = index_rows(summary)
    called_row = first_row(rows, "observations memorised")
    planted = first_row(rows, PLANTED_CALLED)
    assert called_row is not None
    if planted is None:
        planted_counts = (0, 0)
    else:
        planted_counts = (numerator(planted), planted["n"])
    return Counted(
        kind,
        question.seed,
        AUDIT.verdict(config, summary).answer,
        *planted_counts,
        numerator(called_row),
        called_row["n"],
    )


def compute(job: Any, tables: dict[Job, pa.Table]) -> pa.Table:
    """Return the job's table. Inputs of a task that supports batches are computed together."""
    missing_inputs = [item for item in job.inputs if item not in tables]
    for function in dict.fromkeys(item.function for item in missing_inputs):
        batch = [item for item in missing_inputs if item.function is function]
        many = marks(function).many
        if many is None:
            for item in batch:
                compute(item, tables)
            continue
        with use_context(STACKED):
            for index, outcome in many([item.config for item in batch], [()] * len(batch)):
                if isinstance(outcome, Exception):
                    raise outcome
                tables[batch[index]] = outcome
    tables[job] = job.function(job.config, [tables[item] for item in job.inputs])
    return tables[job]


def write_folder(folder: Path) -> Dataset:
    """Write the first digits of each class as an image folder with a training and a test split."""
    images = load(Dataset("digits#8x8"))
    for split, pixels, labels, count in (
        ("train", images.train_images, images.train_labels, TRAINED),
        ("test", images.test_images, images.test_labels, ASKED),
    ):
        for row in np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(images.classes)]):
            path = folder / split / str(labels[row]) / f"{row:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(pixels[row]))
    return pin(Dataset(f"folder:{folder}#8x8#grey"))


def configs(seed: int, runs: int, planted: int, folder: Path) -> Iterator[tuple[str, Memorization]]:
    """Yield the runs of each kind. Each run has its own seed."""
    null = replace(SMALL, data=write_folder(folder))
    yield from ((NULL, replace(null, seed=seed + index)) for index in range(runs))
    for number, (kind, option) in enumerate(PLANTED.items(), 1):
        config = replace(WITH_PLANTED, data=pin(Dataset(f"digits#8x8{option}")))
        yield from ((kind, replace(config, seed=seed + 1000 * number + index)) for index in range(planted))


def outcomes(seed: int, runs: int, planted: int, path: Path) -> list[Counted]:
    """Compute the requested runs that are missing. Returns all stored runs."""
    stored_runs = []
    if path.exists():
        stored_runs = []
        for line in path.read_text().splitlines():
            stored_runs.append(Counted(**json.loads(line)))
    done = {(item.kind, item.seed) for item in stored_runs}
    with tempfile.TemporaryDirectory() as folder, path.open("a") as file:
        for kind, config in configs(seed, runs, planted, Path(folder)):
            if (kind, config.seed) not in done:
                stored_runs.append(run(kind, config))
                print(json.dumps(asdict(stored_runs[-1])), file=file, flush=True)
    return stored_runs


def markdown(results: Sequence[Counted]) -> str:
    """Render one row per kind of run."""
    lines = [
        f"| runs | {', '.join(ANSWERS)} | runs that call any | called that were not planted | planted ones called |",
        "|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(item.kind for item in results):
        runs = [item for item in results if item.kind == kind]
        answer_counts = Counter(item.answer for item in runs)
        answers = ", ".join(str(answer_counts[name]) for name in ANSWERS)
        other_count = sum(item.called - item.planted for item in runs)
        untouched = sum(item.observations - item.of_planted for item in runs)
        planted = sum(item.planted for item in runs)
        planted_total = sum(item.of_planted for item in runs)
        lines.append(
            f"| {kind}; {len(runs)} runs | {answers} | {share(sum(item.called > 0 for item in runs), len(runs))} "
            f"| {other_count:,} of {untouched:,} | {share(planted, planted_total) if planted_total else ''} |"
        )
    return "\n".join(lines) + (
        "\n\nBrackets: exact 95 % intervals (Clopper-Pearson); planted images of one run share its models, so their "
        "interval is too narrow. In a null run every call is false: the false discovery rate is the share of runs "
        "with a call, at most 5 % by the rule.\n"
    )


def share(count: int, n: int) -> str:
    low, high = exact_interval(count, n)
    return f"{count} of {n}, {100 * count / n:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=7000, help="of the first run; the next has the next one")
    parser.add_argument("--runs", type=int, default=200, help="nulls, two seconds each")
    parser.add_argument("--planted", type=int, default=20, help="runs of each planted kind, six seconds each")
    parser.add_argument("--keep", type=Path, required=True, help="the file of runs")
    options = parser.parse_args(arguments)
    setting: dict[str, Any] = measurement_facts("digits", torch.device("cpu")) | {"seeds": f"{options.seed} on"}
    results = outcomes(
        options.seed, 2 if options.tiny else options.runs, 0 if options.tiny else options.planted, options.keep
    )
    publish_counts("Calls of complete runs with known memory", setting, markdown(results), options.out)
