"""An audit's answers are those that it declares."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from tasks.contract.audit import Audit, UndeclaredAnswer, Wording
from tasks.contract.schemas import SUMMARY
from tasks.contract.verdict import ANSWERS, Meaning, Verdict

NOTHING = SUMMARY.empty_table()


@dataclass(frozen=True)
class Config:
    says: str


def verdict(config: Config, summary: pa.Table) -> Verdict:
    return Verdict(config.says, "", "", ())


def audit(**more: object) -> Audit:
    return Audit(Config, lambda config: {}, {}, lambda config: config, verdict, **more)  # type: ignore[arg-type]


def test_the_usual_answers_are_every_audits_unless_it_has_its_own() -> None:
    usual = ["memorised", "not detected", "forgotten", "not forgotten", "below the relevant size"]
    usual += ["not assessable", "undecided"]
    assert usual == list(ANSWERS) == list(audit().wording.answers)
    for answer in usual:
        said = audit().answer(Config(answer), NOTHING)
        assert said is not None
        assert answer == said.answer
    tones = [ANSWERS[answer].tone for answer in usual]
    assert tones == ["accused", "cleared", "cleared", "accused", "open", "open", "open"]


def test_an_answer_that_is_not_declared_is_refused_in_a_line() -> None:
    own = audit(wording=Wording({"loud": Meaning("it shouts", "accused"), "unclear": Meaning("nobody knows")}))
    assert own.wording.answers["unclear"].tone == "open"
    with pytest.raises(UndeclaredAnswer) as caught:
        own.answer(Config("memorised"), NOTHING)
    assert str(caught.value) == "answer is 'memorised'; it must be one of those declared: loud, unclear"


def test_an_audit_without_a_verdict_has_no_answer() -> None:
    silent = Audit(Config, lambda config: {}, {}, lambda config: config)
    assert silent.answer(Config("memorised"), NOTHING) is None
