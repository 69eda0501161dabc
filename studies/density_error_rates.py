"""How often does `density` find what simulated models memorise, and accuse models that memorise nothing?

    python -m studies density_error_rates [--tiny] [--seed 3000] [--out FILE]

log p is simulated (`tests/tasks/audits/density/made_up.py`): models differ in quality and disagree more on some
observations than on others. Training raises log p of memorised observations. Answers follow the audit's rule with the
smallest permitted number of permutations. The detection limit of a single observation uses 100 observations, as in a
run, and is computed only if the answer depends on it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.density import about
from tasks.audits.density.answer import RULES
from tasks.audits.density.config import Density, KFold, Memorization
from tasks.audits.density.evidence import Evidence
from tasks.audits.density.measures.distribution import Gain
from tasks.audits.density.measures.scores import FOUND, PROBED, significance
from tasks.audits.density.memorization import Array, Indices, lower_log_p
from tasks.audits.density.power import observation_resolution
from tasks.audits.density.reassignment import least_found, p_values, reassign_models
from tasks.audits.density.tail import LEAST_DRAWS, adjust_p_values, alone, found_in
from tasks.contract.summaries import Estimate, Row
from tasks.contract.verdict import Answer
from tests.tasks.audits.density.made_up import noise, partitions

ANSWERS: tuple[Answer, ...] = ("memorised", "not detected", "undecided", "not assessable")
QUALITY = 2.0  # nats by which models differ on all observations
SHOWN = 30  # observations in the first run that have a detection limit


def counted_rows(
    config: Memorization, log_p: Array, out: Indices, chance: np.random.Generator, thresholds: Array
) -> Mapping[str, Row]:
    """Return the deciding summary rows by metric, for a run with these log densities (n, L, K).

    `thresholds` is the memory in nats from which each tested observation would be called individually.
    """
    p = p_values(log_p, out, config.permutations, chance, negligible=config.negligible)
    columns = {
        "p_value": p,
        "p_adjusted": adjust_p_values(p, config.leaves_out_rows),
        "m_matched": p,
        "found_from": pa.array(thresholds.tolist() + [None] * (len(p) - len(thresholds)), pa.float64()),
    }
    gain = Gain(*log_p.shape[1:], config.negligible)
    gain.add(log_p, out)
    rows = {}
    for row in significance(pa.table(columns), about(config)):
        rows[row["metric"]] = row
    return rows | {"gap": {"metric": "gap", "low": gain.estimate.low, "high": gain.estimate.high}}


def answer(config: Memorization, rows: Mapping[str, Row], memorised_row: Row | None = None) -> Answer:
    """Return the audit's answer from these rows. `memorised_row` replaces the row with the detection limit."""
    called_row = rows["observations memorised"]
    excess_row = rows.get("observations memorised beyond chance")
    if memorised_row is None:
        single = rows.get("memory of a single observation that is found")
    else:
        single = memorised_row
    resolution = observation_resolution(config, called_row["n"])
    evidence = Evidence(called_row, excess_row, rows["gap"], single, config.negligible, config.detectable, resolution)
    return RULES.decide(Density(config), evidence).answer


def enough(config: Memorization, log_p: Array, out: Indices, chance: np.random.Generator, few: int = PROBED) -> Array:
    """Return `detectable` for each of the first `few` observations that would be called with this memory, else inf.

    The result has shape (few,). A run searches for the smallest sufficient memory, whereas this function only tests
    `detectable`.
    """
    log_p = log_p[:few]
    held_out = reassign_models(log_p, out[:few], chance)
    raised = lower_log_p(log_p, held_out, -config.detectable)
    p = p_values(raised, held_out, config.permutations, chance, negligible=config.negligible)
    return np.where(p <= alone(len(out), config.leaves_out_rows), config.detectable, np.inf)


@dataclass(frozen=True)
class Case:
    """Runs of one kind. All observations are raised by `raised` nats, and the first `planted` ones by NATS."""

    name: str
    observations: int
    repetitions: int
    folds: int
    sd: float  # of the models on one observation, in nats
    runs: int
    raised: float = 0.0
    planted: int = 0
    constant: bool = False  # log p is the same for all models and observations

    @property
    def config(self) -> Memorization:
        return Memorization(repetitions=self.repetitions, estimator=KFold(self.folds), permutations=LEAST_DRAWS)

    def __str__(self) -> str:
        shape = f"{self.observations:,} observations, L = {self.repetitions}, K = {self.folds}, sd {self.sd:g}"
        return f"{self.name}: {shape}; {self.runs} run{'s' * (self.runs > 1)}"


