"""How often does `membership` find exposed records, and accuse simulated models without any?

    python -m studies membership_error_rates [--tiny] [--seed 7000] [--part answers|attacks|given|clear] [--out FILE]

Log-odds are simulated (`tests/tasks/audits/membership/made_up.py`): records differ in difficulty and in how much models
disagree on them, and an exposed record gains a stated number of nats under models trained on it. Answers follow the
audit's rule. A given model was trained in the same way or differently, or its owner changed the outputs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.membership.answer import verdict
from tasks.audits.membership.attacks import ATTACKS
from tasks.audits.membership.config import About, Halves, Membership
from tasks.audits.membership.given_config import AskedFile, FirstImages, GivenModel, ReturnedTable
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import AUC, Matching, attacks, mean_over_targets
from tasks.audits.membership.measures.given import Ranking, kinship, ranks
from tasks.audits.membership.measures.records import ExactTest, records
from tasks.audits.membership.target_scores import score_targets, targets_of
from tasks.audits.membership.trainings import stack_answers
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, row
from tasks.external.model_file import ModelFile
from tasks.numerics import statistics
from tasks.numerics.ranks import area_under_curve
from tasks.worker.files import File
from tests.tasks.audits.membership.made_up import make_answers, make_given

Floats = NDArray[np.float64]
ANSWERS = ("memorised", "not detected", "undecided")
GIVEN_ANSWERS = (*ANSWERS, "not assessable")
LEVELS = (0.05, 0.01, 0.001)


@dataclass(frozen=True)
class Case:
    """Runs with models and records, where `exposed` records have an effect (in nats)."""

    models: int
    records: int
    exposed: int
    effect: float
    runs: int


CASES = (
    Case(16, 2000, 0, 0.0, 50),
    Case(32, 2000, 0, 0.0, 50),
    Case(16, 2000, 20, 3.0, 20),
    Case(16, 2000, 20, 5.0, 20),
    Case(16, 2000, 200, 3.0, 20),
    Case(32, 2000, 20, 3.0, 20),
    Case(32, 2000, 2000, 0.5, 20),
)
NULLS = (Case(16, 2000, 0, 0.0, 50), Case(16, 400, 0, 0.0, 200), Case(32, 400, 0, 0.0, 50))

# Score changes in the cases in which no attack finds an effect.
SCORES: Mapping[str, Callable[[Floats], Floats]] = {
    "unchanged": lambda phi: phi,
    "rounded to 1 nat": np.round,
    "constant": np.zeros_like,
}
CLEAR = (
    (Case(16, 10_000, 15, 8.0, 20), "unchanged"),
    (Case(16, 20_000, 30, 8.0, 20), "unchanged"),
    (Case(32, 20_000, 3, 8.0, 20), "unchanged"),
    (Case(32, 20_000, 0, 0.0, 20), "unchanged"),
    (Case(16, 2000, 1, 8.0, 20), "unchanged"),
    (Case(16, 2000, 3, 8.0, 20), "unchanged"),
    (Case(18, 2000, 0, 0.0, 40), "unchanged"),
    (Case(18, 2000, 1, 8.0, 40), "unchanged"),
    (Case(18, 2000, 20, 0.1, 40), "unchanged"),
    (Case(18, 2000, 1, 8.0, 20), "rounded to 1 nat"),
    (Case(18, 2000, 0, 0.0, 20), "rounded to 1 nat"),
    (Case(18, 2000, 1, 8.0, 20), "constant"),
)
CLEAR_ANSWERS = (*ANSWERS, "below the relevant size", "not assessable")
TINY = (Case(8, 100, 0, 0.0, 3), Case(8, 100, 50, 6.0, 2))


@dataclass(frozen=True)
class GivenCase:
    """A given model that remembers a fraction of the records with an effect in nats, and changes to its log-odds."""

    name: str
    knows: float = 0.0
    effect: float = 3.0
    settings: dict[str, Any] = field(default_factory=dict)
    is_file: bool = True


NOISED = {"change": lambda phi, stream: phi + stream.normal(size=phi.shape), "repeats": 80}
GIVEN = (
    GivenCase("innocent"),
    GivenCase("innocent, trained on other records", settings={"apart": 0.8}),
    GivenCase("innocent, 1.3 times as sure", settings={"change": lambda phi, _: 1.3 * phi}),
    GivenCase("innocent, surer by 0.5 nats", settings={"change": lambda phi, _: phi + 0.5}),
    GivenCase("innocent, labels alone", settings={"kind": "label"}, is_file=False),
    GivenCase("trained on half, 3 nats", 0.5),
    GivenCase("trained on half, 0.3 nats", 0.5, 0.3),
    GivenCase("trained on 5 %, 3 nats", 0.05),
    GivenCase("trained on half, log-odds halved", 0.5, settings={"change": lambda phi, _: phi / 2}, is_file=False),
    GivenCase("trained on half, noise of 1 nat", 0.5, settings=NOISED, is_file=False),
    GivenCase("trained on half, two decimals", 0.5, settings={"kind": "confidence", "resolution": 0.01}, is_file=False),
    GivenCase("trained on half, labels alone", 0.5, settings={"kind": "label"}, is_file=False),
)
GIVEN_MODELS = 32
GIVEN_RECORDS = 400
GIVEN_RUNS = 50


def count_given_answers(case: GivenCase, models: int, records: int, runs: int, first: int) -> Counter[str]:
    """Count the answers about given models. Each has separate reference models."""
    if case.is_file:
        source = AskedFile(ModelFile("model.pt"))
    else:
        source = ReturnedTable(File("outputs.csv"))
    config = Membership(GivenModel(source, FirstImages(examples=records), models))
    ranking = Ranking(0.05, records)
    answers: Counter[str] = Counter()
    for run in range(runs):
        tables = make_given(models, records, case.effect, first + run, knows=case.knows, **case.settings)
        rows = summary(About(0.05), [ranks(ranking, tables), kinship(ranking, tables)])
        answers[verdict(config, rows).answer] += 1
    return answers


@dataclass
class Counts:
    """Results over the runs of a case. Record counts are totals over runs."""

    case: Case
    answers: Counter[str]
    small: dict[float, int]  # unexposed records with p at most equal to each level
    unexposed: int
    found_exposed: int
    found_unexposed: int


def count_answers(case: Case, first: int) -> Counts:
    question = Halves(models=case.models, examples=case.records, negligible=0.02)
    config = Membership(question)
    counts = Counts(case, Counter(), dict.fromkeys(LEVELS, 0), 0, 0, 0)
    for run in range(case.runs):
        tables = make_answers(case.models, case.records, case.effect, first + run, case.exposed)
        tested = records(ExactTest(question.level, question.draws, first + run), tables)
        attacked = attacks(Matching(first + run), tables)
        rows = summary(About(0.05), [tested, attacked])
        counts.answers[verdict(config, rows).answer] += 1
        exposed = np.arange(case.records) < case.exposed
        p_values = tested["p_value"].to_numpy(zero_copy_only=False)
        answers = tested["found"].to_numpy(zero_copy_only=False)
        for level in LEVELS:
            counts.small[level] += int((p_values[~exposed] <= level).sum())
        counts.unexposed += int((~exposed).sum())
        counts.found_exposed += int(answers[exposed].sum())
        counts.found_unexposed += int(answers[~exposed].sum())
    return counts


def markdown(counted: Sequence[Counts]) -> Iterator[str]:
    small = " | ".join(f"p <= {level:g}" for level in LEVELS)
    answers = ", ".join(ANSWERS)
    yield f"| models x records, exposed, runs | {answers} | {small} | exposed found | others found |"
    yield "|---" * (4 + len(LEVELS)) + "|"
    for counts in counted:
        case = counts.case
        if case.exposed:
            exposed = f"{case.exposed:,} by {case.effect:g} nats"
        else:
            exposed = "none"
        shares = " | | "
        if counts.unexposed:
            shares = " | ".join(_share(counts.small[level], counts.unexposed) for level in LEVELS)
        results = ""
        if case.exposed:
            results = _share(counts.found_exposed, case.exposed * case.runs)
        false = f"{counts.found_unexposed:,} of {counts.found_exposed + counts.found_unexposed:,} found"
        answers = ", ".join(str(counts.answers[answer]) for answer in ANSWERS)
        yield (
            f"| {case.models} x {case.records:,}, {exposed}, {case.runs} | {answers} | {shares} | {results} | {false} |"
        )
    yield ""
    yield "p-values are of records that are not exposed, with 95 % Wilson intervals."


@dataclass(eq=False)
class AttackCounts:
    """Results of one attack in the null runs of a case: areas under the curve, and the pairs won by each record."""

    covered: int  # runs whose interval for the area contains .5
    areas: list[float]  # means over targets, by run
    errors: list[float]  # standard errors of the areas if targets were independent
    won: list[Floats]  # fraction of pairs won by each record, by run


def count_attacks(case: Case, first: int) -> Mapping[str, AttackCounts]:
    """Count the results of every attack without memorisation."""
    counts = {attack: AttackCounts(0, [], [], []) for attack in ATTACKS}
    for run in range(case.runs):
        answers = stack_answers(make_answers(case.models, case.records, 0.0, first + run, 0))
        member = answers.member
        targets = targets_of(answers, first + run)
        all_records = slice(0, case.records)
        for attack, scores in score_targets(targets):
            areas = np.array(
                [
                    area_under_curve(own_attack[own_rows], own_attack[~own_rows])
                    for own_attack, own_rows in zip(scores, member, strict=True)
                ]
            )
            mean = mean_over_targets(areas)
            its = counts[attack]
            assert mean.value is not None and mean.low is not None and mean.high is not None  # noqa: PT018
            its.covered += mean.low <= 0.5 <= mean.high
            its.areas.append(mean.value)
            its.errors.append(float(areas.std(ddof=1)) / case.models**0.5)
            its.won.append(targets.pairs_won(all_records, scores).sum(axis=0) / (case.models // 2))
    return counts


def attack_markdown(case: Case, counted: Mapping[str, AttackCounts]) -> Iterator[str]:
    """Render one row per attack: its intervals, and the t interval over runs of each record's fraction of pairs won.

    The pairs of a record share models and are not independent, but runs are.
    """
    from scipy import stats

    single, all_records = (float(stats.t.isf(level / 2, case.runs - 1)) for level in (0.05, 0.05 / case.records))
    yield ""
    yield (
        f"| {case.models} x {case.records:,}, none exposed, {case.runs} runs: attack | "
        "interval of the area contains .5 | SD of the mean area over its error | "
        "SD of a record's share of pairs won over that of coins | "
        "records whose 95 % band contains .5 | records whose simultaneous band does | farthest share |"
    )
    yield "|---" * 7 + "|"
    for attack, its in counted.items():
        ratio = float(np.std(its.areas, ddof=1) / np.sqrt(np.mean(np.square(its.errors))))
        won = np.stack(its.won)
        mean = won.mean(axis=0)
        error = won.std(axis=0, ddof=1) / case.runs**0.5
        coins = float(np.sqrt(won.var(axis=0, ddof=1).mean() * 4 * (case.models // 2)))
        inside = " | ".join(
            _share(int((np.abs(mean - 0.5) <= reach * error).sum()), case.records) for reach in (single, all_records)
        )
        farthest = float(mean[np.abs(mean - 0.5).argmax()])
        covered = _share(its.covered, case.runs)
        yield f"| {attack} | {covered} | {ratio:.2f} | {coins:.2f} | {inside} | {farthest:.3f} |"


def given_markdown(counted: Sequence[tuple[GivenCase, Counter[str]]]) -> Iterator[str]:
    yield ""
    yield f"| given model | {' | '.join(GIVEN_ANSWERS)} |"
    yield "|---" * (1 + len(GIVEN_ANSWERS)) + "|"
    for case, answers in counted:
        yield f"| {case.name} | {' | '.join(str(answers[answer]) for answer in GIVEN_ANSWERS)} |"


def count_cleared(case: Case, scores: str, first: int) -> Counter[str]:
    """Count the answers if every attack's area under the curve is .5 with a very narrow interval."""
    question = Halves(models=case.models, examples=case.records, negligible=0.02)
    config = Membership(question)
    blind = row(AUC, {"attack": "blind"}, Estimate(0.5, 0.499, 0.501, case.models), "target", 0.5)
    answers: Counter[str] = Counter()
    for run in range(case.runs):
        tables = make_answers(case.models, case.records, case.effect, first + run, case.exposed)
        changed = []
        for table in tables:
            changed.append(table.set_column(2, "log_odds", pa.array(SCORES[scores](table["log_odds"].to_numpy()))))
        rows = summary(About(0.05), [records(ExactTest(question.level, question.draws, first + run), changed)])
        answers[verdict(config, pa.Table.from_pylist([*rows.to_pylist(), blind], SUMMARY)).answer] += 1
    return answers


