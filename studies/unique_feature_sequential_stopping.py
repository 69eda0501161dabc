"""How many pairs does a run need until it is decided, and how often does it accuse wrongly?

    python -m studies unique_feature_sequential_stopping [--tiny] [--seed 9000] [--trained 50] [--out FILE]

`--trained N` runs N audits of each kind, with and without an effect, as in `engram run unique_feature --until decided`.
Each pair trains a small network twice on 300 digits. With an effect, the canary carries the audited feature, otherwise
it carries another feature. Without this option, ranks are simulated.

Each canary's feature is ranked among 201. With an effect, the probability that it ranks ahead of another feature varies
across canaries like a normal score with unit spread. The strength is chosen so that a stated fraction of canaries has p
of at most 5 %. A run with a fixed number of pairs combines all p-values (Fisher) and must fix that number in advance.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from measurement.report import measurement_facts, publish_counts
from orchestrator.planning.plan import plan_of
from orchestrator.runs.lifecycle import start
from orchestrator.scheduling.rounds import stop_when_decided
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import open_store
from studies.interface import study_parser
from tasks.numerics import betting, statistics

SIZE = 201
LEVEL = 0.05
MOST = 12
Ranks = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """Audits whose canaries have p of at most LEVEL with this probability. None means no memorisation."""

    power: float | None
    audits: int


@dataclass(frozen=True)
class Counts:
    case: Case
    decided: int
    pairs: float  # mean number of pairs
    longest: int  # pairs needed by nine in ten audits
    fixed: int  # audits accused by Fisher's test on `longest` pairs


CASES = (
    *(Case(power, 50) for power in (0.95, 0.8, 0.65, 0.5, 0.3)),
    Case(None, 50),
    *(Case(power, 20_000) for power in (0.95, 0.8, 0.65, 0.5, 0.3)),
    Case(None, 20_000),
)
TINY = (Case(0.8, 20), Case(None, 20))


def draw_ranks(case: Case, seed: int) -> Ranks:
    """Draw simulated ranks, (audits, MOST)."""
    rng = np.random.default_rng(seed)
    if case.power is None:
        return rng.integers(1, SIZE + 1, (case.audits, MOST))
    strength = stats.norm.isf(LEVEL) - stats.norm.isf(case.power)
    return 1 + rng.binomial(SIZE - 1, stats.norm.sf(rng.normal(strength, 1, (case.audits, MOST))))


def count_decisions(case: Case, seed: int) -> Counts:
    ranks = draw_ranks(case, seed)
    paths = np.array([betting.evidence(row, [SIZE] * MOST) for row in ranks.tolist()])
    decided = paths >= 1 / LEVEL
    pairs = np.where(decided.any(axis=1), decided.argmax(axis=1) + 1, MOST)
    longest = int(np.ceil(np.quantile(pairs, 0.9)))
    fisher = stats.chi2.sf(-2 * np.log(ranks[:, :longest] / SIZE).sum(axis=1), 2 * longest)
    return Counts(case, int(decided.any(axis=1).sum()), float(pairs.mean()), longest, int((fisher <= LEVEL).sum()))


def markdown(counted: Sequence[Counts]) -> Iterator[str]:
    yield f"| p at most 5 %, audits | decided within {MOST} | pairs on average | 9 of 10 by | Fisher at that number |"
    yield "|---" * 5 + "|"
    for counts in counted:
        case = counts.case
        if case.power is None:
            power = "nothing memorised"
        else:
            power = f"{100 * case.power:g} % of canaries"
        shares = (_share(item, case.audits) for item in (counts.decided, counts.fixed))
        decided, fixed = shares
        yield f"| {power}, {case.audits:,} | {decided} | {counts.pairs:.1f} | {counts.longest} | {fixed} |"


def _share(count: int, total: int) -> str:
    rate = statistics.proportion(count, total)
    percent = [100 * (value or 0) for value in (rate.value, rate.low, rate.high)]
    return f"{count:,} ({percent[0]:.3g} % [{percent[1]:.3g}, {percent[2]:.3g}])"


# Small enough for a hundred audits. With so few epochs, audits miss some canaries.
SETTINGS = {
    "drawn": "true",
    "family.count": "100",
    "examples": "300",
    "probes": "20",
    "width": "0.25",
    "patience": "0",
    "learning_rate": "3e-3",
    "batch": "300",
}


@dataclass(frozen=True)
class TrainedCase:
    name: str
    settings: Mapping[str, str]


ELSEWHERE = '{"kind": "random", "seed": 1, "top": 22, "left": 22}'
TRAINED = (
    TrainedCase("an effect of 12 epochs", {"epochs": "12"}),
    TrainedCase("an effect of 3 epochs", {"epochs": "3"}),
    TrainedCase("no effect, 3 epochs", {"epochs": "3", "burnt": ELSEWHERE}),
)


@dataclass(frozen=True)
class Ended:
    """How an audit ended: decision, pairs, and the numbers of planned and executed trainings."""

    is_decided: bool
    pairs: int
    planned: int
    run: int


def run_audit(case: TrainedCase, seed: int, folder: Path) -> Ended:
    """Run one audit in a separate store."""
    spec = Spec("unique_feature", "quickstart", {**SETTINGS, **case.settings, "seed": str(seed)})
    cells = pin_cells(resolve_cells(stop_when_decided(spec, LEVEL, MOST)), {})
    store = open_store(folder / f"{case.name}-{seed}")
    report = start(cells, store, Execution(address="none", mlflow="off", report=False))
    evidence = report.table("evidence").to_pylist()
    plan = plan_of(cells[0])
    is_decided = any(pair["decided"] for pair in evidence)
    return Ended(is_decided, len(evidence), plan.trainings(), plan.trainings(store.keys() & plan.jobs.keys()))


def trained_markdown(ended: Mapping[str, Sequence[Ended]]) -> Iterator[str]:
    yield f"| effect, audits | decided within {MOST} pairs | pairs on average | trainings | saved |"
    yield "|---" * 5 + "|"
    for name, audits in ended.items():
        decided = sum(item.is_decided for item in audits)
        planned_count = sum(item.planned for item in audits)
        run = sum(item.run for item in audits)
        pairs = sum(item.pairs for item in audits) / len(audits)
        saved = f"{100 * (1 - run / planned_count):.0f} %"
        share = _share(decided, len(audits))
        yield f"| {name}, {len(audits)} | {share} | {pairs:.1f} | {run:,} of {planned_count:,} | {saved} |"


def run_trained(audits: int, first: int) -> Iterator[str]:
    """Render the table of trained audits with consecutive seeds."""
    ended: dict[str, list[Ended]] = {}
    with TemporaryDirectory() as folder:
        for seed in range(first, first + audits):
            for case in TRAINED:
                ended.setdefault(case.name, []).append(run_audit(case, seed, Path(folder)))
                print(f"{case.name}, seed {seed}: {ended[case.name][-1]}", file=sys.stderr, flush=True)
    yield from trained_markdown(ended)


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--trained", type=int, default=0, metavar="N", help="trained audits of each kind")
    parser.add_argument("--seed", type=int, default=9000, help="of the first case")
    options = parser.parse_args(arguments)
    if options.trained:
        setting = measurement_facts("digits", torch.device("cpu")) | {"seeds": f"from {options.seed} on"}
        table = "\n".join(run_trained(options.trained, options.seed)) + "\n"
        publish_counts("Trainings until decided", setting, table, options.out)
        return
    cases = TINY if options.tiny else CASES
    counted = []
    for index, case in enumerate(cases):
        counted.append(count_decisions(case, options.seed + index))
    setting = measurement_facts("simulated", torch.device("cpu")) | {"seeds": f"from {options.seed} on"}
    publish_counts("Pairs until decided", setting, "\n".join(markdown(counted)) + "\n", options.out)
