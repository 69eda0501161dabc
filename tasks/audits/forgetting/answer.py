"""The audit's answer: the evidence in its summary, decided target by target by the rules of `decision`, in words.

It rests on what a target says of D_Q beside what it says of the control set; where there are several targets, on all of
them together, and first on those that decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.forgetting.audited import named_targets
from tasks.audits.forgetting.config import Examples, Forgetting
from tasks.audits.forgetting.decision import (
    LEVEL,
    RULES,
    Decision,
    RecognitionTrial,
    TargetEvidence,
    decide,
    format_percent,
)
from tasks.audits.forgetting.held_share import UNKNOWN, LikenessCheck
from tasks.audits.forgetting.measures.decisions import CHECKS, HELD, LESS, REPEATED, SURER, control_metric
from tasks.audits.forgetting.measures.fits import ADEQUATE
from tasks.audits.forgetting.measures.query_confidences import HANDED_OUT
from tasks.audits.forgetting.measures.recognition import PASSED
from tasks.audits.forgetting.query_set import GUESSABLE
from tasks.contract.objectives import Objective
from tasks.contract.rules import Rule
from tasks.contract.summaries import (
    Estimate,
    Row,
    Rows,
    index_rows,
    numerator,
    p_in_words,
    read_setting,
    select_rows,
)
from tasks.contract.ties import TIED
from tasks.contract.verdict import ANSWERS, Answer, Meaning, Verdict
from tasks.worker.files import shorten_names

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("forgotten", "not forgotten", "undecided")},
    "not judged": Meaning("what the model says of images that nobody was given forbids any conclusion", "open"),
}
ORDER: tuple[Answer, ...] = ("not forgotten", "not judged", "undecided", "forgotten")  # the first decides for all
MAX_LISTED = 12  # targets that are told one by one


@dataclass(frozen=True)
class JudgedTarget:
    """A target with its decision.

    `name` is that of its number, `file` how a given one is called, by its file as short as tells it apart; None of one
    that was trained here. `share` is the summary row of the share that it holds, `setting` that of all its rows, and
    `has_test` whether they have the test's. `triples` is the row of what the published rule says; None without one.
    """

    name: str
    file: str | None
    setting: str
    share: Row
    decision: Decision
    has_test: bool
    triples: Row | None

    @property
    def answer(self) -> Answer:
        return self.decision.answer

    @property
    def evidence(self) -> TargetEvidence:
        return self.decision.evidence

    @property
    def least(self) -> float:
        """The lower limit of the share that it holds."""
        return self.share["low"] or 0.0

    @property
    def quoted(self) -> str:
        """The target as a sentence names it."""
        return self.name if self.file is None else f"'{self.file}'"

    @property
    def row_names(self) -> list[tuple[str, str]]:
        """The (metric, setting) of its rows that the answer rests on, of an accusation the test's first."""
        names = [(HELD, self.setting), *([(SURER, self.setting)] if self.has_test else [])]
        return names[::-1] if self.answer == "not forgotten" else names


@dataclass(frozen=True)
class Evidence:
    """What a summary says of all targets.

    `powers` are the summary rows of the test's power by share, in rising order. `right` and `wrong` are the numbers of
    targets of a known training that are decided rightly and wrongly; None where none is known. `fit` is the lowest
    accuracy of a training on its own images, `keys` begin the SHA-256 of the keys that owners were promised.
    """

    targets: tuple[JudgedTarget, ...]
    powers: tuple[tuple[float, Row], ...]
    known: int
    right: int | None
    wrong: int | None
    fit: float | None
    keys: tuple[str, ...]

    @property
    def by_weight(self) -> list[JudgedTarget]:
        """The targets, those first whose answer decides for all."""
        return sorted(self.targets, key=lambda target: ORDER.index(target.answer))

    @property
    def answer(self) -> Answer:
        return self.by_weight[0].answer


def read_evidence(config: Forgetting, rows: Rows) -> Evidence:
    """The evidence in the rows of a summary."""
    targets = () if config.audited is None else named_targets(config.audited)
    given = [target.name for target in targets if target.source != "training"]
    files = dict(zip(given, shorten_names(given), strict=True))
    trial = next((read_trial_row(row) for row in select_rows(rows, PASSED)), None)
    trials = {target.name: trial for target in targets if target.source == "outputs"}
    powers = [(read_setting(row)["share"], row) for row in select_rows(rows, "power")]
    right, wrong, fit = (
        rows.get((metric, "{}"))
        for metric in ("targets decided rightly", "targets decided wrongly", "lowest train accuracy")
    )
    return Evidence(
        targets=tuple(read_target(config, rows, share, files, trials) for share in select_rows(rows, HELD)),
        powers=tuple(sorted(powers, key=lambda power: power[0])),
        known=0 if right is None else right["n"],
        right=None if right is None else numerator(right),
        wrong=None if wrong is None else numerator(wrong),
        fit=None if fit is None else fit["estimate"],
        keys=tuple(read_setting(row)["key"] for row in select_rows(rows, HANDED_OUT)),
    )


