"""Explanations for readers without a machine-learning background: no p-values, attacks or symbols."""

from __future__ import annotations

import math

from tasks.audits.membership.canary_evidence import CanaryEvidence
from tasks.audits.membership.config import Canaries, Halves, Membership, ModelPairs
from tasks.audits.membership.given_config import AskedFile, GivenModel, ReturnedTable
from tasks.audits.membership.given_evidence import GivenEvidence
from tasks.audits.membership.halves_evidence import HalvesEvidence
from tasks.audits.membership.loss_config import (
    LossAttack,
    LossSource,
    ModelAndSets,
    OutputsAndSets,
    Recording,
    TrainedExample,
)
from tasks.audits.membership.loss_evidence import LossEvidence
from tasks.audits.membership.pairs_evidence import PairsEvidence
from tasks.contract.certificate import (
    NO_CONCLUSION_YET,
    NOT_ENOUGH,
    PRIVACY,
    TOO_SMALL,
    Boundary,
    NumberLine,
    advise_retraining,
    number_per_hundred,
    range_per_hundred,
)
from tasks.contract.epsilon_rows import CONFIDENCE
from tasks.contract.examined_models import describe_files, describe_tables, describe_trained
from tasks.contract.summaries import Row, numerator, read_setting
from tasks.external.causes import as_sentence
from tasks.programs.config import Program

CONTROL_RUN = "This is a control run: no model was trained on the tested records, so every finding is a false alarm. "
CHECK_PRIVACY = (
    "Do not rely on the promised privacy: check the implementation and its settings.",
    "Treat the training data as disclosed to everyone who can use a model trained in this way.",
)


def advise_removal(config: Membership, _evidence: HalvesEvidence | PairsEvidence | None) -> tuple[str, ...]:
    """Return the next steps if records are memorised. A program of the user has settings of its own for privacy."""
    table = "pair_records" if isinstance(config.question, ModelPairs) else "records"
    setting = "" if isinstance(config.training, Program) else "privacy.epsilon=4"
    return (
        "Review the identified records, and remove those that must not be identifiable (`engram results RUN "
        f"{table}` lists them).",
        advise_retraining(setting),
    )


def advise_privacy(config: Membership, _evidence: CanaryEvidence | None) -> tuple[str, ...]:
    """Return the next steps if canaries are memorised."""
    setting = ""
    if not isinstance(config.training, Program):
        setting = " (`privacy.epsilon=1`; the smaller epsilon, the stricter the limit)"
    return (
        "Treat the training data as disclosed to everyone who can use a model trained in this way.",
        f"Ask the technical team to train with {PRIVACY}, or to choose a stricter limit. Then audit again{setting}.",
    )


def name_models(config: Membership) -> str:
    """Name the models that were examined: trained by the audit, or a given one."""
    match config.question:
        case Halves(models=models, is_null=is_null):
            return describe_trained(models, "" if is_null else ", each on a random half of the records")
        case Canaries(models=models):
            return describe_trained(models, " after a coin had decided for each test record whether to include it")
        case ModelPairs(pairs=pairs, stopping_level=stopping_level, is_null=is_null):
            divided = "" if is_null else "; a coin decided for each record which model of a pair was trained on it"
            return describe_trained(pairs, divided, in_pairs=True, at_most=stopping_level > 0)
        case LossAttack(source=loss_source, references=references):
            return f"{_name_source(loss_source)}{_name_references(references)}"
        case GivenModel(source=AskedFile(model=model), models=models):
            examined = describe_files([model.path])
        case GivenModel(source=ReturnedTable(outputs=outputs), models=models):
            examined = describe_tables([] if outputs is None else [outputs.path])
    if not models:
        return examined
    return f"{examined} For comparison, it trained {models} other models, each on a random half of the records."


def _name_source(source: LossSource) -> str:
    match source:
        case TrainedExample(is_null=is_null):
            return describe_trained(1, " on other images than the tested ones" if is_null else " on the members")
        case ModelAndSets(model=model):
            return describe_files([model.path])
        case OutputsAndSets(outputs=outputs):
            return describe_tables([outputs.path])
        case Recording():
            return "The audit examined a model in the memory of a Python program, and recorded its scores."


