"""Whether a target has forgotten D_Q, by RULES over its test of exchangeability, its share of D_Q and its likeness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.audits.forgetting.held_share import UNLIKE, LikenessCheck
from tasks.contract.certificate import NumberLine, chances
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Estimate, Row, p_in_words
from tasks.contract.ties import describe_tied_evidence, tie_rule
from tasks.contract.verdict import NOT_ASSESSABLE, Answer
from tasks.external.causes import ALTERED, INTERFACE, REPEATS, list_causes, unlike_causes

DecisionScore = Literal["right", "undecided", "wrong"]
MOST_RECOGNITIONS = 0.05  # of tries to pass as clean by answering recognised pictures from a clean model
LEVEL = 0.025  # of the test of exchangeability, over all targets together
# The test is exact over draws of who is control, and images of `query.control` were not drawn by the audit.
DRAWN = ", if D_Q and the control set were drawn from one pool at random"


@dataclass(frozen=True)
class RecognitionTrial:
    """How many of so many owners passed for clean who hold a share of D_Q and gave a clean model's answers about it."""

    share: float
    passed: int
    tried: int


@dataclass(frozen=True)
class TargetEvidence:
    """What is known of a target.

    `models` is how many models of it have answered. `p` is that of the test, adjusted over the targets, and `p_other`
    that of its other side, that the model is the surer of the control set; both are None without a control set.
    `share` is None where it is not known. `repeats` are pictures that were handed out twice, of which `disagreeing` got
    two answers. `recognition` is what was tried of a table of outputs that nothing binds to a model; None of others.
    `tied` is the summary row of how many of its confidences are equal.
    """

    models: int
    p: float | None
    share: Estimate | None
    accuracy: LikenessCheck
    agreement: LikenessCheck
    negligible: float
    disagreeing: int = 0
    repeats: int = 0
    p_other: float | None = None
    recognition: RecognitionTrial | None = None
    tied: Row | None = None

    @property
    def unlike(self) -> tuple[str, LikenessCheck] | None:
        """The first check by which it is unlike the calibration models, with its name; None where there is none."""
        checks = {"accuracy": self.accuracy, "agreement": self.agreement}
        return next(((name, check) for name, check in checks.items() if check.is_alike is False), None)

    @property
    def upper_limit(self) -> float | None:
        """The share of D_Q that it may hold; None where too few models show how they vary."""
        is_known = self.accuracy.is_alike is not None and self.agreement.is_alike is not None
        return self.share.high if is_known and self.share is not None else None

    @property
    def is_clear(self) -> bool:
        """Whether it may hold no more than is negligible."""
        return self.upper_limit is not None and self.upper_limit <= self.negligible

    @property
    def could_be_made_up(self) -> bool:
        """Whether nothing tells its table from that of an owner who recognises the pictures of D_Q."""
        trial = self.recognition
        return trial is not None and trial.passed > MOST_RECOGNITIONS * trial.tried


def thresholds(config: Any) -> Mapping[str, str]:
    """The numbers in the rules' texts, and on what the test rests where the audit has not drawn the control set."""
    return {
        "level": f"{LEVEL:g}",
        "per_thousand": f"{1000 * LEVEL:g}",
        "unlike": f"{UNLIKE:g}",
        "negligible": format_percent(config.negligible),
        "recognitions": format_percent(MOST_RECOGNITIONS),
        "drawn": "" if config.query.named_control is None else DRAWN,
    }


def format_percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


# What a target may be that is unlike the models that never saw D_Q, by the check and whether its number is the larger.
CAUSES = unlike_causes("images of the control set")
DENIAL_CAUSES = list_causes(
    "images of the control set were trained on",
    INTERFACE,
    "it was trained differently, as by being made to deny D_Q",
    ALTERED,
)
DIFFERENCES: Mapping[tuple[str, bool], str] = {
    ("accuracy", True): "it knows the domain better, by more or other data, longer training or another design",
    ("accuracy", False): f"it knows the domain less well; {CAUSES}",
    ("agreement", True): "it agrees with them more than they do with one another, as the mean of several models does",
    ("agreement", False): f"other images are difficult to it; {CAUSES}",
}


def _describe_unlikeness(_config: Any, evidence: TargetEvidence) -> str:
    """By which check a target is unlike the calibration models."""
    assert evidence.unlike is not None
    name, check = evidence.unlike
    assert check.p is not None
    return (
        f"its {name} on the control set is {check.value:.3g}, that of models that never saw D_Q {check.expected:.3g} "
        f"({p_in_words(check.p)}): {DIFFERENCES[name, check.is_larger]}"
    )


