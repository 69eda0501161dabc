"""The rules of an audit: an ordered list of cases. The first case whose condition holds gives the answer.

The verdict, the certificate and the audit's page in `docs` all render these rules, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tasks.contract.certificate import STEPS, Finding, NumberLine
from tasks.contract.summaries import Name
from tasks.contract.verdict import Answer

Evidence = TypeVar("Evidence")
Numbers = Mapping[str, str]
OTHERWISE = "none of these conditions holds"


def applies_always(_config: Any) -> bool:
    return True


def _end_sentence(_config: Any, _evidence: Any) -> str:
    return "."


def give_no_reasons(_config: Any, _evidence: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Case(Generic[Evidence]):
    """One case of a decision: its condition, error rate, text and next steps.

    `when` states the condition as a clause ("the 95 % interval is above 0"), and `error` is a sentence on the error
    rate of the answer. Both may contain numbers of the config in braces, such as `{negligible}`. If a case `applies` to
    some configs only, `scope` describes them ("third-party predictions") and completes "only for".

    The other fields are functions of (config, evidence). `because` ends the verdict's first sentence, after the
    evidence, and may add further sentences; `reasons` yields sentences that follow the details. `steps` contains the
    next steps; those of the last case are also used if there is no evidence (None). `describe`, `explain`, `line`,
    `rows` and `findings` override those of the audit (`tasks.contract.answering.Answering`).
    """

    answer: Answer
    when: str
    holds: Callable[[Evidence], bool]
    error: str = ""
    scope: str = ""
    applies: Callable[[Any], bool] = applies_always
    because: Callable[[Any, Evidence], str] = _end_sentence
    reasons: Callable[[Any, Evidence], Iterable[str]] = give_no_reasons
    steps: tuple[str, ...] | Callable[[Any, Any], tuple[str, ...]] = STEPS["open"]
    describe: Callable[[Any, Evidence], str] | None = None
    explain: Callable[[Any, Evidence], str | None] | None = None
    line: Callable[[Any, Evidence], NumberLine | None] | None = None
    rows: Callable[[Evidence], tuple[Name, ...]] | None = None
    findings: Callable[[Any, Evidence, Finding], tuple[Finding, ...]] | None = None


def exclude_size(size: float) -> str:
    """Return the end of a sentence about an interval that is entirely below `size`."""
    return f"; {size:g} or more is unlikely."


def admit_size(high: float, advice: str) -> str:
    """Return the end of a sentence about an inconclusive interval whose upper end is `high`, with advice."""
    return f"; values up to {high:.2g} cannot be excluded: {advice}."


def undecided(**words: Any) -> Case[Any]:
    """Return the last case, which holds if no other does. `words` sets further fields of `Case`."""
    return Case("undecided", OTHERWISE, lambda _evidence: True, **words)


@dataclass(frozen=True)
class FormattedCase:
    """A case as text: its answer, its scope in parentheses (empty if it always applies), its condition and its error
    rate.
    """

    answer: str
    scope: str
    rule: str


@dataclass(frozen=True)
class Rules(Generic[Evidence]):
    """The cases of a decision in order. The last case always holds.

    `numbers(config)` returns the thresholds, formatted as they appear in the rule text.
    """

    cases: tuple[Case[Evidence], ...]
    numbers: Callable[[Any], Numbers]

    def decide(self, config: Any, evidence: Evidence) -> Case[Evidence]:
        """Return the first case that applies to the config and holds for the evidence."""
        return next(case for case in self.applicable_cases(config) if case.holds(evidence))

    def applicable_cases(self, config: Any) -> Iterator[Case[Evidence]]:
        return (case for case in self.cases if case.applies(config))

    def explain(self, config: Any) -> str:
        """Format the conditions that apply to the config as sentences, for the certificate."""
        numbers = self.numbers(config)
        sentences = list[str]()
        for case in self.applicable_cases(config):
            start = "Otherwise it is"
            if not sentences or case.when == OTHERWISE:
                start = "The answer is"
            sentences.append(f"{start} “{case.answer}” if {case.when.format_map(numbers)}.")
        return " ".join(sentences)

    def explain_errors(self, config: Any) -> str:
        """Format the error rates of the applicable cases as sentences. Returns an empty string if none is stated."""
        numbers = self.numbers(config)
        return " ".join(case.error.format_map(numbers) for case in self.applicable_cases(config) if case.error)

    def format_list(self, config: Any) -> list[str]:
        """Format all cases as a numbered Markdown list, with the numbers of the config filled in."""
        result = []
        for number, case in enumerate(self.format_cases(config), 1):
            result.append(f"{number}. **{case.answer}**{case.scope}: {case.rule}")
        return result

    def format_cases(self, config: Any) -> Iterator[FormattedCase]:
        """Yield each case with the numbers of the config filled in."""
        numbers = self.numbers(config)
        for case in self.cases:
            scope = f" (only for {case.scope})" if case.scope else ""
            error = f" {case.error.format_map(numbers)}" if case.error else ""
            yield FormattedCase(case.answer.capitalize(), scope, f"{case.when.format_map(numbers)}.{error}")
