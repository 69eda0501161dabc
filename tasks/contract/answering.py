"""An audit's answer: evidence read once, the case that holds for it, and verdict and certificate rendered from both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from tasks.contract.certificate import Certificate, Finding, NumberLine, steps_of_null
from tasks.contract.rules import Case, Numbers, Rules, applies_always, give_no_reasons, undecided
from tasks.contract.summaries import Name, index_rows
from tasks.contract.verdict import NOT_ASSESSABLE, Verdict

E = TypeVar("E")
Condition = Callable[[Any], bool]  # of a config


def _publish_nothing(_evidence: Any) -> str:
    return ""


def repeat_verdict(_config: Any, _evidence: Any) -> None:
    """No explanation of its own: the certificate repeats the verdict's sentence."""


def _draw_no_line(_config: Any, _evidence: Any) -> None:
    """No number line."""


def _report_nothing_measured(_config: Any) -> str:
    return "nothing has been measured yet."


def keep_one_finding(_config: Any, _evidence: Any, first: Finding) -> tuple[Finding, ...]:
    return (first,)


@dataclass(frozen=True)
class Null:
    """A run in which nothing can be memorised, by its config.

    `remark(config)` is the verdict's last sentence and `notice` begins the certificate's finding; either may be empty.
    `proper` are the settings of the audit proper ("unseen=false"), which the certificate recommends.
    """

    holds: Callable[[Any], bool]
    remark: Callable[[Any], str]
    proper: str
    notice: str = ""


@dataclass(frozen=True)
class Answering(Generic[E]):
    """How an audit answers one question: the evidence, the rules and all that is said of them.

    asked(config): the question in plain words. read(config, summary): the evidence; None if the summary holds none, of
    which `unread(config)` says why, as a sentence. limits(config, evidence): what the answer does not say. Without
    evidence the certificate repeats the verdict, with the steps of the last case.

    Of the verdict, for experts: describe(config, evidence) is the evidence as a sentence without its end, which the
    case's `because` adds; `details` and `remarks` are further sentences. rows(evidence): the (metric, setting) of the
    summary rows that carry the answer. published(evidence): the result of the paper's own test.

    Of the certificate, for readers without a machine-learning background: explain(config, evidence) is the finding in
    plain words (None: the verdict's sentence), `line` its number, findings(config, evidence, first) that finding and
    others, and stated(config, evidence) the rule and its error rates if not all cases that apply to the config count.
    An answer that is not assessable has no line, and repeats the verdict unless its case explains it.

    An audit with several questions has one of these for each, `applies` tells to which configs (`AnsweringByQuestion`).
    """

    asked: Callable[[Any, E | None], str]
    rules: Rules[E]
    read: Callable[[Any, pa.Table], E | None]
    limits: Callable[[Any, E | None], str]
    describe: Callable[[Any, E], str]
    rows: Callable[[E], tuple[Name, ...]]
    unread: Callable[[Any], str] = _report_nothing_measured
    details: Callable[[Any, E], Iterable[str]] = give_no_reasons
    remarks: Callable[[Any, E], Iterable[str]] = give_no_reasons
    published: Callable[[E], str] = _publish_nothing
    explain: Callable[[Any, E], str | None] = repeat_verdict
    line: Callable[[Any, E], NumberLine | None] = _draw_no_line
    findings: Callable[[Any, E, Finding], tuple[Finding, ...]] = keep_one_finding
    stated: Callable[[Any, E | None], tuple[str, str]] | None = None
    null: Null | None = None
    scope: str = ""
    applies: Callable[[Any], bool] = applies_always

    def verdict(self, config: Any, summary: pa.Table) -> Verdict:
        """The answer for experts; *undecided* if there is no evidence."""
        evidence = self.read(config, summary)
        if evidence is None:
            first_row = tuple(index_rows(summary))[:1]
            return Verdict("undecided", f"Undecided: {self.unread(config)}", self.limits(config, None), first_row)
        case = self.rules.decide(config, evidence)
        return Verdict(
            answer=case.answer,
            sentence=" ".join(filter(None, self._sentences(config, case, evidence))),
            limits=self.limits(config, evidence),
            rows=(case.rows or self.rows)(evidence),
            published=self.published(evidence),
        )

    def _sentences(self, config: Any, case: Case[E], evidence: E) -> Iterator[str]:
        described = (case.describe or self.describe)(config, evidence)
        yield f"{case.answer.capitalize()}: {described}{case.because(config, evidence)}"
        yield from self.details(config, evidence)
        yield from case.reasons(config, evidence)
        yield from self.remarks(config, evidence)
        if null := self._null(config):
            yield null.remark(config)

    def _null(self, config: Any) -> Null | None:
        """What is said of the config as a null; None if it is not one."""
        return self.null if self.null is not None and self.null.holds(config) else None

    def certificate(self, config: Any, summary: pa.Table, verdict: Verdict) -> Certificate:
        """The same answer for readers without a machine-learning background; `verdict` is that of the summary."""
        evidence = self.read(config, summary)
        rule, error = self._rule_and_error(config, evidence)
        return Certificate(
            asked=self.asked(config, evidence),
            findings=self._findings(config, evidence, verdict),
            rule=rule,
            error=error,
            beyond=verdict.limits,
            steps=self._steps(config, evidence),
        )

    def _findings(self, config: Any, evidence: E | None, verdict: Verdict) -> tuple[Finding, ...]:
        null = self._null(config)
        notice = null.notice if null else ""
        if evidence is None:
            return (Finding(verdict.answer, f"{notice}{verdict.sentence}"),)
        case = self.rules.decide(config, evidence)
        explain, line = case.explain or self.explain, case.line or self.line
        if case.answer == NOT_ASSESSABLE:  # numbers would pass for a result
            explain, line = case.explain or repeat_verdict, _draw_no_line
        explained = explain(config, evidence)
        first = Finding(verdict.answer, f"{notice}{explained or verdict.sentence}", line(config, evidence))
        return (case.findings or self.findings)(config, evidence, first)

    def _rule_and_error(self, config: Any, evidence: E | None) -> tuple[str, str]:
        if self.stated is not None:
            return self.stated(config, evidence)
        return self.rules.explain(config), self.rules.explain_errors(config)

    def _steps(self, config: Any, evidence: E | None) -> tuple[str, ...]:
        case = self.rules.cases[-1] if evidence is None else self.rules.decide(config, evidence)
        if null := self._null(config):
            return steps_of_null(case.answer, null.proper)
        return case.steps(config, evidence) if callable(case.steps) else case.steps


@dataclass(frozen=True)
class AnsweringByQuestion:
    """How an audit with several questions answers: each config by the first of the answerings that applies to it.

    `numbers(config)` are the thresholds in the texts of all rules, whatever the config asks.
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
        """The cases of all questions, each with the question as its scope; the last is *undecided*.

        A case that several questions share is listed once.
        """
        cases = dict[tuple[str, str, str], Case[Any]]()
        for answering in self.answerings:
            for case in answering.rules.cases[:-1]:
                scope = case.scope or answering.scope
                name = (case.answer, case.when, scope)
                applies = _any_of(_both_of(answering.applies, case.applies), cases.pop(name, None))
                cases[name] = replace(case, scope=scope, applies=applies)
        return Rules((*cases.values(), undecided()), self.numbers)


def _both_of(first: Condition, second: Condition) -> Condition:
    return lambda config: first(config) and second(config)


def _any_of(applies: Condition, shared: Case[Any] | None) -> Condition:
    return applies if shared is None else lambda config: applies(config) or shared.applies(config)
