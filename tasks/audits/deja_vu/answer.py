"""Decision rules of the audit with their texts, and the objectives of a search over training choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.deja_vu import plain_words as plain
from tasks.audits.deja_vu import sentences
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.evidence import MOST_DISAGREEING, Evidence, is_given, is_sent, read_evidence, score_name
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import Certificate
from tasks.contract.conditions import Condition, confirm, ensure, require
from tasks.contract.objectives import Objective, Objectives
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Row, index_rows, name_of, row_name
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, NOT_ASSESSABLE, Answer, Meaning, Verdict, select_meanings

MEANINGS: Mapping[Answer, Meaning] = select_meanings(
    ("memorised", "not detected", BELOW_RELEVANT_SIZE),
    {
        "memorised": "Anyone who can use the model can infer which kind of object a training image showed, from a part "
        "of the image without the object.",
    },
)
LEVEL = 0.025  # significance level of the one-sided test
UNLIKE = 0.01  # significance level of the two-sided test of whether the reference distinguishes A from B


def thresholds(config: DejaVu) -> Mapping[str, str]:
    """Return the numbers that appear in the rule texts, the score name and the name of what is audited."""
    return {
        "level": f"{LEVEL:g}",
        "unlike": f"{UNLIKE:g}",
        "disagreeing": f"{100 * MOST_DISAGREEING:g}",
        "negligible": f"{100 * config.negligible:g}",
        "score": "corrected deja vu score" if is_given(config) else "deja vu score",
        "subjects": "encoders" if is_given(config) else "pairs of models",
    }


def _is_above(score: Row, size: float) -> bool:
    """Return whether the test rejects a score of 0 and the whole interval is above this size."""
    return score["p_value"] is not None and bool(score["p_value"] <= LEVEL and score["low"] > size)


ERROR = "Of 100 {subjects} that memorise no image, at most 2 or 3 would be reported as memorised."


def _state_error(config: DejaVu, _evidence: Evidence) -> str:
    return f". {ERROR.format_map(thresholds(config))}"


def refuse(describe_reason: Callable[[Evidence], str], **words: Any) -> dict[str, Any]:
    """Build the texts for a case in which the score cannot be interpreted.

    Verdict and certificate both state the reason. `words` are further fields of `Case` and override the defaults.
    """
    defaults: dict[str, Any] = {
        "because": lambda _config, evidence: f". {describe_reason(evidence)}",
        "explain": lambda _config, evidence: f"{plain.NO_CONCLUSION} {describe_reason(evidence)}",
        "rows": lambda evidence: evidence.names,
    }
    return defaults | words


# Differences between the sets can imitate memorisation and can hide it, so this case is checked before the score.
RULES = Rules[Evidence](
    (
        Case(
            NOT_ASSESSABLE,
            "the reference also names objects more often on one of the two sets than on the other (two-sided "
            "randomisation test, p at most {unlike}), or this was not tested: a difference between the sets can "
            "imitate or hide memorisation",
            lambda evidence: evidence.reference_p is None or evidence.reference_p <= UNLIKE,
            "Of 100 encoders whose two sets were drawn in the same way, at most 1 would be reported as not assessable.",
            scope="a third-party encoder",
            applies=is_given,
            **refuse(sentences.describe_unlike_sets, explain=plain.explain_unlike_sets, steps=plain.mend_sets),
        ),
        Case(
            "memorised",
            "the {score} is above 0 (one-sided randomisation test, p at most {level}) and its whole 95 % interval is "
            "above {negligible} percentage points",
            lambda evidence: _is_above(evidence.score, evidence.negligible),
            ERROR,
            because=_state_error,
            reasons=sentences.remarks,
            steps=plain.LIMIT_ACCESS,
        ),
        # Processing crops differently from whole images can hide memorisation but cannot imitate it.
        Case(
            NOT_ASSESSABLE,
            "more than {disagreeing} % of the public images that were repeated among the crops "
            "(given.repeated_images) have another embedding there, or none were repeated: crops that are processed "
            "differently from whole images can hide memorisation",
            lambda evidence: not evidence.agrees,
            scope="a table of embeddings",
            applies=is_sent,
            **refuse(sentences.describe_repeats, steps=plain.REPEATED_IMAGES),
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
            "the {score} is above 0 by the same test, and its whole interval is above 0 and below {negligible} "
            "percentage points",
            lambda evidence: _is_above(evidence.score, 0.0) and evidence.score["high"] < evidence.negligible,
            because=sentences.exclude_score,
            reasons=sentences.remarks,
            steps=plain.MORE_IMAGES,
        ),
        Case(
            "not detected",
            "the whole interval is below {negligible} percentage points",
            lambda evidence: evidence.score["high"] < evidence.negligible,
            because=sentences.exclude_score,
            reasons=sentences.remarks,
            steps=plain.advise_other_layers,
        ),
        undecided(because=sentences.admit_score, reasons=sentences.remarks, steps=plain.MORE_IMAGES),
    ),
    thresholds,
)

LIMITS = (
    "The result is an average over images: even if the audit finds nothing, some images may be memorised. The answer "
    "describes this pair of trainings and an attacker who compares the outputs of the model (embeddings) with those "
    "for public images, whose objects are known; an attacker who knows more may learn more. Only the class of the "
    "object is inferred."
)
DRAWN_IMAGES = ensure("the images of the two models were drawn at random from the same source")
NO_NEAR_COPIES = require("no image has a near copy in its set of images", "the owner of the data")
LIMITS_OF_GIVEN = (
    "The result is an average over images: even if the audit finds nothing, some images may be memorised. The answer "
    "describes this encoder, these images and an attacker who compares the outputs of the model (embeddings) with "
    "those for public images, whose objects are known; an attacker who knows more may learn more. Only the class of "
    "the object is inferred."
)
STATED_IMAGES = require(
    "the model was trained on the training images (A) and not on the comparison images (B), and both were drawn at "
    "random from the same source",
    "the owner of the model",
)
LIMITS_OF_SENT = (
    f"{LIMITS_OF_GIVEN} Crops are recognisable: the audit does not detect an owner who embeds whole images correctly "
    "and replaces the embeddings of crops by noise or by those of another model. To exclude this, obtain the encoder's "
    "file or query the deployed encoder yourself."
)


def describe_limits(config: DejaVu, _evidence: Evidence | None) -> str:
    if not is_given(config):
        return LIMITS
    return LIMITS_OF_SENT if is_sent(config) else LIMITS_OF_GIVEN


def list_conditions(config: DejaVu, evidence: Evidence | None) -> Iterator[Condition]:
    if not is_given(config):
        yield DRAWN_IMAGES
        yield NO_NEAR_COPIES
        return
    yield STATED_IMAGES
    if evidence is not None:
        p = evidence.reference_p
        yield confirm(plain.describe_alike_sets(config, evidence), None if p is None else p > UNLIKE)


def _describe_absence(_config: DejaVu) -> str:
    return "too few images have an inferred label."


ANSWERING = Answering[Evidence](
    asked=lambda _config, _evidence: plain.ASKED,
    rules=RULES,
    read=read_evidence,
    unread=_describe_absence,
    limits=describe_limits,
    conditions=list_conditions,
    describe=sentences.describe_evidence,
    rows=lambda evidence: evidence.names[:1],
    explain=plain.explain_score,
    line=plain.draw_score,
    examined=plain.name_models,
    null=Null(
        holds=lambda config: config.is_null,
        remark=lambda _config: "This is a control run: neither model was trained on the evaluated images.",
        proper="training_sets=own",
        notice=plain.NOTICE_OF_NULL,
    ),
)


def verdict(config: DejaVu, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: DejaVu, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


def memorization_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """Return the row of the decisive score."""
    return index_rows(summary).get(score_name(config))


def _probe_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """Return the probe's validation accuracy at the same layer. None unless `probe` is measured."""
    layer = config.asked_layers[0]
    return index_rows(summary).get(
        row_name("probe accuracy", epoch=config.training.last_epoch, layer=layer, split="validation")
    )


OBJECTIVES = Objectives(
    memorization=Objective("deja vu score", "share", "lower", memorization_row, "deja vu score {} %"),
    utility=Objective("probe accuracy", "share", "higher", _probe_row),
    allowance=0.01,
)
