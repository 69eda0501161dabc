"""The audit's answer: the rules that decide, with their words, and what a search over training choices moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.deja_vu import plain_words as plain
from tasks.audits.deja_vu import sentences
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.evidence import MOST_DISAGREEING, Evidence, is_given, is_sent, read_evidence, score_name
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import Certificate
from tasks.contract.objectives import Objective, Objectives
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Row, index_rows, name_of, row_name
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import ANSWERS, BELOW_RELEVANT_SIZE, NOT_ASSESSABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not detected", BELOW_RELEVANT_SIZE, "undecided")},
    NOT_ASSESSABLE: ANSWERS[NOT_ASSESSABLE],
}
LEVEL = 0.025  # of the one-sided test
UNLIKE = 0.01  # of the two-sided test that a reference distinguishes A from B


def thresholds(config: DejaVu) -> Mapping[str, str]:
    """The numbers in the rules' texts, with the name of the score and of its subjects."""
    return {
        "level": f"{LEVEL:g}",
        "unlike": f"{UNLIKE:g}",
        "disagreeing": f"{100 * MOST_DISAGREEING:g}",
        "negligible": f"{100 * config.negligible:g}",
        "score": "corrected deja vu score" if is_given(config) else "deja vu score",
        "subjects": "encoders" if is_given(config) else "pairs of models",
    }


def _is_above(score: Row, size: float) -> bool:
    """Whether the test rejects that nothing is kept, and the whole interval lies above a size."""
    return score["p_value"] is not None and bool(score["p_value"] <= LEVEL and score["low"] > size)


ERROR = "Of 100 {subjects} that keep nothing of single pictures, at most 2 or 3 would be called memorised."


def _state_error(config: DejaVu, _evidence: Evidence) -> str:
    return f". {ERROR.format_map(thresholds(config))}"


def refuse(describe_reason: Callable[[Evidence], str], **words: Any) -> dict[str, Any]:
    """The words of a case in which nothing follows from the score: verdict and certificate end in the reason.

    `words` are further fields of `Case`, instead of these.
    """
    defaults: dict[str, Any] = {
        "because": lambda _config, evidence: f". {describe_reason(evidence)}",
        "explain": lambda config, evidence: f"{plain.explain_score(config, evidence)} {describe_reason(evidence)}",
        "rows": lambda evidence: evidence.names,
    }
    return defaults | words


# Unlike sets can feign a memory and hide one: they are asked about before the score.
RULES = Rules[Evidence](
    (
        Case(
            NOT_ASSESSABLE,
            "the reference, too, is right more often on one of the two sets than on the other (two-sided randomisation "
            "test, p at most {unlike}), or this was not tested, since a difference between the sets can pass for "
            "memory or hide it",
            lambda evidence: evidence.reference_p is None or evidence.reference_p <= UNLIKE,
            "Of 100 encoders whose two sets were drawn alike, at most 1 would not be judged.",
            scope="a third-party encoder",
            applies=is_given,
            **refuse(sentences.describe_unlike_sets, steps=plain.mend_sets),
        ),
        Case(
            "memorised",
            "a randomisation test finds the {score} above 0 (one-sided, p at most {level}) and the whole 95 % interval "
            "of the score lies above {negligible} percentage points",
            lambda evidence: _is_above(evidence.score, evidence.negligible),
            ERROR,
            because=_state_error,
            reasons=sentences.remarks,
            steps=plain.SHARE_LESS,
        ),
        # Crops that are answered otherwise than pictures hide a memory, and cannot feign one.
        Case(
            NOT_ASSESSABLE,
            "more than {disagreeing} % of the public pictures that also stood among the crops have another embedding "
            "there, or none stood there (given.repeated), since crops that are not answered as pictures are must not "
            "pass for innocence",
            lambda evidence: not evidence.agrees,
            scope="embeddings that were sent",
            applies=is_sent,
            **refuse(sentences.describe_repeats, steps=plain.REPEATED_PICTURES),
        ),
        tie_rule(
            **refuse(
                sentences.describe_tied_embeddings,
                describe=None,
                rows=lambda evidence: (name_of(evidence.tied), *evidence.names),
                steps=plain.UNTIED_EMBEDDINGS,
            ),
        ),
        Case(
            BELOW_RELEVANT_SIZE,
            "the test finds the {score} above 0, and its whole interval lies above 0 and below {negligible} percentage "
            "points",
            lambda evidence: _is_above(evidence.score, 0.0) and evidence.score["high"] < evidence.negligible,
            because=sentences.exclude_score,
            reasons=sentences.remarks,
            steps=plain.MORE_PICTURES,
        ),
        Case(
            "not detected",
            "the whole interval lies below {negligible} percentage points",
            lambda evidence: evidence.score["high"] < evidence.negligible,
            because=sentences.exclude_score,
            reasons=sentences.remarks,
            steps=plain.OTHER_LAYERS,
        ),
        undecided(because=sentences.admit_score, reasons=sentences.remarks, steps=plain.MORE_PICTURES),
    ),
    thresholds,
)

