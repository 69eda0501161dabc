"""Are the exact test's p-values valid if its sets are drawn in stages, and does it find as many records?

    python -m studies membership_test_stages [--tiny] [--seed 51000] [--audits 100] [--out FILE]

Each audit tests 2,000 records of 24 simulated models at a false discovery rate of 5 %, with 99 sets in the first stage
and at most 80,000 in the last. *In stages* is the rule of `tasks.numerics.exact_test` and skips costly stages. *At
once* draws all 80,000 sets for every record with a small p-value. A p-value is counted if it belongs to a record
without an effect.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.datasets.mixtures import draw_balanced_members
from tasks.numerics import seeds, statistics
from tasks.numerics.exact_test import randomisation_p_values
from tasks.numerics.ranks import false_discovery_control

LEVEL = 0.05
MODELS = 24
DRAWS = 99
LEVELS = (0.05, 0.01, 0.001, 0.0001)
Floats = NDArray[np.float64]
RULES: Mapping[str, Mapping[str, int]] = {
    "in stages": {"ALWAYS": 0},
    "at once": {"ALWAYS": 2**62, "GROWTH": 2**31},
}


@dataclass(frozen=True)
class Case:
    """Simulated audits. A share of the records gains `effect` nats from training."""

    name: str
    exposed: float = 0.0
    effect: float = 0.0
    is_irregular: bool = False
    """Whether scores have heavy tails, records differ in their spread, and some models are worse at all records."""


CASES = (
    Case("nothing memorised"),
    Case("nothing memorised, irregular scores", is_irregular=True),
    Case("one record by 6 nats", 1 / 2000, 6.0),
    Case("1 % by 4 nats", 0.01, 4.0),
    Case("1 % by 4 nats, irregular scores", 0.01, 4.0, is_irregular=True),
    Case("half by 2 nats", 0.5, 2.0),
)


def simulate(case: Case, records: int, seed: int) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return scores and training sets, (models, records), and which records have an effect."""
    stream = seeds.generator(seed, "scores")
    member = draw_balanced_members(records, MODELS, seeds.derive(seed, "design"))
    scores = stream.normal(size=(MODELS, records))
    if case.is_irregular:
        scores = stream.standard_t(2, (MODELS, records)) * np.exp(stream.normal(size=records))
        scores -= 5.0 * (stream.random((MODELS, 1)) < 0.2)
    is_exposed = np.arange(records) < round(case.exposed * records)
    return scores + case.effect * (member & is_exposed), member, is_exposed


def count(case: Case, records: int, audits: int, first: int) -> dict[str, Counter[str]]:
    """Count audits and records over all audits, by rule."""
    counts = {rule: Counter[str]() for rule in RULES}
    for audit in range(audits):
        seed = seeds.derive(first, case.name, audit)
        scores, member, is_exposed = simulate(case, records, seed)
        for rule, constants in RULES.items():
            with ExitStack() as changes:
                for name, value in constants.items():
                    changes.enter_context(patch(f"tasks.numerics.exact_test.{name}", value))
                start = time.process_time()
                p_values = randomisation_p_values(scores, member, DRAWS, seed, LEVEL)
                counts[rule]["microseconds"] += round(1e6 * (time.process_time() - start))
            found = false_discovery_control(p_values) <= LEVEL
            counts[rule]["found"] += int(found[is_exposed].sum())
            counts[rule]["false"] += int(found[~is_exposed].sum())
            counts[rule]["audits with a find"] += bool(found.any())
            for level in LEVELS:
                counts[rule][f"p at most {level:g}"] += int((p_values[~is_exposed] <= level).sum())
    return counts


def table(records: int, audits: int, first: int) -> Iterator[str]:
    """Render the counts of all cases, with exact 95 % intervals."""
    yield f"{audits} audits per row. Shares of the p-values of records without an effect have exact 95 % intervals."
    yield ""
    levels = " | ".join(f"p at most {100 * level:g} %" for level in LEVELS)
    yield f"| memorised | sets | audits that find a record | exposed records found | others found | {levels} | s |"
    yield "|---" * (6 + len(LEVELS)) + "|"
    for case in CASES:
        exposed = round(case.exposed * records)
        for rule, counts in count(case, records, audits, first).items():
            cells = [case.name, rule, in_words(counts["audits with a find"], audits)]
            cells.append(f"{counts['found']:,} of {exposed * audits:,}" if exposed else "")
            cells.append(f"{counts['false']:,}")
            for level in LEVELS:
                cells.append(in_words(counts[f"p at most {level:g}"], (records - exposed) * audits))
            yield f"| {' | '.join(cells)} | {counts['microseconds'] / 1e6:.1f} |"


def in_words(count: int, total: int) -> str:
    """Return a count with its share and exact interval in percent."""
    share = statistics.exact_proportion(count, total)
    low, value, high = (100 * (end or 0.0) for end in (share.low, share.value, share.high))
    return f"{count:,}: {value:.3g} % [{low:.3g}, {high:.3g}]"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=51000, help="of all audits")
    parser.add_argument("--audits", type=int, default=100, help="per case")
    options = parser.parse_args(arguments)
    setting: dict[str, Any] = measurement_facts("simulated", torch.device("cpu"))
    start = time.process_time()
    lines = "\n".join(table(100, 2, options.seed) if options.tiny else table(2000, options.audits, options.seed))
    setting["seeds"] = f"derived from {options.seed}"
    setting["cost"] = f"{time.process_time() - start:.0f} s of a core"
    publish_counts("Exact test with sets drawn in stages", setting, lines + "\n", options.out)
