"""How an audit reaches a verdict: the evidence, the case that applies, and the verdict and certificate rendered from
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from tasks.contract.certificate import Certificate, Finding, NumberLine, steps_of_null
from tasks.contract.conditions import Condition, find_assumptions
from tasks.contract.rules import Case, Numbers, Rules, applies_always, give_no_reasons, undecided
from tasks.contract.summaries import Name, index_rows
from tasks.contract.verdict import COMMON_ANSWERS, NOT_ASSESSABLE, Answer, Verdict

NO_ERROR_RATE = (
    "This answer neither accuses nor clears a model, so it has no error rate. Page 2 states the rates of other answers."
)
E = TypeVar("E")
Applies = Callable[[Any], bool]  # takes a config


def _publish_nothing(_evidence: Any) -> str:
    return ""


def repeat_verdict(_config: Any, _evidence: Any) -> None:
    """Return no explanation, so that the certificate repeats the verdict's sentence."""


def _draw_no_line(_config: Any, _evidence: Any) -> None:
    return None


def _set_no_conditions(_config: Any, _evidence: Any) -> Iterable[Condition]:
    return ()


def _name_no_models(_config: Any) -> str:
    return ""


def _list_no_items(_evidence: Any) -> tuple[str, ...]:
    return ()


def _report_nothing_measured(_config: Any) -> str:
    return "there are no measurements yet."


def keep_one_finding(_config: Any, _evidence: Any, first: Finding) -> tuple[Finding, ...]:
    return (first,)


@dataclass(frozen=True)
class Null:
    """A control run, whose configuration rules out memorisation.

    `remark(config)` is the last sentence of the verdict and `notice` begins the certificate's finding; either may be
    empty. `proper` contains the settings of the actual audit ("is_null=false"), which the certificate recommends.
    """

    holds: Callable[[Any], bool]
    remark: Callable[[Any], str]
    proper: str
    notice: str = ""


@dataclass(frozen=True)
class Answering(Generic[E]):
    """How an audit answers one question: how it reads the evidence, the rules it applies, and the text it renders.

    asked(config, evidence): The question in plain words.
    read(config, summary): The evidence, or None if the summary contains none. In that case, unread(config) gives the
    reason as a sentence, and the certificate repeats the verdict with the next steps of the last case.
    limits(config, evidence): The conclusions that the answer does not support.
    conditions(config, evidence): What must be true for answers to hold. Only those that matter for the given answers
    are listed.

    The verdict, for experts:

    describe(config, evidence): The evidence as a sentence without its ending, which `Case.because` adds.
    items(evidence): The parts of this sentence about single models, if there are several.
    details, remarks: Further sentences.
    rows(evidence): Identifiers (metric, setting) of the summary rows that the answer is based on.
    published(evidence): The result of the test used in the paper.

    The certificate, for readers without a machine-learning background:

    explain(config, evidence): The finding in plain words. If it returns None, the verdict's sentence is repeated.
    line(config, evidence): The number of the finding.
    findings(config, evidence, first): All findings. `first` is the one built from `explain` and `line`.
    examined(config): The models that were examined: trained by the audit, or given.
    stated(config, evidence): The rule, the error rate of the answer and all other rates, if the certificate should
    leave out some applicable cases.

    A *not assessable* answer shows no number, and repeats the verdict unless its case explains it.

    An audit with several questions has one `Answering` per question; `applies(config)` selects it
    (`AnsweringByQuestion`).
    """

    asked: Callable[[Any, E | None], str]
    rules: Rules[E]
    read: Callable[[Any, pa.Table], E | None]
    limits: Callable[[Any, E | None], str]
    describe: Callable[[Any, E], str]
    rows: Callable[[E], tuple[Name, ...]]
    conditions: Callable[[Any, E | None], Iterable[Condition]] = _set_no_conditions
    unread: Callable[[Any], str] = _report_nothing_measured
    items: Callable[[E], tuple[str, ...]] = _list_no_items
    details: Callable[[Any, E], Iterable[str]] = give_no_reasons
    remarks: Callable[[Any, E], Iterable[str]] = give_no_reasons
    published: Callable[[E], str] = _publish_nothing
    explain: Callable[[Any, E], str | None] = repeat_verdict
    line: Callable[[Any, E], NumberLine | None] = _draw_no_line
    findings: Callable[[Any, E, Finding], tuple[Finding, ...]] = keep_one_finding
    stated: Callable[[Any, E | None], tuple[str, str, str]] | None = None
    examined: Callable[[Any], str] = _name_no_models
    null: Null | None = None
    scope: str = ""
    applies: Callable[[Any], bool] = applies_always

    def verdict(self, config: Any, summary: pa.Table) -> Verdict:
        """Return the answer for experts. It is *undecided* if there is no evidence."""
        evidence = self.read(config, summary)
        if evidence is None:
            first_row = tuple(index_rows(summary))[:1]
            verdict = Verdict("undecided", f"Undecided: {self.unread(config)}", self.limits(config, None), first_row)
        else:
            case = self.rules.decide(config, evidence)
            verdict = Verdict(
                answer=case.answer,
                sentence=" ".join(filter(None, self._sentences(config, case, evidence))),
                limits=self.limits(config, evidence),
                rows=(case.rows or self.rows)(evidence),
                published=self.published(evidence),
                items=() if case.describe else self.items(evidence),
            )
        answers = [finding.answer for finding in self._findings(config, evidence, verdict)]
        conditions = (*self.conditions(config, evidence), *find_assumptions(config))
        return replace(verdict, conditions=_select_conditions(conditions, answers))

    def _sentences(self, config: Any, case: Case[E], evidence: E) -> Iterator[str]:
        described = (case.describe or self.describe)(config, evidence)
        yield f"{case.answer.capitalize()}: {described}{case.because(config, evidence)}"
        yield from self.details(config, evidence)
        yield from case.reasons(config, evidence)
        yield from self.remarks(config, evidence)
        if null := self._null(config):
            yield null.remark(config)

    def _null(self, config: Any) -> Null | None:
        """Return the text for a control run, or None if the config does not describe one."""
        if self.null is not None and self.null.holds(config):
            return self.null
        return None

    def certificate(self, config: Any, summary: pa.Table, verdict: Verdict) -> Certificate:
        """Return the same answer for readers without a machine-learning background."""
        evidence = self.read(config, summary)
        rule, error, other_errors = self._rule_and_errors(config, evidence)
        if not error and other_errors and verdict.answer in ("undecided", NOT_ASSESSABLE):
            error = NO_ERROR_RATE
        return Certificate(
            asked=self.asked(config, evidence),
            findings=self._findings(config, evidence, verdict),
            rule=rule,
            error=error,
            beyond=verdict.limits,
            steps=self._steps(config, evidence),
            examined=self.examined(config),
            other_errors=other_errors,
            conditions=verdict.conditions,
        )

    def _findings(self, config: Any, evidence: E | None, verdict: Verdict) -> tuple[Finding, ...]:
        null = self._null(config)
        notice = null.notice if null else ""
        if evidence is None:
            return (Finding(verdict.answer, f"{notice}{verdict.sentence}"),)
        case = self.rules.decide(config, evidence)
        explain = case.explain or self.explain
        line = case.line or self.line
        if case.answer == NOT_ASSESSABLE:  # a number would look like a result
            explain = case.explain or repeat_verdict
            line = _draw_no_line
        explained = explain(config, evidence)
        first = Finding(verdict.answer, f"{notice}{explained or verdict.sentence}", line(config, evidence))
        return (case.findings or self.findings)(config, evidence, first)

    def _rule_and_errors(self, config: Any, evidence: E | None) -> tuple[str, str, str]:
        if self.stated is not None:
            return self.stated(config, evidence)
        decisive = None if evidence is None else self.rules.decide(config, evidence)
        return self.rules.explain(config), *self.rules.explain_errors(config, decisive)

    def _steps(self, config: Any, evidence: E | None) -> tuple[str, ...]:
        if evidence is None:
            case = self.rules.cases[-1]
        else:
            case = self.rules.decide(config, evidence)
        if null := self._null(config):
            return steps_of_null(case.answer, null.proper)
        if callable(case.steps):
            return case.steps(config, evidence)
        return case.steps


