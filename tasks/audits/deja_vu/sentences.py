"""The verdict's sentences for experts: the evidence, why nothing is judged, and remarks."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.deja_vu.config import Corner, DejaVu
from tasks.audits.deja_vu.evidence import REFERENCE, TARGET, Evidence, has_trained_references, is_given
from tasks.audits.deja_vu.measures.scores import BOTH
from tasks.contract.rules import admit_size, exclude_size
from tasks.contract.summaries import Row, numerator, p_in_words
from tasks.contract.ties import describe_ties
from tasks.external.causes import ALTERED, INTERFACE, TRAINING_MODE, as_sentence, list_causes

SAYS_ALONE = 0.5  # of the objects that a background gives away to anyone: above it correlation hides memory

CROP_CAUSES = list_causes(f"for one of the two {INTERFACE}", TRAINING_MODE, ALTERED)


def describe_repeats(evidence: Evidence) -> str:
    """Why the table may not hold the answers of one encoder."""
    repeats = evidence.repeats
    if repeats is None:
        return (
            "But no whole pictures stood among the crops, so nothing shows that crops were answered as pictures are: "
            "such a table can accuse and not clear."
        )
    return (
        f"But {numerator(repeats)} of {repeats['n']} public pictures that also stood among the crops have another "
        f"embedding there: crops were not answered as pictures are. {as_sentence(CROP_CAUSES)}"
    )


def describe_unlike_sets(evidence: Evidence) -> str:
    """Why the score of two sets says nothing that the reference distinguishes, or was not tested on."""
    p = evidence.reference_p
    if p is None:
        return "But the reference was not tested on the two sets, so they may not have been drawn alike."
    return (
        f"But the reference, too, is right more often of one set than of the other ({p_in_words(p)}): they were not "
        "drawn alike, or it was trained on some of them, and the score shows either as well as memory; give held-out "
        "pictures that were drawn together with the training pictures."
    )


def describe_tied_embeddings(evidence: Evidence) -> str:
    assert evidence.tied is not None, "the case holds only if equal embeddings were counted"
    return f"But {describe_ties(evidence.tied)}."


def exclude_score(_config: DejaVu, evidence: Evidence) -> str:
    return exclude_size(evidence.negligible)


def admit_score(_config: DejaVu, evidence: Evidence) -> str:
    return admit_size(evidence.score["high"], "attack more pictures")


def describe_evidence(config: DejaVu, evidence: Evidence) -> str:
    """The accuracies and the score, as a sentence without its end."""
    return _describe_encoder(config, evidence) if is_given(config) else _describe_pair(config, evidence)


def _describe_pair(config: DejaVu, evidence: Evidence) -> str:
    """Both models' accuracies and the score with its interval and p, in words."""
    target, reference = (format_percent(evidence.accuracies[model, BOTH]) for model in (TARGET, REFERENCE))
    return (
        f"{describe_view(config)}, a model that was trained on it finds public pictures of the same object"
        f"{describe_confidence(config)} in {target} of cases, a model that was not in {reference}; the difference, the "
        f"deja vu score, is {_describe_score(evidence.score, ', both ways averaged')}"
    )


def _describe_encoder(config: DejaVu, evidence: Evidence) -> str:
    """The accuracies of an encoder and its reference, and the corrected score with its interval and p, in words."""
    shares = {name: format_percent(share) for name, share in evidence.accuracies.items()}
    whose = "a reference that was trained here" if has_trained_references(config) else "the given reference"
    return (
        f"{describe_view(config)}, the given encoder finds public pictures of the same object"
        f"{describe_confidence(config)} in {shares[TARGET, 'A']} of cases where it was trained on the picture and in "
        f"{shares[TARGET, 'B']} where it was not; {whose}, on neither, in {shares[REFERENCE, 'A']} and "
        f"{shares[REFERENCE, 'B']}; what the encoder tells more than the reference, less that of held-out pictures, "
        f"the corrected deja vu score, is {_describe_score(evidence.score)}"
    )


def _describe_score(score: Row, how: str = "") -> str:
    return (
        f"{score['estimate']:.3f} (95 % interval {score['low']:.3f} to {score['high']:.3f}, "
        f"{p_in_words(score['p_value'])}, over {score['n']:,} pictures{how}; 0 where nothing is memorised)"
    )


def describe_view(config: DejaVu) -> str:
    """What a model sees of a picture."""
    view = (
        "the lower left corner of a picture"
        if isinstance(config.crop, Corner)
        else "a part of a picture without its object"
    )
    return f"shown {view}"


def describe_confidence(config: DejaVu) -> str:
    """Which pictures count."""
    if config.confident == 100:
        return " by majority"
    return f" by majority, of the {config.confident} % of pictures that its neighbours agree on most,"


def format_percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def remarks(config: DejaVu, evidence: Evidence) -> Iterator[str]:
    """What a reader must know in addition to an answer that is given."""
    rank = evidence.rank
    if rank is not None:
        yield (
            f"By what it tells more of its training pictures it is number {rank['estimate']:.0f} of {rank['n']} "
            f"models, the others references ({p_in_words(rank['p_value'])})."
        )
    guessable = evidence.accuracies[REFERENCE, "A" if is_given(config) else BOTH]
    if guessable > SAYS_ALONE:
        yield (
            f"A model that never saw the pictures names {format_percent(guessable)} of the objects "
            "rightly, so that their backgrounds tell them; what is known anyway cannot be shown to be remembered."
        )
