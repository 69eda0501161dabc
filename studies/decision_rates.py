"""How often does each audit decide wrongly, on subjects whose truth is known?

    python -m studies decision_rates [AUDIT ...] [--first 800000] [--seeds 20] [--store FOLDER]
    python -m studies decision_rates --page    # renders docs/decision_rates.md from the counts alone

A subject is either innocent or holds a stated amount of the audited data, and all subjects answer honestly. Each audit
is one complete decision by the audit's rules about models trained by the quickstart or a smaller configuration, or
about simulated scores. The counts are written to `tasks/contract/decision_rates.csv`, from which docs and certificates
are rendered. With `--store`, trained models are kept and reused.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from measurement.report import make_parser
from orchestrator.runs.lifecycle import start
from orchestrator.runs.report import Report
from orchestrator.spec.audits import find
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import open_store
from studies import deja_vu_evasion, density_error_rates, relational_evasion, text_secret_detection
from studies.interface import describe_command
from tasks.audits.membership import answer as membership_answer
from tasks.audits.membership.config import About, Halves, Membership
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import Matching, attacks
from tasks.audits.membership.measures.records import ExactTest, records
from tasks.contract.decision_rates import COUNTS, DecisionRate, count_of, format_share, read_rates, write_rates
from tasks.numerics.statistics import exact_interval
from tests.tasks.audits.membership.made_up import make_answers

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "decision_rates.md"
BEGIN = "<!-- decision rates: begin -->"
END = "<!-- decision rates: end -->"
INNOCENT = "innocent"
POWER = 0.8  # required fraction of audits that find a stated amount
Answers = Mapping[str, str]  # by subject


@dataclass(frozen=True)
class Study:
    """Repeated audits of one kind of subjects.

    `question` is the tag of the question under study, or empty if the audit has no questions.
    `judge(seed, store)` returns the answer about each subject. `subjects` maps names to descriptions: the innocent
    subject first, then holders by increasing amount.
    """

    audit: str
    question: str
    evidence: str
    subjects: Mapping[str, str]
    judge: Callable[[int, Path], Answers]


def run_audit(audit: str, preset: str, settings: Mapping[str, str], seed: int, store: Path) -> Report:
    """Run this preset to completion in this process."""
    spec = Spec(audit, preset, {**settings, "seed": str(seed)})
    cells = pin_cells(resolve_cells(spec), {})
    return start(cells, open_store(store / audit), Execution(address="none", mlflow="off", report=False))


def run_answer(audit: str, preset: str, settings: Mapping[str, str], seed: int, store: Path) -> str:
    verdict = run_audit(audit, preset, settings, seed, store).verdict
    if verdict is None:
        raise RuntimeError(f"{audit} {preset} with seed {seed} gave no answer")
    return verdict.answer


def judge_runs(audit: str, presets: Mapping[str, tuple[str, Mapping[str, str]]], seed: int, store: Path) -> Answers:
    """Return the answers of runs with one preset and settings per subject."""
    result = {}
    for subject, (preset, settings) in presets.items():
        result[subject] = run_answer(audit, preset, settings, seed, store)
    return result


def judge_targets(targets: Mapping[str, str], seed: int, store: Path) -> Answers:
    """Return the decisions about the targets in forgetting's quickstart by subject."""
    report = run_audit("forgetting", "quickstart", {}, seed, store)
    decisions = {}
    for row in report.table("decisions").to_pylist():
        decisions[row["name"]] = row["decision"]
    return {subject: decisions[name] for subject, name in targets.items()}


MODELS = 16
RECORDS = 400
NATS = 3.0
EXPOSED = (1, 2, 4, 20)


def judge_simulated_records(seed: int, _store: Path) -> Answers:
    """Return the answers about simulated log-odds of the quickstart's size, with exposed records."""
    question = Halves(models=MODELS, examples=RECORDS, negligible=0.03)
    answers = {}
    for exposed in (0, *EXPOSED):
        tables = make_answers(MODELS, RECORDS, NATS if exposed else 0.0, seed, exposed)
        measured = [records(ExactTest(question.level, question.draws, seed), tables), attacks(Matching(seed), tables)]
        verdict = membership_answer.verdict(Membership(question), summary(About(question.level), measured))
        answers[str(exposed) if exposed else INNOCENT] = verdict.answer
    return answers