def clear_markdown(counted: Sequence[tuple[Case, str, Counter[str]]]) -> Iterator[str]:
    yield ""
    yield f"| models x records, remembered, scores, runs | {' | '.join(CLEAR_ANSWERS)} | not detected, 95 % interval |"
    yield "|---" * (2 + len(CLEAR_ANSWERS)) + "|"
    for case, scores, answers in counted:
        if case.exposed:
            exposed = f"{case.exposed:,} by {case.effect:g} nats"
        else:
            exposed = "none"
        cells = " | ".join(str(answers[answer]) for answer in CLEAR_ANSWERS)
        cleared = statistics.exact_proportion(answers["not detected"], case.runs)
        interval = f"{100 * (cleared.low or 0):.0f} to {100 * (cleared.high or 0):.0f} %"
        yield f"| {case.models} x {case.records:,}, {exposed}, {scores}, {case.runs} | {cells} | {interval} |"
    yield ""
    yield "No attack finds an effect, the case in which the rule clears most."


def _share(count: int, total: int) -> str:
    estimate = statistics.proportion(count, total)
    return f"{100 * (estimate.value or 0):.3g} % [{100 * (estimate.low or 0):.3g}, {100 * (estimate.high or 0):.3g}]"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=7000, help="of the first run of each case")
    parser.add_argument(
        "--part", choices=("answers", "attacks", "given", "clear"), help="measure one table; default: all"
    )
    options = parser.parse_args(arguments)
    setting: dict[str, Any] = measurement_facts("simulated", torch.device("cpu"))
    start = time.process_time()
    page: list[str] = []
    if options.part in (None, "answers"):
        page += markdown([count_answers(case, options.seed) for case in (TINY if options.tiny else CASES)])
    if options.part in (None, "attacks"):
        for case in TINY[:1] if options.tiny else NULLS:
            page += attack_markdown(case, count_attacks(case, options.seed))
    if options.part in (None, "given"):
        if options.tiny:
            size = (20, 60, 2)
        else:
            size = (GIVEN_MODELS, GIVEN_RECORDS, GIVEN_RUNS)
        page += given_markdown([(case, count_given_answers(case, *size, options.seed)) for case in GIVEN])
    if options.part in (None, "clear"):
        if options.tiny:
            cells = [(TINY[0], "unchanged"), (TINY[1], "constant")]
        else:
            cells = CLEAR
        page += clear_markdown([(case, name, count_cleared(case, name, options.seed)) for case, name in cells])
    setting["seeds"] = f"from {options.seed} on"
    setting["cost"] = f"{time.process_time() - start:.0f} s of a core"
    publish_counts("Answers about models with known exposed records", setting, "\n".join(page), options.out)
