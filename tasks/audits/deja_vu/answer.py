"""The audit's answer: the evidence in its summary, the rules that decide, and both in words.

It rests on one row that was chosen beforehand: the deja vu score of the most confident pictures, after the last epoch,
at the first layer and of the first number of neighbours. Of a third-party encoder it is the corrected score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.deja_vu.config import Corner, DejaVu
from tasks.audits.deja_vu.encoder_config import EncoderTable, Given, TrainedReferences
from tasks.audits.deja_vu.measures.agreement import DISAGREEING
from tasks.audits.deja_vu.measures.references import GAIN, RANK
from tasks.audits.deja_vu.measures.scores import BOTH, CORRECTED_SCORE, SCORE
from tasks.contract.objectives import Objective, Objectives
from tasks.contract.rules import Rule, Rules, explain_interval, undecided
from tasks.contract.summaries import Name, Row, Rows, first_row, index_rows, name_of, numerator, p_in_words, row_name
from tasks.contract.ties import NOT_JUDGED, describe_ties, most_tied, tie_rule
from tasks.contract.verdict import ANSWERS, DETECTABLE, Answer, Meaning, Verdict
from tasks.external.causes import ALTERED, INTERFACE, TRAINING_MODE, as_sentence, list_causes

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not seen", DETECTABLE, "undecided")},
    NOT_JUDGED: Meaning("the two sets or the answers for crops may not be what they must be, so nothing follows"),
}
LEVEL = 0.025  # of the one-sided test
UNLIKE = 0.01  # of the two-sided test that a reference distinguishes A from B
MOST_DISAGREEING = 0.05  # of the pictures that were handed out twice
SAYS_ALONE = 0.5  # of the objects that a background gives away to anyone: above it correlation hides memory
TARGET, REFERENCE = "target", "reference"


@dataclass(frozen=True)
class Evidence:
    """What the answer rests on.

    `score` is the summary row of the score that decides. `accuracies` are those of the target and of the reference, by
    model and set: A and B of a third-party encoder, else both. `reference_p` is the two-sided p-value of the
    reference's accuracies on A and on B being the same; None where that was not tested. `rank` is the row of the
    encoder's rank among references; None without several. `repeats` is the row of the pictures that were handed out
    twice; None without any. `tied` is the row of the encoder with most equal embeddings. `names` are the (metric,
    setting) of the score and, where it was tested, of the reference's difference.
    """

    names: tuple[tuple[str, str], ...]
    score: Row
    accuracies: Mapping[tuple[str, str], float]
    reference_p: float | None
    rank: Row | None
    negligible: float
    repeats: Row | None = None
    tied: Row | None = None

    @property
    def agrees(self) -> bool:
        return self.repeats is not None and self.repeats["estimate"] <= MOST_DISAGREEING


def decisive_name(config: DejaVu, metric: str, **fields: str) -> Name:
    """The name of a row of the attack and the percentage that decide."""
    layer, k = config.asked_layers[0], config.k[0]
    return row_name(metric, epoch=config.training.last_epoch, layer=layer, k=k, percent=config.confident, **fields)


def score_name(config: DejaVu) -> Name:
    """The name of the decisive row: of a given encoder that of the corrected score."""
    return decisive_name(config, CORRECTED_SCORE if is_given(config) else SCORE)


def read_evidence(config: DejaVu, rows: Rows) -> Evidence | None:
    """The evidence in the rows of a summary; None where the labels of too few pictures were inferred."""
    name = score_name(config)
    if name not in rows or rows[name]["estimate"] is None:
        return None
    sets = {each: {"set": each} for each in "AB"} if is_given(config) else {BOTH: {}}
    reference = row_name(GAIN, model=REFERENCE, percent=config.confident)
    return Evidence(
        names=tuple(each for each in (name, reference) if each in rows),
        score=rows[name],
        accuracies={
            (model, each): rows[decisive_name(config, "accuracy", model=model, **fields)]["estimate"]
            for model in (TARGET, REFERENCE)
            for each, fields in sets.items()
        },
        reference_p=rows[reference]["p_value"] if reference in rows else None,
        rank=rows.get(row_name(RANK, percent=config.confident)),
        negligible=config.negligible,
        repeats=first_row(rows, DISAGREEING),
        tied=most_tied(rows),
    )


def is_given(config: DejaVu) -> bool:
    return isinstance(config.encoders, Given)


def is_sent(config: DejaVu) -> bool:
    """Whether the encoder stays with its owner, who sent embeddings."""
    match config.encoders:
        case Given(encoder=EncoderTable()):
            return True
    return False


def has_trained_references(config: DejaVu) -> bool:
    """Whether a given encoder is compared with references that are trained here."""
    match config.encoders:
        case Given(comparison=TrainedReferences()):
            return True
    return False


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


def is_above(score: Row, size: float) -> bool:
    """Whether the test rejects that nothing is kept, and the whole interval lies above a size."""
    return score["p_value"] is not None and bool(score["p_value"] <= LEVEL and score["low"] > size)


# Unlike sets can feign a memory and hide one: they are asked about before the score.
RULES = Rules[Evidence](
    (
        Rule(
            NOT_JUDGED,
            "the reference, too, is right more often on one of the two sets than on the other (two-sided randomisation "
            "test, p at most {unlike}), or this was not tested, since a difference between the sets can pass for "
            "memory or hide it",
            lambda evidence: evidence.reference_p is None or evidence.reference_p <= UNLIKE,
            "Of 100 encoders whose two sets were drawn alike, at most 1 would not be judged.",
            scope="a third-party encoder",
            applies=is_given,
        ),
        Rule(
            "memorised",
            "a randomisation test finds the {score} above 0 (one-sided, p at most {level}) and the whole 95 % interval "
            "of the score lies above {negligible} percentage points",
            lambda evidence: is_above(evidence.score, evidence.negligible),
            "Of 100 {subjects} that keep nothing of single pictures, at most 2 or 3 would be called memorised.",
        ),
        # Crops that are answered otherwise than pictures hide a memory, and cannot feign one.
        Rule(
            NOT_JUDGED,
            "more than {disagreeing} % of the public pictures that also stood among the crops have another embedding "
            "there, or none stood there (given.repeated), since crops that are not answered as pictures are must not "
            "pass for innocence",
            lambda evidence: not evidence.agrees,
            scope="embeddings that were sent",
            applies=is_sent,
        ),
        tie_rule(),
        Rule(
            DETECTABLE,
            "the test finds the {score} above 0, and its whole interval lies above 0 and below {negligible} percentage "
            "points",
            lambda evidence: is_above(evidence.score, 0.0) and evidence.score["high"] < evidence.negligible,
        ),
        Rule(
            "not seen",
            "the whole interval lies below {negligible} percentage points",
            lambda evidence: evidence.score["high"] < evidence.negligible,
        ),
        undecided(),
    ),
    thresholds,
)

UNLIKE_SETS, DISAGREES, TIED_EMBEDDINGS = (rule for rule in RULES.cases if rule.answer == NOT_JUDGED)

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


def describe_limits(config: DejaVu) -> str:
    return LIMITS_OF_SENT if is_sent(config) else LIMITS_OF_GIVEN if is_given(config) else LIMITS


def verdict(config: DejaVu, summary: pa.Table) -> Verdict:
    """The answer by RULES, with its evidence in words."""
    rows = index_rows(summary)
    evidence = read_evidence(config, rows)
    limits = describe_limits(config)
    if evidence is None:
        few = "Undecided: the labels of too few pictures were inferred."
        return Verdict("undecided", few, limits, tuple(rows)[:1])
    rule = RULES.decide(config, evidence)
    describe = describe_encoder if is_given(config) else describe_pair
    sentence = f"{rule.answer.capitalize()}: {describe(config, evidence)}{describe_reason(config, rule, evidence)}"
    if rule.answer == NOT_JUDGED:
        first = (name_of(evidence.tied),) if rule is TIED_EMBEDDINGS and evidence.tied is not None else ()
        return Verdict(rule.answer, sentence, limits, (*first, *evidence.names))
    return Verdict(rule.answer, " ".join([sentence, *remarks(config, evidence)]), limits, evidence.names[:1])


def describe_reason(config: DejaVu, rule: Rule[Evidence], evidence: Evidence) -> str:
    """What follows the evidence: why the answer is this one."""
    if rule.answer == NOT_JUDGED:
        return f". {describe_refusal(rule, evidence)}"
    if rule.answer == "memorised":
        return f". {rule.error.format_map(thresholds(config))}"
    return explain_interval(rule.answer, evidence.score["high"], evidence.negligible, "attack more pictures")


def describe_refusal(rule: Rule[Evidence], evidence: Evidence) -> str:
    """Why nothing follows from the score."""
    if rule is TIED_EMBEDDINGS and evidence.tied is not None:
        return f"But {describe_ties(evidence.tied)}."
    return describe_unlike_sets(evidence.reference_p) if rule is UNLIKE_SETS else describe_repeats(evidence.repeats)


CROP_CAUSES = list_causes(f"for one of the two {INTERFACE}", TRAINING_MODE, ALTERED)


def describe_repeats(repeats: Row | None) -> str:
    """Why the table is not what one encoder says of pictures."""
    if repeats is None:
        return (
            "But no whole pictures stood among the crops, so nothing shows that crops were answered as pictures are: "
            "such a table can accuse and not clear."
        )
    return (
        f"But {numerator(repeats)} of {repeats['n']} public pictures that also stood among the crops have another "
        f"embedding there: crops were not answered as pictures are. {as_sentence(CROP_CAUSES)}"
    )


def describe_unlike_sets(p: float | None) -> str:
    """Why nothing follows of two sets that a reference distinguishes with this p, or None where it was not tested."""
    if p is None:
        return "But the reference was not tested on the two sets, so they may not have been drawn alike."
    return (
        f"But the reference, too, is right more often of one set than of the other ({p_in_words(p)}): they were not "
        "drawn alike, or it was trained on some of them, and the score shows either as well as memory; give held-out "
        "pictures that were drawn together with the training pictures."
    )


def describe_pair(config: DejaVu, evidence: Evidence) -> str:
    """Both models' accuracies and the score with its interval and p, in words."""
    target, reference = (format_percent(evidence.accuracies[model, BOTH]) for model in (TARGET, REFERENCE))
    return (
        f"{describe_view(config)}, a model that was trained on it finds public pictures of the same object"
        f"{describe_confidence(config)} in {target} of cases, a model that was not in {reference}; the difference, the "
        f"deja vu score, is {describe_score(evidence.score, ', both ways averaged')}"
    )


