"""Decision rules for the loss of one model, alone or compared with reference models, and their texts."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.membership import plain_words as plain
from tasks.audits.membership.config import Membership
from tasks.audits.membership.loss_config import LossAttack, OutputsAndSets, TrainedExample
from tasks.audits.membership.loss_evidence import LossEvidence, read_loss_evidence
from tasks.audits.membership.measures.calibrated import LEVEL
from tasks.audits.membership.thresholds import thresholds
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import NO_CONCLUSION_YET
from tasks.contract.conditions import Condition, confirm, ensure, require
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import area_with_interval, p_in_words
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import DISTINGUISHABLE, NOT_ASSESSABLE

REFERENCES = "`engram audit MODEL MEMBERS OTHERS --references 16`"


def asks_loss(config: Membership) -> bool:
    return isinstance(config.question, LossAttack)


def is_control_run(config: Membership) -> bool:
    question = config.question
    assert isinstance(question, LossAttack)
    return isinstance(question.source, TrainedExample) and question.source.is_null


def describe_loss(_config: Membership, evidence: LossEvidence) -> str:
    """Describe the area under the curve of the attack, that of the blind control, and the members found."""
    sets = f"{evidence.members:,} members and {evidence.non_members:,} non-members"
    blind = f"chance is 0.5, and classifiers without the model reach {evidence.blind['estimate']:.3f}"
    found = evidence.found_members
    if evidence.loss_area is None or found is None:
        return f"the model's loss on {sets} has an area under the curve of {area_with_interval(evidence.area)}; {blind}"
    return (
        f"the model's loss on {sets}, compared with {evidence.references} reference models, has an area under the "
        f"curve of {area_with_interval(evidence.area)}; the loss alone has {evidence.loss_area['estimate']:.3f}, "
        f"{blind}. For {found['estimate']:,.0f} of the {found['n']:,} members, one can tell that the model saw them "
        f"(false discovery rate at most {100 * LEVEL:g} %)"
    )


def _describe_sets(_config: Membership, evidence: LossEvidence) -> str:
    return (
        f"the {evidence.members:,} members and the {evidence.non_members:,} non-members can be distinguished without "
        f"the model (area under the curve {area_with_interval(evidence.blind)}; "
        f"{p_in_words(evidence.blind['p_value'])} if both come from one source), so a difference in "
        "the loss shows nothing about training"
    )


SAME_SOURCE = (
    f"{NO_CONCLUSION_YET} Compare the members with images of the same source that the model was not trained on: the "
    "same camera, period and classes, drawn at random.",
)
DISCLOSED = "Treat membership in the training data as disclosed to everyone who can query the model with a record."
STRONGER = f"For evidence on single records, compare the model with reference models ({REFERENCES})."


def advise_disclosed(config: Membership, _evidence: LossEvidence | None) -> tuple[str, ...]:
    """Return the next steps for a model whose loss distinguishes the sets."""
    return (DISCLOSED,) if count_references(config) else (DISCLOSED, STRONGER)


def advise_undecided(config: Membership, _evidence: LossEvidence | None) -> tuple[str, ...]:
    """Return the next steps if the evidence is not sufficient: references, or more of everything."""
    references = count_references(config)
    if not references:
        return (
            f"{NO_CONCLUSION_YET} The loss alone is the weakest attack. To use a stronger one, compare the model with "
            f"reference models ({REFERENCES}).",
        )
    return (
        f"{NO_CONCLUSION_YET} Train {2 * references} reference models (`references={2 * references}`), with the "
        "settings of the examined model if you know them, or pass more images of both kinds.",
    )


def count_references(config: Membership) -> int:
    question = config.question
    assert isinstance(question, LossAttack)
    return question.references


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
        "the 95 % interval of the area under the curve of the model's loss, compared with the reference models if "
        "there are any, is above 0.5 and above the interval of the classifiers that never see the model",
        lambda evidence: evidence.is_separated,
        "If both sets come from one source and the model was trained on neither, at most 5 of 100 audits answer "
        "“distinguishable”.",
        steps=advise_disclosed,
    ),
    undecided(
        steps=advise_undecided,
        explain=plain.explain_open_loss,
    ),
)
LIMITS = (
    "The answer compares two sets as a whole, and shows no single record to be memorised: records that are easy to "
    "predict have a low loss in every model. The loss is the weakest attack, so an attacker with reference models may "
    "learn more."
)
LIMITS_OF_REFERENCES = (
    "Error rates and p-values assume that members and non-members were drawn alike, which the blind control tests. "
    "They do not assume that the reference models were trained like the examined one. A record that is not found may "
    "still be recognised by a stronger attack."
)


def describe_limits(config: Membership, _evidence: LossEvidence | None) -> str:
    return LIMITS_OF_REFERENCES if count_references(config) else LIMITS


SAME_KIND = require(
    "the non-members come from the same source as the members, and the model was not trained on them",
    "the owner of the model",
)


OWN_OUTPUTS = require("the table contains the unaltered outputs of the examined model", "the owner of the model")


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
    if isinstance(question.source, OutputsAndSets):
        yield OWN_OUTPUTS


LOSS = Answering[LossEvidence](
    scope="the loss of one model",
    applies=asks_loss,
    asked=lambda _config, _evidence: (
        "Does the model treat the records that it was trained on differently from other records of the same kind?"
    ),
    rules=Rules(CASES, thresholds),
    read=read_loss_evidence,
    unread=lambda _config: "no record was scored.",
    limits=describe_limits,
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