def _name_references(references: int) -> str:
    if not references:
        return ""
    return (
        f" For comparison, it trained {references} reference models, each on a random half of the members and "
        "non-members together."
    )


def advise_more_canaries(config: Membership, _evidence: CanaryEvidence | None) -> tuple[str, ...]:
    question = config.question
    assert isinstance(question, Canaries)
    canaries = max(1000, 2 * question.canaries)
    models = max(8, 2 * question.models)
    return (
        f"{NO_CONCLUSION_YET} Audit with at least {canaries:,} test records, or train at least {models} models "
        f"(`canaries={canaries}` or `models={models}`).",
    )


# Halves of the records


def explain_records(config: Membership, evidence: HalvesEvidence) -> str:
    """Explain how many records can be identified, and how the audit determined this."""
    question = config.question
    assert isinstance(question, Halves)
    count = int(evidence.found_records["estimate"])
    records = evidence.found_records["n"]
    trained = "two random halves of the models"
    if not question.is_null:
        trained = f"the {question.models // 2} models that were trained on it with the others"
    design = f"For each record, the audit compared {trained}."
    if not count:
        return (
            f"None of the {records:,} tested records was identified as training data. {design} For no record was the "
            "difference larger than chance explains."
        )
    return (
        f"{count:,} of the {records:,} tested records can be identified as training data. "
        f"{_count_false_alarms(count, evidence.level)} {design} Models that were trained on such a record predict its "
        "label with more confidence."
    )


def _count_false_alarms(count: int, level: float) -> str:
    false_alarms = level * count
    if false_alarms < 1:
        return "On average, fewer than one finding is a false alarm."
    return f"On average, at most {false_alarms:.0f} of these {count:,} findings are false alarms."


def explain_small_effects(config: Membership, evidence: HalvesEvidence) -> str:
    return (
        f"{explain_records(config, evidence)} The difference is too small to matter: known attacks recognise training "
        "records hardly better than by guessing."
    )


def explain_detection_limit(config: Membership, evidence: HalvesEvidence) -> str:
    return f"{explain_records(config, evidence)} The audit was large enough to detect a single memorised record."


def explain_open_halves(config: Membership, evidence: HalvesEvidence) -> str:
    """Explain the records, and why the evidence is not sufficient for an answer."""
    explanation = explain_records(config, evidence)
    if not evidence.resolution.finds_one:
        return f"{explanation} {TOO_SMALL.format(item='record')}"
    return (
        f"{explanation} An attacker who combines many records might still recognise some records, so the evidence is "
        "not sufficient for an answer in either direction."
    )


def advise_more_models(config: Membership, _evidence: HalvesEvidence | None) -> tuple[str, ...]:
    question = config.question
    assert isinstance(question, Halves)
    models = 2 * question.models
    return (f"{NO_CONCLUSION_YET} Train at least {models} models and audit again (`models={models}`).",)


def draw_records(_config: Membership, evidence: HalvesEvidence) -> NumberLine:
    """Draw the number of identified records."""
    found_records = evidence.found_records
    label = f"records that can be identified as training data, of {found_records['n']:,} tested"
    return NumberLine(label, float(found_records["estimate"]), null=0.0)


# Pairs of models


def explain_pairs(config: Membership, evidence: PairsEvidence) -> str:
    """Explain how far the evidence grew, and how many records can be identified."""
    question = config.question
    assert isinstance(question, ModelPairs)
    largest = evidence.largest
    limit = f"{1 / evidence.level:.4g}"
    pairs = f"{largest['n']} of at most {question.pairs} pairs of trainings"
    design = "In each pair, a coin decided for each record which of the two models was trained on it."
    if not evidence.is_decided:
        return (
            f"The evidence for memorisation grew at most {largest['estimate']:.4g}-fold within {pairs}, less than the "
            f"limit of {limit}, which was fixed in advance. {design}"
        )
    return (
        f"The evidence for memorisation grew {largest['estimate']:.4g}-fold within {pairs} and reached the limit of "
        f"{limit}, which was fixed in advance. {design} {_explain_found_records(evidence)}"
    )