@dataclass(frozen=True)
class AnsweringByQuestion:
    """How an audit with several questions answers: it uses the first `Answering` that applies to the config.

    `numbers(config)` returns the thresholds that appear in the rule text of any question.
    """

    answerings: tuple[Answering[Any], ...]
    numbers: Callable[[Any], Numbers]

    def of(self, config: Any) -> Answering[Any]:
        return next(answering for answering in self.answerings if answering.applies(config))

    def verdict(self, config: Any, summary: pa.Table) -> Verdict:
        return self.of(config).verdict(config, summary)

    def certificate(self, config: Any, summary: pa.Table, verdict: Verdict) -> Certificate:
        return self.of(config).certificate(config, summary, verdict)

    @property
    def rules(self) -> Rules[Any]:
        """The cases of all questions, with the question as scope, followed by *undecided*.

        A case shared by several questions is listed once.
        """
        cases = dict[tuple[str, str, str], Case[Any]]()
        for answering in self.answerings:
            for case in answering.rules.cases[:-1]:
                scope = case.scope or answering.scope
                name = (case.answer, case.when, scope)
                applies = _any_of(_both_of(answering.applies, case.applies), cases.pop(name, None))
                cases[name] = replace(case, scope=scope, applies=applies)
        return Rules((*cases.values(), undecided()), self.numbers)


def _select_conditions(conditions: Iterable[Condition], answers: Sequence[Answer]) -> tuple[Condition, ...]:
    """Return the conditions that matter for any of these answers.

    Without a conclusion, these are only the conditions that are not met or not yet confirmed.
    """
    selected = []
    for condition in conditions:
        if any(_matters_for(answer, condition) for answer in answers):
            selected.append(condition)
    return tuple(selected)


def _matters_for(answer: Answer, condition: Condition) -> bool:
    if answer in COMMON_ANSWERS:
        return condition.status in ("not met", "not yet confirmed")
    return not condition.answers or answer in condition.answers


def _both_of(first: Applies, second: Applies) -> Applies:
    return lambda config: first(config) and second(config)


def _any_of(applies: Applies, shared: Case[Any] | None) -> Applies:
    return applies if shared is None else lambda config: applies(config) or shared.applies(config)