def describe_encoder(config: DejaVu, evidence: Evidence) -> str:
    """The accuracies of an encoder and its reference, and the corrected score with its interval and p, in words."""
    shares = {name: format_percent(share) for name, share in evidence.accuracies.items()}
    whose = "a reference that was trained here" if has_trained_references(config) else "the given reference"
    return (
        f"{describe_view(config)}, the given encoder finds public pictures of the same object"
        f"{describe_confidence(config)} in {shares[TARGET, 'A']} of cases where it was trained on the picture and in "
        f"{shares[TARGET, 'B']} where it was not; {whose}, on neither, in {shares[REFERENCE, 'A']} and "
        f"{shares[REFERENCE, 'B']}; what the encoder tells more than the reference, less that of held-out pictures, "
        f"the corrected deja vu score, is {describe_score(evidence.score)}"
    )


def describe_score(score: Row, how: str = "") -> str:
    return (
        f"{score['estimate']:.3f} (95 % interval {score['low']:.3f} to {score['high']:.3f}, "
        f"{p_in_words(score['p_value'])}, over {score['n']:,} pictures{how}; 0 where nothing is memorised)"
    )


def describe_view(config: DejaVu) -> str:
    """What a model sees of a picture."""
    what = (
        "the lower left corner of a picture"
        if isinstance(config.crop, Corner)
        else "a part of a picture without its object"
    )
    return f"shown {what}"