def read_trial_row(passed: Row) -> RecognitionTrial:
    return RecognitionTrial(read_setting(passed)["share"], numerator(passed), passed["n"])


def read_target(
    config: Forgetting,
    rows: Rows,
    share: Row,
    files: Mapping[str, str],
    trials: Mapping[str, RecognitionTrial | None],
) -> JudgedTarget:
    """The target that holds this share, decided by the rule that its table of decisions follows."""
    name, setting = str(read_setting(share)["target"]), share["setting"]
    return JudgedTarget(
        name=name,
        file=files.get(name),
        setting=setting,
        share=share,
        decision=decide(config, read_target_evidence(rows, setting, config.negligible, trials.get(name))),
        has_test=(SURER, setting) in rows,
        triples=rows.get(("published rule says forgotten", setting)),
    )


def read_target_evidence(
    rows: Rows, setting: str, negligible: float, trial: RecognitionTrial | None = None
) -> TargetEvidence:
    """What the rows of this setting say of their target, as it was when it was decided on."""
    share = rows[HELD, setting]
    held = None if share["estimate"] is None else Estimate(share["estimate"], share["low"], share["high"], share["n"])
    p, other = (rows[metric, setting]["p_value"] if (metric, setting) in rows else None for metric in (SURER, LESS))
    checks = (rows.get((control_metric(check), setting)) for check in CHECKS)
    accuracy, agreement = (
        UNKNOWN if row is None else LikenessCheck(row["estimate"], row["null"], row["p_value"]) for row in checks
    )
    repeated = rows.get((REPEATED, setting))
    differing, repeats = (0, 0) if repeated is None else (numerator(repeated), repeated["n"])
    tied = rows.get((TIED, setting))
    return TargetEvidence(share["n"], p, held, accuracy, agreement, negligible, differing, repeats, other, trial, tied)


def largest_share(_config: Forgetting, summary: pa.Table) -> Row | None:
    """The row of the largest share that any target holds; None where no share is known."""
    shares = [row for row in summary.to_pylist() if row["metric"] == HELD and row["estimate"] is not None]
    return max(shares, key=lambda row: float(row["estimate"]), default=None)


EFFECT = Objective("largest share of D_Q held by a target", "share", "lower", largest_share)

GIVEN_CONTROL = (
    "The control images were named (query.control) and not held back by the audit's draw: the accusation holds if D_Q "
    "and the control set were drawn from one pool at random before anything was given. Where they differ in any other "
    "way, such as when or by whom they were taken, models that never saw D_Q can be accused."
)
LIMITS = (
    "The audit speaks of the data set as a whole: a share below the limit that is told may be held. It takes for "
    "granted that the control images come from the same source as the data set and were never given to anybody, and "
    "that the answers are those of the model in use; the share, unlike the accusation, that the model was trained like "
    "those it is compared with."
)
# Measured with 1,500 draws in each of several worlds of MNIST: docs/forgetting.md, "How often it is right".
SHARED_DRAW = (
    "Accused targets do not confirm one another: all of a run share one draw of who is control. Where a draw accused "
    "one model that never saw D_Q, it accused a second one with a chance of .55 (models of other data of the domain), "
    ".67 (of other digits) or .07 (of D_C)."
)


# Measured in docs/forgetting.md, "What binds a table to the deployed model".
TABLES = (
    "A table of outputs is what its owner wrote down. Who mixes a model's answers with those of a clean one is called "
    "forgotten where the mixture shows less of the data set than what is negligible: no test of a table finds that."
)
UNBOUND_TABLES = "Nothing binds the tables to the model in use."
BOUND_TABLES = "What binds the tables to the model in use was given by who ran the audit: {by}."


def describe_binding(config: Forgetting) -> Iterator[str]:
    """What a table of outputs cannot show, and what binds it to a model; nothing where no tables are judged."""
    given = config.given
    if given is not None and given.outputs and config.query.is_controlled:
        yield TABLES
        yield BOUND_TABLES.format(by=given.bound_by) if given.bound_by else UNBOUND_TABLES