DENSITY = density_error_rates.Case("", 500, 6, 5, 0.3, 1)


def judge_simulated_densities(seed: int, _store: Path) -> Answers:
    """Return the answers about simulated log densities, with at most one memorised observation."""
    cases = {INNOCENT: DENSITY, "1": replace(DENSITY, planted=1)}
    answers = {}
    for subject, case in cases.items():
        (answers[subject],) = density_error_rates.counted(case, seed).answers
    return answers


def judge_language_models(seed: int, store: Path) -> Answers:
    """Return the answers about pairs of small GPTs, trained on the drawn secrets or on others of the same format."""
    config = text_secret_detection.size(tiny=False, seed=seed)
    folder = store / "text"
    folder.mkdir(parents=True, exist_ok=True)
    answers = {}
    for subject, is_null in ((INNOCENT, True), ("told", False)):
        pair = text_secret_detection.train_pair(text_secret_detection.with_question(config, is_null=is_null), folder)
        answers[subject], *_ = text_secret_detection.audit_pair(pair)
    return answers


REMEMBERED = (0.1, 0.12, 0.15, 0.3, 0.6)


def judge_readers(seed: int, _store: Path) -> Answers:
    """Return the answers about simulated owners who remember a fraction of the training questions."""
    size = relational_evasion.size(tiny=False, seed=seed, readers=0)
    answers = {}
    for share in (relational_evasion.GUESSED, *REMEMBERED):
        chance = random.Random(f"{seed} {share}")
        answers_of_owner = relational_evasion.drawn_answers(size.config, share, "nothing changed", chance)
        if share == relational_evasion.GUESSED:
            subject = INNOCENT
        else:
            subject = f"{share:g}"
        answers[subject] = relational_evasion.judge(size.config, answers_of_owner).answer
    return answers


def judge_encoders(seed: int, _store: Path) -> Answers:
    """Return the answers about simulated encoders.

    They remember the objects in all of their training images, or in none.
    """
    config = deja_vu_evasion.size(tiny=False, seed=seed).config
    encoders = {}
    for subject, memory in ((INNOCENT, False), ("all", True)):
        encoders[subject] = deja_vu_evasion.judge(config, memory, "nothing changed", seed)[1]
    return encoders


ELSEWHERE = '{"kind": "random", "seed": 1, "top": 22, "left": 22}'
SMALL_NETWORKS = {
    "drawn": "true", "family.count": "100", "examples": "300", "probes": "20", "width": "0.25", "patience": "0",
    "learning_rate": "3e-3", "batch": "300", "epochs": "12",
}  # fmt: skip

STUDIES = (
    Study(
        "membership",
        "halves",
        "trained: quickstart and null",
        {
            INNOCENT: "400 records that no model was trained on",
            "all": "400 records, half of them in the training data of each model",
        },
        partial(judge_runs, "membership", {INNOCENT: ("null", {}), "all": ("quickstart", {})}),
    ),
    Study(
        "membership",
        "halves",
        f"simulated: {MODELS} models, {RECORDS} records",
        {INNOCENT: "no record has an effect"}
        | {str(count): f"{count} of {RECORDS} records remembered by {NATS:g} nats" for count in EXPOSED},
        judge_simulated_records,
    ),
    Study(
        "unique_feature",
        "pairs",
        "trained: quickstart with 300 images, small networks, 12 epochs",
        {INNOCENT: "models that saw another feature", "canary": "models that saw the feature"},
        partial(
            judge_runs,
            "unique_feature",
            {
                INNOCENT: ("quickstart", SMALL_NETWORKS | {"burnt": ELSEWHERE}),
                "canary": ("quickstart", SMALL_NETWORKS),
            },
        ),
    ),
    Study(
        "forgetting",
        "scores",
        "trained: quickstart",
        {
            INNOCENT: "models trained without these data",
            "0.1": "models trained on 10 % of these data",
            "0.5": "models trained on 50 % of these data",
            "1": "models trained on these data",
        },
        partial(
            judge_targets,
            {INNOCENT: "D_C", "0.1": "D_C + 0.1 D_Q", "0.5": "D_C + 0.5 D_Q", "1": "D_C + D_Q"},
        ),
    ),
    Study(
        "density",
        "memorization",
        "simulated: 500 observations, 6 partitions into 5 folds, SD 0.3 nats between models",
        {
            INNOCENT: "no image memorised",
            "1": f"one of 500 images memorised by {density_error_rates.NATS:g} nats",
        },
        judge_simulated_densities,
    ),
    Study(
        "text",
        "secrets",
        "trained: pairs of small GPTs, 12 secrets",
        {INNOCENT: "models trained on other secrets", "told": "models trained on the secrets"},
        judge_language_models,
    ),
    Study(
        "relational",
        "answers",
        "simulated: third-party answers to 1,200 questions",
        {INNOCENT: "a model that remembers nothing and guesses 8 %"}
        | {f"{share:g}": f"a model that remembers {100 * share:g} % of the training answers" for share in REMEMBERED},
        judge_readers,
    ),
    Study(
        "deja_vu",
        "",
        "simulated: embeddings of a third-party encoder, 150 images",
        {
            INNOCENT: "an encoder that remembers no image",
            "all": "an encoder that remembers the object of every training image",
        },
        judge_encoders,
    ),
)