def _describe_denial(_config: Any, evidence: TargetEvidence) -> str:
    """That a target is less sure of D_Q than of the control set."""
    assert evidence.p_other is not None
    return (
        "it is less sure of D_Q than of images of the same source that nobody was given "
        f"({p_in_words(evidence.p_other)}), as no model is that never saw either; {DENIAL_CAUSES}"
    )


def _describe_recognition(_config: Any, evidence: TargetEvidence) -> str:
    """That the table of an owner who recognises pictures would look the same."""
    trial = evidence.recognition
    assert trial is not None
    return (
        f"its answers are a table that nothing binds to a model: of {trial.tried} owners who hold "
        f"{format_percent(trial.share)} of D_Q and give a clean model's answers about it, {trial.passed} would pass"
    )


def _describe_open_share(_config: Any, evidence: TargetEvidence) -> str:
    """How much of D_Q might be held."""
    limit = evidence.upper_limit
    if limit is None:
        return "too few models to see how they vary"
    most = "any share" if limit >= 1 else f"up to {100 * limit:.3g} %"
    return f"{most} of D_Q might be held, more than {100 * evidence.negligible:.3g} %"


RUN_AGAIN = "Run it again for what is missing: what is stored is not trained again."
MORE = (
    "Ask for answers to more pictures, or train more replicates (replicates=10): what is stored is not trained again."
)
RECIPE = (
    "Ask the owner on how many images of the domain the model was trained, by which network and how, and compare it "
    "with models that were trained so: network=..., epochs=..."
)
OWN_DATA = (
    f"{RECIPE}, and, as the owner's images are not yours, each on a draw of its own: calibration.data=... with several "
    "times as many images, and calibration_share=0.25 (as many as the owner has)."
)
OTHER_SHARE = f"{RECIPE}, calibration_share=... (as many images as the owner has)."


def _advise_own_data(config: Any, _evidence: TargetEvidence) -> tuple[str, ...]:
    """To compare it with models that were trained as it was; if these have draws of their own, on other shares."""
    return (OWN_DATA if config.question.calibration_share == 1 else OTHER_SHARE,)


def _give_no_reason(_config: Any, _evidence: TargetEvidence) -> str:
    return ""


def _describe_test(evidence: TargetEvidence) -> str:
    """p of the test of exchangeability, and of how many models."""
    assert evidence.p is not None
    return f"{p_in_words(evidence.p)}, {evidence.models} model{'s' if evidence.models > 1 else ''}"


def _describe_knowledge(_config: Any, evidence: TargetEvidence) -> str:
    """That a target knows D_Q, and the share that models hold at least that know it so well."""
    least = 0.0 if evidence.share is None else evidence.share.low or 0.0
    held = f", as models do that hold at least {format_percent(least)} of it" if least > 0 else ""
    return (
        f"it knows D_Q better than images of the same source that nobody was given ({_describe_test(evidence)}){held}"
    )


def _explain_knowledge(_config: Any, evidence: TargetEvidence) -> str:
    """The same in words that need no statistics."""
    assert evidence.p is not None
    least = 0.0 if evidence.share is None else evidence.share.low or 0.0
    held = f" Models that hold at least {format_percent(least)} of the data set look so." if least > 0 else ""
    of_how_many = "fewer than 1" if 1000 * evidence.p < 1 else f"about {1000 * evidence.p:.0f}"
    return (
        "It knows the data set better than pictures of the same source that nobody was given; of 1,000 models that "
        f"never saw it {of_how_many} would look so.{held}"
    )


def describe_no_knowledge(_config: Any, evidence: TargetEvidence) -> str:
    """What the test says of a target that is not accused; empty without a test."""
    if evidence.p is None:
        return ""
    return f"it knows D_Q no better than images of the same source that nobody was given ({_describe_test(evidence)})"


def describe_limit(config: Any, evidence: TargetEvidence) -> str:
    """That a target holds a negligible share at most."""
    limit = format_percent(evidence.upper_limit or 0.0)
    return f"{describe_no_knowledge(config, evidence)}, and holds at most {limit} of it (95 % limit)"


def _explain_limit(_config: Any, evidence: TargetEvidence) -> str:
    """The same in words that need no statistics."""
    return (
        "It tells the data set from pictures of the same source that nobody was given no better than chance does, "
        f"and holds at most {format_percent(evidence.upper_limit or 0.0)} of it (95 % limit)."
    )


def _draw_test(_config: Any, evidence: TargetEvidence) -> NumberLine:
    assert evidence.p is not None
    return chances(evidence.p, LEVEL)