NATS = 80.0  # planted memory in nats
NOTHING = "nothing memorised"
CASES = (
    Case(NOTHING, 500, 6, 5, 3.0, 400),
    Case(NOTHING, 400, 10, 10, 5.0, 400),
    Case(NOTHING, 300, 2, 5, 5.0, 400),
    Case(NOTHING, 300, 3, 4, 0.3, 400),
    Case(NOTHING, 300, 6, 5, 0.3, 400),
    Case(NOTHING, 400, 10, 10, 1.0, 400),
    *(Case(f"all raised by {nats:g} nats", 3000, 10, 10, 2.0, 20, raised=nats) for nats in (0.01, 0.05, 0.1, 0.3)),
    Case(NOTHING, 60_000, 10, 10, 2.0, 4),
    Case("one planted", 60_000, 10, 10, 2.0, 4, planted=1),
    Case("constant densities", 300, 6, 5, 0.3, 20, constant=True),
    Case("too few repetitions", 3000, 4, 5, 0.3, 20),
    Case("two planted", 60_000, 10, 10, 2.0, 4, planted=2),
)
TINY = (Case(NOTHING, 40, 6, 4, 0.3, 3), Case("one planted", 40, 6, 4, 2.0, 2, planted=1))


@dataclass(frozen=True)
class Counted:
    """Counts over the runs of a case (answers and calls), and the detection limit of the first run."""

    case: Case
    answers: Counter[str]
    runs_with_calls: int
    runs_with_false_calls: int  # runs that call an observation without planted memory
    detection_limit: Estimate


def counted(case: Case, seed: int) -> Counted:
    """Count the outcomes of a case."""
    config = case.config
    answers = Counter[str]()
    called_count = 0
    other_count = 0
    estimate = Estimate(None, None, None, 0)
    for run in range(case.runs):
        chance = np.random.default_rng((seed, run))
        log_p, out = simulated(case, chance)
        rows = counted_rows(config, log_p, out, chance, np.empty(0))
        answer_given = answer(config, rows, {"estimate": 0.0, "high": 0.0})
        if answer_given == "not detected":  # the rule then also needs the detection limit
            high = found_in(enough(config, log_p, out, chance), FOUND).high
            answer_given = answer(config, rows, {"estimate": high, "high": high})
        answers[answer_given] += 1
        count = round(rows["observations memorised"]["estimate"] * case.observations)
        called_count = called_count + (count > 0)
        other_count = other_count + (count > case.planted)
        if not run:
            held_out = reassign_models(log_p[:SHOWN], out[:SHOWN], chance)
            level = alone(case.observations, dependent=False)
            estimate = found_in(least_found(log_p[:SHOWN], held_out, level, config.negligible), FOUND)
    return Counted(case, answers, called_count, other_count, estimate)


def simulated(case: Case, chance: np.random.Generator) -> tuple[Array, Indices]:
    """Simulate a run. Returns log p (n, L, K), and which model of each partition held out each observation (n, L)."""
    shape = case.observations, case.repetitions, case.folds
    log_p = noise(chance, *shape, case.sd, QUALITY)
    out = partitions(chance, *shape)
    if case.constant:
        return np.full_like(log_p, -100.0), out
    memory = np.full(case.observations, case.raised)
    memory[: case.planted] = NATS
    if memory.any():
        log_p += np.where(np.arange(case.folds) == out[:, :, None], 0.0, memory[:, None, None])
    return log_p, out


def markdown(results: Sequence[Counted]) -> str:
    """Render one row per case."""
    lines = [
        f"| runs | {', '.join(ANSWERS)} | any called | one called that was not planted | "
        f"found in {100 * FOUND:.0f} %, nats |",
        "|---|---|---|---|---|",
    ]
    for row in results:
        answers = ", ".join(str(row.answers[name]) for name in ANSWERS)
        limit = nats(row.detection_limit)
        lines.append(f"| {row.case} | {answers} | {row.runs_with_calls} | {row.runs_with_false_calls} | {limit} |")
    return "\n".join(lines) + (
        f"\n\nPlanted: memorised by {NATS:g} nats. The last column is of one run ({SHOWN} observations), with the 95 % "
        "interval of the quantile; a run finds a single observation where its upper limit is at most "
        f"{CASES[0].config.detectable:g}.\n"
    )


def nats(estimate: Estimate) -> str:
    if estimate.value is None:
        return "none"
    low = "" if estimate.low is None else f"{estimate.low:.3g}"
    high = "" if estimate.high is None else f"{estimate.high:.3g}"
    return f"{estimate.value:.3g} [{low}, {high}]"


def counts(cases: Sequence[Case], seed: int) -> Iterator[Counted]:
    """Yield the counts of all cases. Each case has its own seeds."""
    for number, case in enumerate(cases):
        yield counted(case, seed + number)


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=3000, help="of the first case; the next has the next one")
    options = parser.parse_args(arguments)
    cases = TINY if options.tiny else CASES
    setting: dict[str, Any] = measurement_facts("simulated", torch.device("cpu"))
    start = time.process_time()
    results = list(counts(cases, options.seed))
    setting["seeds"] = f"{options.seed} to {options.seed + len(cases) - 1}, one for each row"
    setting["cost"] = f"{time.process_time() - start:.0f} s of a core"
    publish_counts("Answers about simulated densities with known memory", setting, markdown(results), options.out)
