"""Decision rules for a given model, and their texts."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.membership import plain_words as plain
from tasks.audits.membership.config import Membership
from tasks.audits.membership.given_config import AskedFile, GivenModel
from tasks.audits.membership.given_evidence import GivenEvidence, read_given_evidence
from tasks.audits.membership.thresholds import thresholds
from tasks.contract.answering import Answering
from tasks.contract.certificate import STEPS
from tasks.contract.conditions import Condition, confirm, require
from tasks.contract.power import single_item
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Name, area_with_interval, names_of, numerator, p_in_words, read_setting
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import NOT_ASSESSABLE
from tasks.external.causes import as_sentence


def is_given(config: Membership) -> bool:
    return isinstance(config.question, GivenModel)


def is_file(config: Membership) -> bool:
    return isinstance(config.question, GivenModel) and isinstance(config.question.source, AskedFile)


def describe_lead(_config: Membership, evidence: GivenEvidence) -> str:
    """Describe the lead of the given model, and how many records are identified individually."""
    lead = evidence.lead
    found_records = evidence.found_records
    assert lead is not None  # otherwise the answer is *not assessable*
    assert found_records is not None
    sentence = (
        f"the given model ranks {100 * lead['estimate']:.1f} percentage points higher on the records "
        f"({found_records['n']:,}) than on non-members, among models trained here without each record (0 if nothing is "
        f"memorised; {p_in_words(lead['p_value'])} among these models); {found_records['estimate']:,.0f} records are "
        f"identified individually (false discovery rate at most {100 * evidence.level:g} %){describe_power(evidence)}"
    )
    if read_setting(found_records)["score"] == "label":
        sentence += f". {LABELS_ALONE}"
    return sentence


def describe_power(evidence: GivenEvidence) -> str:
    """Describe how many of the models trained here are identified if they take the given model's place."""
    power = evidence.power
    if power is None:
        return ""
    return f"; {numerator(power)} of {power['n']} models trained here, each on half of the records, are identified"


def _describe_sets(_config: Membership, evidence: GivenEvidence) -> str:
    """Describe how well the sets can be distinguished without a model, and which sets to pass instead."""
    apart = evidence.apart
    assert apart is not None
    counts = read_setting(apart)
    return (
        f"the {counts['records']:,} members and the {counts['others']:,} non-members can be distinguished without a "
        f"model (area under the curve {area_with_interval(apart)}; {p_in_words(apart['p_value'])} if both come from "
        "one source). Pass given.members and given.non_members from one source, drawn at random and with the same "
        "classes"
    )


def _describe_difference(_config: Membership, evidence: GivenEvidence) -> str:
    """Describe why the given model cannot be ranked among the models trained here."""
    differing = evidence.differing
    if not evidence.is_steady and differing is not None:
        return (
            f"{numerator(differing)} of {differing['n']} repeated images received two answers, so the table does not "
            "contain the answers of one model in evaluation mode"
        )
    distance = evidence.distance
    assert distance is not None
    return (
        "on non-members, the given model differs from the models trained here "
        f"({p_in_words(distance['p_value'])}, {distance['n']} models)"
    )


def _list_likely_causes(_config: Membership, evidence: GivenEvidence) -> str:
    return f". {as_sentence(evidence.likely_causes)}"


def explain_resolution(evidence: GivenEvidence) -> Iterator[str]:
    """Explain why no single record could be detected. Not needed for a table, which never clears a model."""
    if evidence.resolution is not None and not evidence.is_sent:
        yield evidence.resolution.explain()