def _explain_found_records(evidence: PairsEvidence) -> str:
    found_records = evidence.found_records
    count = 0 if found_records is None else int(found_records["estimate"])
    if found_records is None or not count:
        return "Together, the records show this, but no single record can be identified yet."
    return (
        f"{count:,} of the {found_records['n']:,} tested records can be identified as training data. "
        f"{_count_false_alarms(count, evidence.level)}"
    )


def advise_more_pairs(config: Membership, _evidence: PairsEvidence | None) -> tuple[str, ...]:
    question = config.question
    assert isinstance(question, ModelPairs)
    pairs = 2 * question.pairs
    setting = f"engram resume RUN --most {pairs}" if question.stopping_level else f"pairs={pairs}"
    return (f"{NO_CONCLUSION_YET} Train at least {pairs} pairs of models and audit again (`{setting}`).",)


def draw_pairs(_config: Membership, evidence: PairsEvidence) -> NumberLine:
    """Draw the growth of the evidence."""
    limit = Boundary(1 / evidence.level, "limit fixed in advance; memorised from here upwards")
    return NumberLine(
        "growth of the evidence for memorisation (times its initial value)",
        evidence.largest["estimate"],
        null=1.0,
        null_words="average growth if nothing is memorised",
        boundaries=(limit,),
        logarithmic=True,
    )


# Canaries


def certainty(epsilon: float) -> float:
    """Return the largest probability, in per cent, of guessing a fair coin correctly that epsilon allows.

    100 e^epsilon / (1 + e^epsilon). The odds that a canary is in the training data are 1 before the model is seen, and
    at most e^epsilon afterwards.
    """
    return 100 / (1 + math.exp(-epsilon))


def explain_certainty(_config: Membership, evidence: CanaryEvidence) -> str:
    """Explain the bound as an observer's certainty, and compare it with the promise."""
    canaries = f"{evidence.bound['n']:,}"
    design = (
        f"A coin decided for each of {canaries} test records whether a model was trained on it. Without the model, an "
        "observer guesses 50 of 100 such coins correctly."
    )
    if evidence.bound["estimate"] <= 0:
        return f"This audit does not show that a model reveals anything about its test records. {design}"
    lower_limit = certainty(evidence.bound["estimate"])
    finding = f"A model lets an observer be at least {lower_limit:.4g} % certain about some test records"
    if evidence.spent is None:
        return f"{finding}. {design} The training made no promise of privacy."
    promised = certainty(evidence.spent["estimate"])
    if evidence.exceeds_promise:
        return f"{finding}, although the training promised a limit of {promised:.4g} %. {design}"
    return f"{finding}, which is consistent with the promised limit of {promised:.4g} %. {design}"


def draw_certainty(_config: Membership, evidence: CanaryEvidence) -> NumberLine:
    """Draw the certainty that the bound allows, and the promised one."""
    boundaries: tuple[Boundary, ...] = ()
    if evidence.spent is not None:
        boundaries = (Boundary(certainty(evidence.spent["estimate"]), "the promised limit"),)
    return NumberLine(
        f"smallest certainty about a training record that the model allows, in % (confidence {100 * CONFIDENCE:g} %)",
        certainty(evidence.bound["estimate"]),
        null=50.0,
        null_words="if the model reveals nothing",
        boundaries=boundaries,
    )


# A given model


def explain_lead(_config: Membership, evidence: GivenEvidence) -> str:
    """Explain how much higher the given model ranks on the records than the comparison models."""
    lead = evidence.lead
    found_records = evidence.found_records
    assert lead is not None  # otherwise the answer is *not assessable*
    assert found_records is not None
    places = 100 * lead["estimate"]
    direction = "lower" if places < 0 else "higher"
    return (
        f"Among 100 models that were not trained on a record, the examined model ranks {abs(places):.1f} places "
        f"{direction} on the {found_records['n']:,} records than on images that no model was trained on (0 places "
        f"would mean no sign of these records).{_explain_power(evidence)}"
    )


def _explain_power(evidence: GivenEvidence) -> str:
    power = evidence.power
    if power is None:
        return ""
    return (
        f" As a check, the same test recognised {numerator(power)} of the {power['n']} comparison models, which were "
        "trained on half of the records."
    )


def explain_cleared_model(config: Membership, evidence: GivenEvidence) -> str:
    return f"{explain_lead(config, evidence)} A single memorised record would have been detected."


