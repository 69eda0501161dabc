"""Verdict sentences for experts: evidence, reasons against an answer, and remarks."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.deja_vu.config import Corner, DejaVu
from tasks.audits.deja_vu.evidence import REFERENCE, TARGET, Evidence, has_trained_references, is_given
from tasks.audits.deja_vu.measures.scores import BOTH
from tasks.contract.rules import admit_size, exclude_size
from tasks.contract.summaries import Row, numerator, p_in_words
from tasks.contract.ties import describe_ties
from tasks.external.causes import ALTERED, INTERFACE, TRAINING_MODE, as_sentence, list_causes

GUESSABLE = 0.5  # above this share of objects that backgrounds reveal, correlation hides memorisation

CROP_CAUSES = list_causes(f"for one of the two {INTERFACE}", TRAINING_MODE, ALTERED)


def describe_repeats(evidence: Evidence) -> str:
    """State why the table may mix the embeddings of several encoders."""
    repeats = evidence.repeats
    if repeats is None:
        return (
            "No whole images were repeated among the crops, so crops may have been processed differently from whole "
            "images. Such a table can show memorisation but cannot exclude it."
        )
    return (
        f"Of {repeats['n']} public images that were repeated among the crops, {numerator(repeats)} have another "
        f"embedding there: crops were processed differently from whole images. {as_sentence(CROP_CAUSES)}"
    )


def describe_unlike_sets(evidence: Evidence) -> str:
    """State why the score cannot be interpreted if the two sets differ."""
    p = evidence.reference_p
    if p is None:
        return "The reference was not tested on the two sets, so they may have been drawn in different ways."
    return (
        f"The reference also names objects more often on one set than on the other ({p_in_words(p)}): the sets were "
        "not drawn in the same way, or the reference was trained on some of the images. Provide held-out images that "
        "were drawn together with the training images."
    )


def describe_tied_embeddings(evidence: Evidence) -> str:
    assert evidence.tied is not None, "the case holds only if equal embeddings were counted"
    return f"However, {describe_ties(evidence.tied)}."


def exclude_score(_config: DejaVu, evidence: Evidence) -> str:
    return exclude_size(evidence.negligible)


def admit_score(_config: DejaVu, evidence: Evidence) -> str:
    return admit_size(evidence.score["high"], "attack more images")


def describe_evidence(config: DejaVu, evidence: Evidence) -> str:
    """Describe the accuracies and the score in a sentence without its full stop."""
    if is_given(config):
        return _describe_encoder(config, evidence)
    return _describe_pair(config, evidence)


def _describe_pair(config: DejaVu, evidence: Evidence) -> str:
    """Describe both models' accuracies, and the score with an interval and p-value."""
    target = format_percent(evidence.accuracies[TARGET, BOTH]["estimate"])
    reference = format_percent(evidence.accuracies[REFERENCE, BOTH]["estimate"])
    score = _describe_score(config, evidence.score, "deja vu score", ", mean of both directions")
    if config.is_null:
        return (
            f"{score}: from {describe_view(config)}, one model names the object in {target} of cases, another model in "
            f"{reference}"
        )
    return (
        f"{score}: from {describe_view(config)}, models trained on the image name its object in {target} of cases, "
        f"other models in {reference}"
    )


def _describe_encoder(config: DejaVu, evidence: Evidence) -> str:
    """Describe the accuracies of an encoder and its reference, and the corrected score with interval and p-value."""
    shares = {name: format_percent(row["estimate"]) for name, row in evidence.accuracies.items()}
    reference = "the given reference"
    if has_trained_references(config):
        reference = "a reference that was trained here"
    score = _describe_score(config, evidence.score, "corrected deja vu score")
    return (
        f"{score}: from {describe_view(config)}, the encoder names the object of {shares[TARGET, 'A']} of its training "
        f"images and of {shares[TARGET, 'B']} of held-out images; {reference} names {shares[REFERENCE, 'A']} and "
        f"{shares[REFERENCE, 'B']}"
    )


def _describe_score(config: DejaVu, score: Row, name: str, average: str = "") -> str:
    return (
        f"the {name} is {score['estimate']:.3f} (95 % interval {score['low']:.3f} to {score['high']:.3f}, "
        f"{p_in_words(score['p_value'])}, n = {score['n']:,} images{average}; {describe_confidence(config)}; 0 without "
        "memorisation)"
    )


def describe_view(config: DejaVu) -> str:
    """Name the part of an image that a model sees."""
    if isinstance(config.crop, Corner):
        return "the lower left corner of an image"
    return "a part of an image without its object"


def describe_confidence(config: DejaVu) -> str:
    """Name the images that the score counts."""
    if config.confident_percent == 100:
        return "all images"
    return f"{config.confident_percent} % most confident images"


def format_percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def remarks(config: DejaVu, evidence: Evidence) -> Iterator[str]:
    """Yield caveats that a reader needs in addition to the answer."""
    rank = evidence.rank
    if rank is not None:
        yield (
            f"By its gain on training images the encoder ranks {rank['estimate']:.0f} of {rank['n']} models; the "
            f"other models are references ({p_in_words(rank['p_value'])})."
        )
    guessable = evidence.accuracies[REFERENCE, "A" if is_given(config) else BOTH]["estimate"]
    if guessable > GUESSABLE:
        yield (
            f"A model that never saw the images names {format_percent(guessable)} of the objects, because their "
            "backgrounds reveal them. Memorisation of these objects cannot be shown."
        )