CHECK_SETTINGS = (
    "Check your settings first: the images the model was trained on, the order of its classes, and the size and format "
    "of its inputs and outputs (given.interface).",
    "Train at least 64 comparison models as the given model was trained: the same number of records, network, epochs "
    "and optimiser (`models=64`).",
    "Use the model's own outputs, from its file if possible, unchanged and with all digits.",
)
# These cases are checked before any accusation, because each condition makes ranks meaningless.
CASES: tuple[Case[GivenEvidence], ...] = (
    Case(
        NOT_ASSESSABLE,
        "no models were trained here for comparison: a low loss alone is no evidence about a record",
        lambda evidence: not evidence.has_references,
        describe=lambda _config, _evidence: (
            "no models were trained here for comparison; a low loss is no evidence without the loss of models that "
            "were not trained on the record"
        ),
        steps=CHECK_SETTINGS,
        explain=plain.explain_missing_models,
    ),
    Case(
        NOT_ASSESSABLE,
        "classifiers that never see a model distinguish the records from the non-members (p at most {told_apart} %): "
        "this difference could be mistaken for memorisation, or hide it",
        lambda evidence: not evidence.are_sets_alike,
        "If both sets come from one source, at most {told_apart} of 100 audits answer “not assessable” for this "
        "reason.",
        describe=_describe_sets,
        steps=CHECK_SETTINGS,
        explain=plain.explain_unlike_sets,
    ),
    Case(
        NOT_ASSESSABLE,
        "on non-members, the given model differs from the models trained here (exact test over models, p at most "
        "{unlike} %), by more than training on other records explains ({wider} times the variance); or more than "
        "{differing} % of the repeated images received two answers: such a difference could be "
        "mistaken for memorisation, or hide it",
        lambda evidence: not (evidence.is_alike and evidence.is_steady),
        "Of 100 models trained like the comparison models, on half of the same records, at most {unlike} are “not "
        "assessable”.",
        describe=_describe_difference,
        because=_list_likely_causes,
        steps=CHECK_SETTINGS,
        explain=plain.explain_unlike_model,
    ),
    Case(
        "memorised",
        "the given model ranks the records higher than the non-members, among the models trained here without each "
        "record, by more than these models do for records they were not trained on (rank of its lead among theirs, p "
        "at most {level} %)",
        lambda evidence: evidence.lead is not None and evidence.lead["p_value"] <= evidence.level,
        "Of 100 models trained like the comparison models, but on none of the records, at most {level} are "
        "“memorised”; for other trainings this rate is unknown.",
        steps=STEPS["accused"],
    ),
    tie_rule(
        rows=lambda evidence: names_of(evidence.tied, *evidence.rows),
        steps=CHECK_SETTINGS,
        explain=plain.explain_ties,
    ),
    Case(
        "not detected",
        "of the models trained here, each on half of the records, at least {power} % are identified in place of the "
        f"given model (lower limit of the 95 % interval), and {single_item('record')}",
        lambda evidence: evidence.has_power,
        scope="a given model evaluated from its file: a table may come from another model",
        applies=is_file,
        steps=STEPS["cleared"],
        explain=plain.explain_cleared_model,
    ),
    undecided(
        reasons=lambda _config, evidence: explain_resolution(evidence),
        steps=(
            "Train at least 128 comparison models, and test more records (`models=128`).",
            "Check that the audit then recognises more of the comparison models.",
        ),
        explain=plain.explain_open_model,
    ),
)
LIMITS = "A record that is not listed may still have been in the training data."
LIMITS_OF_SENT = (
    f"{LIMITS} The owner returned a table, which may come from another model: a table can accuse a model, but it "
    "cannot clear one."
)
LIKE_TRAINING = require(
    "the examined model was trained like the comparison models: on the same number of records of the same kind, with "
    "the same network and settings",
    "the owner of the model",
)
LABELS_ALONE = (
    "The table contains only labels, so the audit compares whether they are correct: a record counts if the given "
    "model labels it correctly and few of the other models do"
)


def describe_limits(_config: Membership, evidence: GivenEvidence | None) -> str:
    return LIMITS_OF_SENT if evidence is not None and evidence.is_sent else LIMITS


def list_conditions(_config: Membership, evidence: GivenEvidence | None) -> Iterator[Condition]:
    if evidence is not None:
        yield from _list_checks(evidence)
    yield LIKE_TRAINING


def _list_checks(evidence: GivenEvidence) -> Iterator[Condition]:
    """Yield the conditions that the audit checked on the two sets and on images that no model was trained on."""
    if evidence.apart is not None:
        yield confirm(
            "without a model, the tested records cannot be distinguished from the images that they are compared with",
            evidence.are_sets_alike,
        )
    if evidence.distance is not None:
        yield confirm(
            "on images that no model was trained on, the examined model behaves like the comparison models",
            evidence.is_alike and evidence.is_steady,
        )


def list_row_names(evidence: GivenEvidence) -> tuple[Name, ...]:
    return names_of(*evidence.rows)


GIVEN = Answering[GivenEvidence](
    scope="a given model",
    applies=is_given,
    asked=lambda _config, _evidence: "Was the given model trained on these records?",
    rules=Rules(CASES, thresholds),
    read=read_given_evidence,
    unread=lambda _config: "there are no scores to compare.",
    limits=describe_limits,
    conditions=list_conditions,
    describe=describe_lead,
    rows=list_row_names,
    explain=plain.explain_lead,
    line=plain.draw_lead,
    examined=plain.name_models,
)
