"""The rule of a verdict, written once: an ordered list of conditions, of which the first that holds gives the answer.

The verdict, the certificate and the audit's page in `docs` all render it, so that none of them can say anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tasks.contract.certificate import Certificate, Finding
from tasks.contract.verdict import DETECTABLE, Answer, Verdict

Evidence = TypeVar("Evidence")
Numbers = Mapping[str, str]
OTHERWISE = "none of these conditions holds"


def applies_always(_config: Any) -> bool:
    return True


@dataclass(frozen=True)
class Rule(Generic[Evidence]):
    """One case of a decision.

    `when` is the condition as a clause ("the 95 % interval lies above 0") and `error` a sentence on how often the
    answer is wrong; both may name numbers of the config in braces, `{negligible}`. A rule that `applies` to some
    configs only says to which in `scope` ("third-party predictions"), which completes "only for".
    """

    answer: Answer
    when: str
    holds: Callable[[Evidence], bool]
    error: str = ""
    scope: str = ""
    applies: Callable[[Any], bool] = applies_always


def explain_interval(answer: Answer, high: float, negligible: float, advice: str) -> str:
    """What an interval up to `high` excludes, which follows the evidence of a case that does not accuse."""
    if answer in ("not seen", DETECTABLE):
        return f"; {negligible:g} or more is unlikely."
    return f"; as much as {high:.2g} cannot be excluded: {advice}."


def undecided() -> Rule[Any]:
    """The last case: the answer where no other rule holds."""
    return Rule("undecided", OTHERWISE, lambda _evidence: True)


@dataclass(frozen=True)
class FormattedRule:
    """A rule's answer, its scope in parentheses (empty where it applies to all), and its condition and error rate."""

    answer: str
    scope: str
    rule: str


@dataclass(frozen=True)
class Rules(Generic[Evidence]):
    """The cases of a decision in order, the last of which always holds.

    `numbers(config)` gives the thresholds as they are written in the rules' texts.
    """

    cases: tuple[Rule[Evidence], ...]
    numbers: Callable[[Any], Numbers]

    def decide(self, config: Any, evidence: Evidence) -> Rule[Evidence]:
        """The first rule that applies to the config and holds for the evidence."""
        return next(rule for rule in self.applicable_rules(config) if rule.holds(evidence))

    def applicable_rules(self, config: Any) -> Iterator[Rule[Evidence]]:
        return (rule for rule in self.cases if rule.applies(config))

    def explain(self, config: Any) -> str:
        """The rules that apply to the config in full sentences, for the certificate."""
        numbers, sentences = self.numbers(config), list[str]()
        for rule in self.applicable_rules(config):
            start = "The answer is" if not sentences else "Otherwise it is"
            if rule.when == OTHERWISE:
                start = "The answer is"
            sentences.append(f"{start} “{rule.answer}” where {rule.when.format_map(numbers)}.")
        return " ".join(sentences)

    def explain_errors(self, config: Any) -> str:
        """How often the rules that apply to the config are wrong, in full sentences; empty where none is known."""
        numbers = self.numbers(config)
        return " ".join(rule.error.format_map(numbers) for rule in self.applicable_rules(config) if rule.error)

    def certify(
        self, config: Any, verdict: Verdict, asked: str, findings: tuple[Finding, ...], steps: tuple[str, ...]
    ) -> Certificate:
        """The certificate of this verdict, with the rules that apply to the config."""
        return Certificate(
            asked, findings, self.explain(config), self.explain_errors(config), beyond=verdict.limits, steps=steps
        )

    def format_list(self, config: Any) -> list[str]:
        """All rules as a numbered list in Markdown, with their scope and error rates, at the numbers of the config."""
        return [
            f"{at}. **{case.answer}**{case.scope}: {case.rule}" for at, case in enumerate(self.format_cases(config), 1)
        ]

    def format_cases(self, config: Any) -> Iterator[FormattedRule]:
        """Each rule at the numbers of the config."""
        numbers = self.numbers(config)
        for rule in self.cases:
            scope = f" (only for {rule.scope})" if rule.scope else ""
            error = f" {rule.error.format_map(numbers)}" if rule.error else ""
            yield FormattedRule(rule.answer.capitalize(), scope, f"{rule.when.format_map(numbers)}.{error}")