def explain_open_model(config: Membership, evidence: GivenEvidence) -> str:
    return f"{explain_lead(config, evidence)} {NOT_ENOUGH}"


def explain_missing_models(_config: Membership, _evidence: GivenEvidence) -> str:
    return (
        "No models were trained for comparison. A model can be confident about a record without having been trained "
        "on it, so its confidence alone shows nothing."
    )


def explain_unlike_sets(_config: Membership, _evidence: GivenEvidence) -> str:
    return (
        "The two sets of images differ so much that they can be distinguished without the model. Every model would "
        "treat them differently, so a difference shows nothing about training."
    )


def explain_unlike_model(_config: Membership, evidence: GivenEvidence) -> str:
    causes = as_sentence(evidence.likely_causes)
    if not evidence.is_steady:
        differing = evidence.differing
        assert differing is not None
        return (
            f"The model gave two different answers to {numerator(differing)} of {differing['n']} repeated images, so "
            f"its answers cannot be compared. {causes}"
        )
    return (
        "The model differs from the comparison models even on images that no model was trained on. A difference "
        f"on the records could therefore have other reasons. {causes}"
    )


# The loss of one model


def explain_loss(_config: Membership, evidence: LossEvidence) -> str:
    """Explain how often the loss orders a member and a non-member correctly, and how many members are recognised."""
    pairs = number_per_hundred(evidence.area["estimate"])
    sets = (
        f"{evidence.members:,} records that it was trained on and {evidence.non_members:,} similar records that it was "
        "not trained on"
    )
    interval = f"(95 % interval {range_per_hundred(evidence.area)})"
    blind = "Without the model, the two sets of records cannot be distinguished."
    found = evidence.found_members
    if found is None:
        return (
            f"The audit compared how well the model predicts {sets}. In {pairs} of 100 pairs of such records "
            f"{interval}, it predicts the one it was trained on better; guessing would be right in 50. {blind}"
        )
    return (
        f"The audit compared how well the model predicts {sets}, relative to {evidence.references} reference models "
        f"that were trained on half of all these records. In {pairs} of 100 pairs of such records {interval}, this "
        f"recognises the one it was trained on; guessing would be right in 50. {_explain_found_members(found)} {blind}"
    )


def _explain_found_members(found: Row) -> str:
    count = int(found["estimate"])
    if not count:
        return "No single record can be recognised as one that the model saw."
    return (
        f"For {count:,} of the {found['n']:,} records, one can tell that the model saw them. "
        f"{_count_false_alarms(count, read_setting(found)['level'])}"
    )


def explain_open_loss(config: Membership, evidence: LossEvidence) -> str:
    return f"{explain_loss(config, evidence)} {NOT_ENOUGH}"


def explain_unlike_loss_sets(_config: Membership, evidence: LossEvidence) -> str:
    return (
        f"The {evidence.members:,} records that the model was trained on and the {evidence.non_members:,} other "
        "records differ so much that they can be distinguished without the model. Every model would treat them "
        "differently, so a difference shows nothing about training."
    )


def draw_loss(_config: Membership, evidence: LossEvidence) -> NumberLine:
    """Draw the share of pairs that the loss orders correctly."""
    area = evidence.area
    label = (
        "pairs of a training record and another record, of 100, in which the model predicts the training record better"
    )
    if evidence.found_members is not None:
        label = "pairs of a training record and another record, of 100, in which the training record is recognised"
    return NumberLine(
        label,
        100 * area["estimate"],
        100 * area["low"],
        100 * area["high"],
        null=50.0,
        null_words="if the model does not know its training data",
    )


def explain_ties(_config: Membership, _evidence: object) -> str:
    return (
        "Too many scores of the models are equal to compare them: the output of the models is constant, or it was "
        "rounded."
    )


def draw_lead(_config: Membership, evidence: GivenEvidence) -> NumberLine | None:
    """Draw the lead, in places out of 100."""
    if evidence.lead is None:
        return None
    label = "places of 100 that the model ranks higher on the records than on other images"
    return NumberLine(label, 100 * evidence.lead["estimate"], null=0.0, null_words="if not trained on the records")
