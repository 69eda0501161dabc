"""Decision rules for halves of the records: every record is tested over models that each train on one half."""

from __future__ import annotations

from tasks.audits.membership import plain_words as plain
from tasks.audits.membership.config import Halves, Membership
from tasks.audits.membership.halves_evidence import HalvesEvidence, read_halves_evidence
from tasks.audits.membership.thresholds import thresholds
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import STEPS
from tasks.contract.conditions import ensure
from tasks.contract.power import single_item
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import p_in_words, read_setting
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import BELOW_RELEVANT_SIZE

CASES: tuple[Case[HalvesEvidence], ...] = (
    Case(
        "memorised",
        "at least one record is memorised: the p-value of the exact test that its effect is at most {nats} nats, "
        "adjusted for the number of records, is at most {level} %",
        lambda evidence: evidence.is_any_memorised,
        "If nothing is memorised, at most {level} of 100 audits answer “memorised”.",
        steps=plain.advise_removal,
        further_error="On average, at most {level} of 100 identified records are false alarms.",
    ),
    tie_rule(explain=plain.explain_ties),
    Case(
        BELOW_RELEVANT_SIZE,
        "at least one record has an effect above 0, the 95 % interval of every attack's area under the curve ends "
        f"below {{auc}}, and {single_item('record')}",
        lambda evidence: evidence.do_attacks_fail and evidence.is_any_found and evidence.resolution.finds_one,
        explain=plain.explain_small_effects,
    ),
    Case(
        "not detected",
        "no record has an effect above 0, the 95 % interval of every attack's area under the curve ends below {auc}, "
        f"and {single_item('record')}",
        lambda evidence: evidence.do_attacks_fail and not evidence.is_any_found and evidence.resolution.finds_one,
        steps=STEPS["cleared"],
        explain=plain.explain_detection_limit,
    ),
    undecided(
        reasons=lambda _config, evidence: (evidence.resolution.explain(),),
        steps=plain.advise_more_models,
        explain=plain.explain_open_halves,
    ),
)
LIMITS = (
    "The audit describes this way of training on these data, not one particular deployed model. It tests what a model "
    "reveals about a record itself, not about near copies of the record. Records that are not listed are not proven "
    "safe. If the data set is small, a record may be listed only because training on another record changed the "
    "model’s answer about it."
)
DRAWN_HALVES = ensure("chance decided on which half of the records each model was trained")


def has_halves(config: Membership) -> bool:
    return isinstance(config.question, Halves)


def describe_evidence(config: Membership, evidence: HalvesEvidence) -> str:
    """Describe the identified records and the strongest attack."""
    found_records = evidence.found_records
    sentence = (
        f"{found_records['estimate']:,.0f} of {found_records['n']:,} records can be identified as training data (exact "
        f"test, false discovery rate at most {100 * evidence.level:g} %; {p_in_words(found_records['p_value'])} if no "
        "record has an effect)"
    )
    smallest = config.smallest_effect
    if found_records["estimate"] and smallest:
        sentence += f", {evidence.memorised['estimate']:,.0f} of them with an effect above {smallest:g} nats"
    attack = evidence.attack
    if attack is None:
        return sentence
    return (
        f"{sentence}; the strongest attack, {read_setting(attack)['attack']}, has an area under the curve of "
        f"{attack['estimate']:.3f} (95 % interval {attack['low']:.3f} to {attack['high']:.3f}, {attack['n']} models; "
        "0.5 if nothing is memorised)"
    )


HALVES = Answering[HalvesEvidence](
    scope="halves of the records",
    applies=has_halves,
    asked=lambda _config, _evidence: (
        "Can someone who queries the model tell whether a record was in its training data?"
    ),
    rules=Rules(CASES, thresholds),
    read=read_halves_evidence,
    unread=lambda _config: "no record was tested.",
    limits=lambda _config, _evidence: LIMITS,
    conditions=lambda _config, _evidence: (DRAWN_HALVES,),
    describe=describe_evidence,
    rows=lambda evidence: evidence.rows,
    explain=plain.explain_records,
    line=plain.draw_records,
    examined=plain.name_models,
    null=Null(
        holds=lambda config: config.question.is_null,
        remark=lambda _config: "This is a control run: no model was trained on the tested records.",
        proper="is_null=false",
        notice=plain.CONTROL_RUN,
    ),
)