def measure(study: Study, seeds: Sequence[int], store: Path) -> Iterator[DecisionRate]:
    """Yield the counts of one study, one row per subject."""
    answers: dict[str, Counter[str]] = {subject: Counter() for subject in study.subjects}
    for seed in seeds:
        for subject, answer in study.judge(seed, store).items():
            answers[subject][kind_of_answer(study.audit, answer)] += 1
        print(study.audit, seed, {subject: dict(counts) for subject, counts in answers.items()}, flush=True)
    for subject, description in study.subjects.items():
        counts = {kind: answers[subject][kind] for kind in COUNTS}
        yield DecisionRate(
            audit=study.audit,
            question=study.question,
            evidence=study.evidence,
            is_innocent=subject == INNOCENT,
            subject=description,
            seeds=f"{seeds[0]} to {seeds[-1]}",
            date=datetime.now(UTC).date().isoformat(),
            **counts,
        )


def kind_of_answer(audit: str, answer: str) -> str:
    """Return the column in which this answer is counted."""
    if answer == "not assessable":
        return "not_assessable"
    tone = find(audit).audit.wording.answers[answer].tone
    return "undecided" if tone == "open" else tone


def render_page(rates: Sequence[DecisionRate]) -> str:
    """Render the page on all audits: error rates, and the smallest amount that audits find."""
    lines = [
        "# How often an answer is wrong",
        "",
        "We ran each audit on subjects for which we know the truth: innocent subjects, and subjects that hold a stated",
        "amount of the data. All subjects answer honestly. To measure these rates again, run",
        "`python -m studies decision_rates`, which uses seeds that we did not use to tune any rule. Certificates about",
        "the same question quote the same counts. The brackets are exact 95 % intervals (Clopper-Pearson) in percent.",
        "",
        "| audit | question | evidence | subject | audits | accused | cleared | undecided | not assessable |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rate in rates:
        counts = [rate.accused, rate.cleared, rate.undecided, rate.not_assessable]
        cells = " | ".join(format_cell(count, rate.audits) for count in counts)
        kind = "innocent" if rate.is_innocent else "holder"
        page = f"[{rate.audit}]({rate.audit}.md)"
        subject = f"{kind}: {rate.subject}"
        lines.append(f"| {page} | {rate.question} | {rate.evidence} | {subject} | {rate.audits} | {cells} |")
    lines += [
        "",
        "- A false accusation is an innocent subject that is *accused*.",
        "- A false clearance is a holder that is *cleared*.",
        "- The power is the share of holders that are *accused*.",
        "",
        f"## The smallest amount that is found in {100 * POWER:.0f} % of audits",
        "",
        "At least this share of audits finds the following amounts and every larger amount in the table:",
        "",
    ]
    lines += [f"- {audit}: {sentence}" for audit in audits_of(rates) for sentence in describe_smallest(rates, audit)]
    lines += ["", "## Seeds and dates", "", "| audit | evidence | seeds | date |", "|---|---|---|---|"]
    sources = dict.fromkeys((rate.audit, rate.evidence, rate.seeds, rate.date) for rate in rates)
    lines += [f"| {' | '.join(source)} |" for source in sources]
    return "\n".join(lines) + "\n"


def format_cell(count: int, audits: int) -> str:
    low, high = exact_interval(count, audits)
    return f"{count} {format_share(low, high)}"


def audits_of(rates: Sequence[DecisionRate]) -> list[str]:
    return list(dict.fromkeys(rate.audit for rate in rates))


def describe_smallest(rates: Sequence[DecisionRate], audit: str) -> Iterator[str]:
    """Yield a sentence per study of an audit, with the smallest amount that enough audits find."""
    for evidence in dict.fromkeys(rate.evidence for rate in rates if rate.audit == audit):
        holders = [rate for rate in rates if (rate.audit, rate.evidence) == (audit, evidence) and not rate.is_innocent]
        smallest = None
        for rate in reversed(holders):
            if rate.accused < POWER * rate.audits:
                break
            smallest = rate
        if smallest is None:
            result = "none of the amounts tried"
        else:
            result = f"{smallest.subject}, {format_found(smallest)}"
        yield f"{result} ({evidence})."


def format_found(rate: DecisionRate) -> str:
    return f"found in {count_of(rate.accused, rate.audits)}"


def render_section(rates: Sequence[DecisionRate], audit: str) -> str:
    """Render the section on measured rates for an audit's documentation page."""
    lines = [
        f"This is the smallest amount that at least {100 * POWER:.0f} % of fresh audits found. For all counts, see",
        "[how often an answer is wrong](decision_rates.md).",
        "",
    ]
    lines += [f"- {sentence}" for sentence in describe_smallest(rates, audit)]
    return "\n".join(lines)


def update_section(page: str, rates: Sequence[DecisionRate], audit: str) -> str:
    """Replace the section on an audit's page. Raises ValueError if the page lacks the markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/{audit}.md: the markers {BEGIN!r} and {END!r} are missing")
    return f"{before}{begin}\n{render_section(rates, audit)}\n{end}{after}"


def write_pages(rates: Sequence[DecisionRate]) -> None:
    PAGE.write_text(render_page(rates), encoding="utf-8")
    for audit in audits_of(rates):
        path = page_of(audit)
        path.write_text(update_section(path.read_text(encoding="utf-8"), rates, audit), encoding="utf-8")


def page_of(audit: str) -> Path:
    return PAGE.with_name(f"{audit}.md")


def main(arguments: Sequence[str]) -> None:
    parser = make_parser(__doc__, describe_command(__name__))
    parser.add_argument("audits", nargs="*", metavar="AUDIT", help="measure these; all by default")
    parser.add_argument("--first", type=int, default=800_000, help="the first seed; the others follow it")
    parser.add_argument("--seeds", type=int, default=20, help="audits of each subject")
    parser.add_argument("--store", type=Path, help="keep trainings here, and reuse them")
    parser.add_argument("--page", action="store_true", help="render the page without measuring")
    options = parser.parse_args(arguments)
    known_audits = audits_of(STUDIES)
    unknown = sorted(set(options.audits) - set(known_audits))
    if unknown:
        parser.error(f"unknown audit: {', '.join(unknown)}. Known are {', '.join(known_audits)}")
    rates = read_rates()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or Path(folder)
        chosen_studies = [study for study in STUDIES if not options.audits or study.audit in options.audits]
        for study in [] if options.page else chosen_studies:
            seeds = range(options.first, options.first + (2 if options.tiny else options.seeds))
            measured = list(measure(study, seeds, store))
            rates = replace_study(rates, measured)
            if not options.tiny:
                write_rates(rates)
    if options.tiny:
        print(render_page(rates))
    else:
        write_pages(rates)


def replace_study(rates: Sequence[DecisionRate], measured: Sequence[DecisionRate]) -> list[DecisionRate]:
    """Replace one study's rows. Returns all rows in the order of STUDIES."""
    study = measured[0].audit, measured[0].evidence
    other_rates = [rate for rate in rates if (rate.audit, rate.evidence) != study]
    order = [(item.audit, item.evidence) for item in STUDIES]
    ordered_rates = [rate for rate in [*other_rates, *measured] if (rate.audit, rate.evidence) in order]
    return sorted(ordered_rates, key=lambda rate: order.index((rate.audit, rate.evidence)))