def describe_confidence(config: DejaVu) -> str:
    """Which pictures count."""
    if config.confident == 100:
        return " by majority"
    return f" by majority, of the {config.confident} % of pictures that its neighbours agree on most,"


def format_percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def remarks(config: DejaVu, evidence: Evidence) -> Iterator[str]:
    """What a reader must know beside the answer, in sentences."""
    rank = evidence.rank
    if rank is not None:
        yield (
            f"By what it tells more of its training pictures it is number {rank['estimate']:.0f} of {rank['n']} "
            f"models, the others references ({p_in_words(rank['p_value'])})."
        )
    known = evidence.accuracies[REFERENCE, "A" if is_given(config) else BOTH]
    if known > SAYS_ALONE:
        yield (
            f"A model that never saw the pictures names {format_percent(known)} of the objects "
            "rightly, so that their backgrounds tell them; what is known anyway cannot be shown to be remembered."
        )
    if config.is_null:
        yield "Neither model was trained on the pictures that are asked about: this is a null."


def memorization_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """The row of the score on which the answer rests."""
    return index_rows(summary).get(score_name(config))


def probe_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """The row of the validation accuracy of a linear probe on the same layer; it is there if `probe` is measured."""
    layer = config.asked_layers[0]
    return index_rows(summary).get(
        row_name("probe accuracy", epoch=config.training.last_epoch, layer=layer, split="validation")
    )


# What a search over training choices moves.
OBJECTIVES = Objectives(
    memorization=Objective("deja vu score", "share", "lower", memorization_row),
    utility=Objective("probe accuracy", "share", "higher", probe_row),
    allowance=0.01,
)
