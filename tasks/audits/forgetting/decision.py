"""Whether a target has forgotten D_Q: from the test of exchangeability, its share and its likeness, one rule.

not forgotten   the test is refused: p, adjusted over targets, is at most LEVEL. Of targets that never saw D_Q, whatever
                else they hold, at most LEVEL are called so.
not judged      there is no control set; or repeats disagree; or on the control set the target is unlike the calibration
                models, so that what they show of shares need not hold for it; or it is less sure of D_Q than of the
                control set (the test on its other side, at likeness.LEVEL), as no model is that never saw either.
forgotten       neither, and the upper limit of the share of D_Q that it holds is at most `negligible`. Of targets that
                hold more, trained like the models that the limit was learnt from, at most 5 % are called so.
undecided       none of these conditions holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.audits.forgetting.likeness import LEVEL as UNLIKE
from tasks.audits.forgetting.likeness import LikenessCheck
from tasks.statistics import Estimate
from tasks.summaries import p_in_words

ForgettingAnswer = Literal["forgotten", "not forgotten", "not judged", "undecided"]
DecisionScore = Literal["right", "undecided", "wrong"]
Cause = Literal["no test", "two answers", "one class", "unlike", "less sure", "no answer", "few models", "share"]
POSSIBLE_ANSWERS: tuple[ForgettingAnswer, ...] = ("forgotten", "not forgotten", "not judged", "undecided")
LEVEL = 0.025  # of the test of exchangeability, over all targets together


@dataclass(frozen=True)
class Evidence:
    """What is known of a target; `p` is adjusted, None without a control set. `share` is None where it is not known."""

    p: float | None
    share: Estimate | None
    accuracy: LikenessCheck
    agreement: LikenessCheck
    disagreeing: int = 0
    repeats: int = 0
    p_other: float | None = None  # of the test on its other side: that the model is the surer of the control set


@dataclass(frozen=True)
class Decision:
    """The answer, and in one `clause` why it is none, with its kind; None where it is one.

    A clause that tells of a test has `{p}` where its p-value `p` stands.
    """

    answer: ForgettingAnswer
    clause: str | None = None
    cause: Cause | None = None
    p: float | None = None

    @property
    def reason(self) -> str | None:
        """The clause as tables keep it, p-values with two digits however small."""
        return self.clause if self.clause is None or self.p is None else self.clause.format(p=f"p = {self.p:.2g}")

    @property
    def explanation(self) -> str:
        """The clause in a sentence; empty without one."""
        return self.clause or "" if self.p is None else (self.clause or "").format(p=p_in_words(self.p))


def decide(evidence: Evidence, negligible: float) -> Decision:
    """The decision by the rule above."""
    if evidence.p is None:
        return Decision(
            "not judged",
            "without a control set and calibration models knowing D_Q cannot be told from knowing its kind",
            "no test",
        )
    if evidence.p <= LEVEL:
        return Decision("not forgotten")
    unlike = unlikeness(evidence)
    if unlike is not None:
        return unlike
    known = evidence.accuracy.is_alike is not None and evidence.agreement.is_alike is not None
    if not known or evidence.share is None or evidence.share.high is None:
        return Decision("undecided", "too few models to see how they vary", "few models")
    if evidence.share.high <= negligible:
        return Decision("forgotten")
    most = "any share" if evidence.share.high >= 1 else f"up to {100 * evidence.share.high:.3g} %"
    return Decision("undecided", f"{most} of D_Q might be held, more than {100 * negligible:.3g} %", "share")


def unlikeness(evidence: Evidence) -> Decision | None:
    """That a target is not judged though it has a control set, and why; None where nothing speaks against it."""
    if evidence.disagreeing:
        twice = f"{evidence.disagreeing} of {evidence.repeats} pictures that were handed out twice got two answers"
        return Decision("not judged", twice, "two answers")
    if evidence.accuracy.value is None:
        silent = "its table says nothing of the other classes, so that its accuracy on the control set is unknown"
        return Decision("not judged", silent, "one class")
    for name, check in (("accuracy", evidence.accuracy), ("agreement", evidence.agreement)):
        if check.is_alike is False:
            return Decision(
                "not judged",
                f"its {name} on the control set is {check.value:.3g}, that of models that never saw D_Q "
                f"{check.expected:.3g} ({{p}}): it knows other data, has another design or was changed",
                "unlike",
                check.p,
            )
    if evidence.p_other is not None and evidence.p_other < UNLIKE:
        return Decision(
            "not judged",
            "it is less sure of D_Q than of images of the same source that nobody was given ({p}), as no model is that "
            "never saw either: it was made to deny D_Q, or was changed",
            "less sure",
            evidence.p_other,
        )
    return None


def score_decision(answer: ForgettingAnswer, share: float | None, negligible: float) -> DecisionScore | None:
    """Whether the answer is right of a target that was trained on this share of D_Q; None where it is not known."""
    if share is None:
        return None
    if answer in ("undecided", "not judged"):
        return "undecided"
    return "right" if (share > 0 if answer == "not forgotten" else share <= negligible) else "wrong"


def holm_adjustment(p_values: Sequence[float]) -> list[float]:
    """Holm's adjustment: at most LEVEL of runs have any p at most LEVEL where no target saw D_Q.

    Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    found, most = [0.0] * len(p_values), 0.0
    for step, at in enumerate(order):
        most = max(most, min(1.0, (len(p_values) - step) * p_values[at]))
        found[at] = most
    return found