# Nothing can feign the accusation, whose test is exact for any model: it is asked about first. The test compares means
# over images, whose scores vary by much, so that it has a scale of its own: no effect is too small to matter and found.
# `because` is a clause: why it is not assessable or undecided, in the table of decisions and in the verdict.
RULES = Rules[TargetEvidence](
    (
        Case(
            "not forgotten",
            "a model is surer of D_Q than of the control set, images of the same source that nobody was given (one "
            "side of a randomisation test, p at most {level} over all models together)",
            lambda evidence: evidence.p is not None and evidence.p <= LEVEL,
            "Of 1,000 audits of models that never saw D_Q, at most {per_thousand} call any of them not forgotten, "
            "whatever else these hold{drawn}.",
            because=_give_no_reason,
            describe=_describe_knowledge,
            explain=_explain_knowledge,
            line=_draw_test,
        ),
        Case(
            "undecided",
            "it has not answered",
            lambda evidence: not evidence.models,
            because=lambda _config, _evidence: "no model of it has answered",
            steps=(RUN_AGAIN,),
        ),
        Case(
            NOT_ASSESSABLE,
            "there is no control set, or no model that never saw D_Q to compare it with",
            lambda evidence: evidence.p is None,
            because=lambda _config, _evidence: (
                "without a control set and calibration models knowing D_Q cannot be told from knowing its kind"
            ),
            steps=(RUN_AGAIN,),
        ),
        Case(
            NOT_ASSESSABLE,
            "a picture that was handed out twice got two answers",
            lambda evidence: evidence.disagreeing > 0,
            because=lambda _config, evidence: (
                f"{evidence.disagreeing} of {evidence.repeats} pictures that were handed out twice got two answers; "
                f"{REPEATS}"
            ),
            steps=("Ask the owner for one table, of what one model says of every picture, and audit that.",),
        ),
        Case(
            NOT_ASSESSABLE,
            "its table says nothing of the other classes",
            lambda evidence: evidence.accuracy.value is None,
            because=lambda _config, _evidence: (
                "its table says nothing of the other classes, so that its accuracy on the control set is unknown"
            ),
            steps=("Ask the owner for a table with the confidences of all classes, and audit that.",),
        ),
        tie_rule(
            describe=None,
            because=describe_tied_evidence,
            steps=("Ask for confidences with all their digits, or for the model's file, and audit that.",),
        ),
        Case(
            NOT_ASSESSABLE,
            "on the control set its accuracy, or its agreement with models that never saw D_Q, is unlike theirs (p "
            "below {unlike} each)",
            lambda evidence: evidence.unlike is not None,
            because=_describe_unlikeness,
            steps=_advise_own_data,
        ),
        Case(
            NOT_ASSESSABLE,
            "it is less sure of D_Q than of the control set, as no model is that never saw either (p below {unlike})",
            lambda evidence: evidence.p_other is not None and evidence.p_other < UNLIKE,
            because=_describe_denial,
            steps=(
                "Ask the owner what was done to the model after its training, and for one trained without the data.",
            ),
        ),
        Case(
            NOT_ASSESSABLE,
            "it may hold at most {negligible} of D_Q, but owners who hold D_Q and give a clean model's answers about "
            "it would pass as well (more than {recognitions} of those that were tried)",
            lambda evidence: evidence.is_clear and evidence.could_be_made_up,
            scope="tables that nothing binds to a model",
            applies=lambda config: bool(config.has_unbound_tables),
            because=_describe_recognition,
            steps=(
                "Bind the table to the model in use, and say how: given.bound_by=... (the SHA-256 of its file before "
                "the pictures go out, and spot checks); or audit the file, given.models=...; or train models of all of "
                "D_Q, too, partial=0.05,0.1,0.25,1: who holds so much and recognises it may be found.",
            ),
        ),
        Case(
            "forgotten",
            "it may hold at most {negligible} of D_Q (95 % limit)",
            lambda evidence: evidence.is_clear,
            "Of 100 models that hold more than {negligible} of D_Q, and were trained like those that the limit was "
            "learnt from, at most 5 are called forgotten.",
            because=_give_no_reason,
            describe=describe_limit,
            explain=_explain_limit,
        ),
        undecided(because=_describe_open_share, steps=(MORE,)),
    ),
    thresholds,
)


@dataclass(frozen=True)
class Decision:
    """The case that holds for the evidence."""

    case: Case[TargetEvidence]
    evidence: TargetEvidence

    @property
    def answer(self) -> Answer:
        return self.case.answer

    @property
    def reason(self) -> str | None:
        """Why it is not assessable or undecided, as a clause; None if there is an answer."""
        return self.case.because(None, self.evidence) or None


def decide(config: Any, evidence: TargetEvidence) -> Decision:
    """The decision on a target by RULES."""
    return Decision(RULES.decide(config, evidence), evidence)


def score_decision(answer: Answer, share: float | None, negligible: float) -> DecisionScore | None:
    """Whether the answer is right of a target that was trained on this share of D_Q; None where it is not known."""
    if share is None:
        return None
    if answer in ("undecided", NOT_ASSESSABLE):
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
