"""Decision rules for the loss of one model, without comparison models, and their texts."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.membership import plain_words as plain
from tasks.audits.membership.config import Membership
from tasks.audits.membership.loss_config import LossAttack, TrainedExample
from tasks.audits.membership.loss_evidence import LossEvidence, read_loss_evidence
from tasks.audits.membership.thresholds import thresholds
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import NO_CONCLUSION_YET
from tasks.contract.conditions import Condition, confirm, ensure, require
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Row, p_in_words
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import DISTINGUISHABLE, NOT_ASSESSABLE

REFERENCES = "`engram audit MODEL MEMBERS OTHERS --references 64`"


def asks_loss(config: Membership) -> bool:
    return isinstance(config.question, LossAttack)


def is_control_run(config: Membership) -> bool:
    question = config.question
    assert isinstance(question, LossAttack)
    return isinstance(question.source, TrainedExample) and question.source.is_null


def _format_area(area: Row) -> str:
    return f"{area['estimate']:.3f} (95 % interval {area['low']:.3f} to {area['high']:.3f})"


def describe_loss(_config: Membership, evidence: LossEvidence) -> str:
    """Describe the area under the curve of the attack, and that of the blind control."""
    return (
        f"the model's loss on {evidence.members:,} members and {evidence.non_members:,} non-members has an area under "
        f"the curve of {_format_area(evidence.area)}; chance is 0.5, and classifiers without the model reach "
        f"{evidence.blind['estimate']:.3f}"
    )


def _describe_sets(_config: Membership, evidence: LossEvidence) -> str:
    return (
        f"the {evidence.members:,} members and the {evidence.non_members:,} non-members can be distinguished without "
        f"the model (area under the curve {_format_area(evidence.blind)}; {p_in_words(evidence.blind['p_value'])} if "
        "both come from one source), so a difference in the loss shows nothing about training"
    )


SAME_SOURCE = (
    f"{NO_CONCLUSION_YET} Compare the members with images of the same source that the model was not trained on: the "
    "same camera, period and classes, drawn at random.",
)
STRONGER = f"For evidence on single records, compare the model with models that are trained here ({REFERENCES})."
CASES: tuple[Case[LossEvidence], ...] = (
    Case(
        NOT_ASSESSABLE,
        "classifiers that never see the model distinguish the members from the non-members (p at most {told_apart} %)",
        lambda evidence: not evidence.are_sets_alike,
        "If both sets come from one source, at most {told_apart} of 100 audits answer “not assessable” for this "
        "reason.",
        describe=_describe_sets,
        steps=SAME_SOURCE,
        explain=plain.explain_unlike_loss_sets,
    ),
    tie_rule(explain=plain.explain_ties),
    Case(
        DISTINGUISHABLE,
        "the 95 % interval of the area under the curve of the model's loss is above 0.5 and above the interval of the "
        "classifiers that never see the model",
        lambda evidence: evidence.is_separated,
        "If both sets come from one source and the model was trained on neither, at most 5 of 100 audits answer "
        "“distinguishable”.",
        steps=(
            "Treat membership in the training data as disclosed to everyone who can query the model with a record.",
            STRONGER,
        ),
    ),
    undecided(
        steps=(
            f"{NO_CONCLUSION_YET} The loss is the weakest attack. To use stronger ones, compare the model with models "
            f"that are trained here ({REFERENCES}).",
        ),
        explain=plain.explain_open_loss,
    ),
)
LIMITS = (
    "The answer compares two sets as a whole, and shows no single record to be memorised: records that are easy to "
    "predict have a low loss in every model. The loss is the weakest attack, so an attacker with comparison models may "
    "learn more."
)
SAME_KIND = require(
    "the non-members come from the same source as the members, and the model was not trained on them",
    "the owner of the model",
)


def list_conditions(config: Membership, evidence: LossEvidence | None) -> Iterator[Condition]:
    """Yield the audit's check of both sets, and the condition that the owner must confirm."""
    if evidence is not None:
        clause = "without the model, the members cannot be distinguished from the non-members"
        yield confirm(clause, evidence.are_sets_alike)
    question = config.question
    assert isinstance(question, LossAttack)
    if isinstance(question.source, TrainedExample):
        yield ensure("the members and the non-members were drawn at random from one source")
    else:
        yield SAME_KIND


LOSS = Answering[LossEvidence](
    scope="the loss of one model",
    applies=asks_loss,
    asked=lambda _config, _evidence: (
        "Does the model treat the records that it was trained on differently from other records of the same kind?"
    ),
    rules=Rules(CASES, thresholds),
    read=read_loss_evidence,
    unread=lambda _config: "no record was scored.",
    limits=lambda _config, _evidence: LIMITS,
    conditions=list_conditions,
    describe=describe_loss,
    rows=lambda evidence: evidence.rows,
    explain=plain.explain_loss,
    line=plain.draw_loss,
    examined=plain.name_models,
    null=Null(
        holds=is_control_run,
        remark=lambda _config: "This is a control run: the model was trained on neither set.",
        proper="is_null=false",
        notice=plain.CONTROL_RUN,
    ),
)