def verdict(config: Forgetting, summary: pa.Table) -> Verdict:
    """The answer on all targets, each decided by RULES: the first of ORDER that any of them has."""
    rows = index_rows(summary)
    evidence = read_evidence(config, rows)
    if not evidence.targets:
        shows_images = isinstance(config.question, Examples)
        why = "this run shows images only" if shows_images else "nothing has been decided"
        return Verdict("undecided", f"Undecided: {why}.", LIMITS, tuple(rows)[:1])
    deciding = {target.decision.rule for target in evidence.targets}
    sentences = [
        f"{describe_targets(evidence)}.",
        explain_errors(config, deciding),
        *describe_correctness(evidence),
        *describe_power(evidence),
        *remarks(config, evidence),
    ]
    keys = [
        f"The key of the pictures that were handed out has a SHA-256 that begins with {key}." for key in evidence.keys
    ]
    accused = [target for target in evidence.targets if target.answer == "not forgotten"]
    is_accused_by_given = config.query.named_control is not None and evidence.answer == "not forgotten"
    return Verdict(
        evidence.answer,
        " ".join(filter(None, sentences)),
        " ".join(
            [
                *([GIVEN_CONTROL] if is_accused_by_given else []),
                *([SHARED_DRAW] if len(accused) > 1 else []),
                *([config.query.describe_draw()] if config.is_between_parties else []),
                *describe_binding(config),
                LIMITS,
                *keys,
            ]
        ),
        tuple(name for target in evidence.by_weight for name in target.row_names),
        describe_published_rule(evidence),
    )


def explain_errors(config: Forgetting, rules: Iterable[Rule[TargetEvidence]]) -> str:
    """How often these rules are wrong, in their order."""
    numbers = RULES.numbers(config)
    return " ".join(rule.error.format_map(numbers) for rule in RULES.cases if rule in rules and rule.error)


def describe_targets(evidence: Evidence) -> str:
    """The answer with what it rests on: of several targets their counts, and the first one by one."""
    answer, answers = evidence.answer.capitalize(), [target.answer for target in evidence.targets]
    if len(answers) == 1:
        return f"{answer}: {describe_target(evidence.targets[0])}"
    counts = ", ".join(f"{answers.count(kind)} {kind}" for kind in sorted(set(answers)))
    listed = "; ".join(
        f"{target.quoted} is {target.answer}: {describe_target(target)}" for target in evidence.targets[:MAX_LISTED]
    )
    return f"{answer}: of {len(answers)} targets, {counts}. {listed}"


def describe_target(target: JudgedTarget) -> str:
    """What the answer on a target rests on, in words."""
    p, models = target.evidence.p, target.evidence.models
    if p is None:
        return target.decision.explanation
    tested = f"{p_in_words(p)}, {models} model{'s' if models > 1 else ''}"
    if target.answer == "not forgotten":
        held = f", as models do that hold at least {format_percent(target.least)} of it" if target.least > 0 else ""
        return f"it knows D_Q better than images of the same source that nobody was given ({tested}){held}"
    found = f"it knows D_Q no better than images of the same source that nobody was given ({tested})"
    if target.answer == "forgotten":
        return f"{found}, and holds at most {format_percent(target.share['high'])} of it (95 % limit)"
    return f"{found}, but {target.decision.explanation}"


def describe_correctness(evidence: Evidence) -> Iterator[str]:
    """How many of the targets whose training is known are decided as they were trained."""
    if evidence.right is not None and len(evidence.targets) > 1:
        yield (
            f"By what they were trained on, {evidence.right} of {evidence.known} are decided rightly and "
            f"{evidence.wrong} wrongly."
        )


def describe_power(evidence: Evidence) -> Iterator[str]:
    """Which shares would have been found, by models of known shares."""
    counts = [
        f"{format_percent(share)} in {numerator(power)} of {power['n']}"
        for share, power in evidence.powers
        if share > 0
    ]
    if counts:
        yield (
            f"Of single models trained on D_C and a known share of D_Q, each tested alone at {LEVEL:g}, the test finds "
            f"{', '.join(counts)}."
        )


def remarks(config: Forgetting, evidence: Evidence) -> Iterator[str]:
    """What a reader must know beside the answer."""
    if evidence.fit is not None and evidence.fit < ADEQUATE:
        yield (
            f"Warning: a training gets only {100 * evidence.fit:.3g} % of its own images right; below "
            f"{100 * ADEQUATE:g} % what models say is no good likeness of their data: train longer."
        )
    if not config.query.is_controlled:
        yield (
            "Without a control set this run repeats the published score and judges nobody: hold images back "
            "(query.held_back=0.5) or give some of the same source (query.control.data=...)."
        )
    if config.given is not None and config.query.is_guessable:
        yield GUESSABLE  # its owner could have found out which of the pictures that it answered for are D_Q


def describe_published_rule(evidence: Evidence) -> str:
    """What the published score and its rule say, a triple of models at a time; empty where none was judged."""
    triples = [
        f"{target.quoted} {numerator(target.triples)} of {target.triples['n']}"
        for target in evidence.targets
        if target.triples is not None and target.triples["n"] > 1
    ]
    if not triples:
        return ""
    return (
        "The published rule, two-sided rho >= 1 of one query, one calibration and one target model, calls forgotten so "
        f"many of these triples: {', '.join(triples[:MAX_LISTED])}."
    )
