"""An audit returns only answers that it declares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from tasks.contract.audit import Audit, UndeclaredAnswer, Wording
from tasks.contract.schemas import SUMMARY
from tasks.contract.verdict import ANSWERS, COMMON_ANSWERS, Meaning, Verdict, select_meanings

NOTHING = SUMMARY.empty_table()


@dataclass(frozen=True)
class Config:
    says: str


def verdict(config: Config, summary: pa.Table) -> Verdict:
    return Verdict(config.says, "", "", ())


def audit(**more: object) -> Audit:
    return Audit(Config, lambda config: {}, {}, lambda config: config, verdict, **more)  # type: ignore[arg-type]


def test_usual_answers_belong_to_every_audit() -> None:
    usual = ["memorised", "not detected", "forgotten", "not forgotten", "below the relevant size"]
    usual += ["not assessable", "undecided"]
    assert usual == list(ANSWERS) == list(audit().wording.answers)
    for answer in usual:
        verdict_given = audit().answer(Config(answer), NOTHING)
        assert verdict_given is not None
        assert answer == verdict_given.answer
    tones = [ANSWERS[answer].tone for answer in usual]
    assert tones == ["accused", "cleared", "cleared", "accused", "open", "open", "open"]


def test_selected_meanings_include_common_answers() -> None:
    meanings = select_meanings(("memorised",), {"memorised": "Texts can be guessed."})
    assert list(meanings) == ["memorised", *COMMON_ANSWERS]
    assert meanings["memorised"] == replace(ANSWERS["memorised"], implication="Texts can be guessed.")
    assert meanings["undecided"] == ANSWERS["undecided"]


def test_undeclared_answer_is_refused() -> None:
    own_audit = audit(wording=Wording({"loud": Meaning("it shouts", "accused"), "unclear": Meaning("nobody knows")}))
    assert own_audit.wording.answers["unclear"].tone == "open"
    with pytest.raises(UndeclaredAnswer) as caught:
        own_audit.answer(Config("memorised"), NOTHING)
    assert str(caught.value) == "answer is 'memorised'; it must be one of those declared: loud, unclear"


def test_audit_without_verdict_has_no_answer() -> None:
    silent = Audit(Config, lambda config: {}, {}, lambda config: config)
    assert silent.answer(Config("memorised"), NOTHING) is None