LIMITS = (
    "The score is an average over pictures, which clears no single one: an audit that finds nothing excludes that a "
    "share of them is remembered. The audit speaks of this one pair of trainings and of what the nearest public "
    "pictures give away: an attacker who knows more may learn more. It asks for the class of the object alone. Where A "
    "and B are not drawn by chance from the same pictures, as near duplicates within one of them, the "
    "score has another null."
)
LIMITS_OF_GIVEN = (
    "The score is an average over pictures, which clears no single one. The audit speaks of this encoder, of these "
    "pictures, and of what the nearest public pictures give away: an "
    "attacker who knows more may learn more. It asks for the class of the object alone, and takes its owner's word for "
    "which pictures it was trained on: A and B must have been drawn by chance from the same pictures."
)

LIMITS_OF_SENT = (
    f"{LIMITS_OF_GIVEN} Nothing hides that a picture is a crop: an owner who looks at each and answers crops by noise "
    "or by another model, and whole pictures as they should be, is not found out. The encoder's file, or asking the "
    "deployed encoder oneself, leaves no room for it."
)


def describe_limits(config: DejaVu, _evidence: Evidence | None) -> str:
    if is_sent(config):
        return LIMITS_OF_SENT
    return LIMITS_OF_GIVEN if is_given(config) else LIMITS


def _describe_absence(_config: DejaVu) -> str:
    return "the labels of too few pictures were inferred."


ANSWERING = Answering[Evidence](
    asked=lambda _config, _evidence: plain.ASKED,
    rules=RULES,
    read=read_evidence,
    unread=_describe_absence,
    limits=describe_limits,
    describe=sentences.describe_evidence,
    rows=lambda evidence: evidence.names[:1],
    explain=plain.explain_score,
    line=plain.draw_score,
    null=Null(
        holds=lambda config: config.is_null,
        remark=lambda _config: "Neither model was trained on the pictures that are asked about: this is a null.",
        proper="trained=own",
        notice=plain.NOTICE_OF_NULL,
    ),
)


def verdict(config: DejaVu, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: DejaVu, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


def memorization_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """The row of the score on which the answer rests."""
    return index_rows(summary).get(score_name(config))


def _probe_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """The row of the validation accuracy of a linear probe on the same layer; it is there if `probe` is measured."""
    layer = config.asked_layers[0]
    return index_rows(summary).get(
        row_name("probe accuracy", epoch=config.training.last_epoch, layer=layer, split="validation")
    )


# What a search over training choices moves.
OBJECTIVES = Objectives(
    memorization=Objective("deja vu score", "share", "lower", memorization_row),
    utility=Objective("probe accuracy", "share", "higher", _probe_row),
    allowance=0.01,
)
