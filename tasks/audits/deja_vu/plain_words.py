"""Explanations for readers without a machine-learning background, and a glossary of symbols."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.deja_vu.accuracy import most_confident
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.encoder_config import EncoderFile, Trained, TrainedReferences
from tasks.audits.deja_vu.evidence import REFERENCE, TARGET, Evidence, is_given
from tasks.audits.deja_vu.measures.scores import BOTH
from tasks.audits.deja_vu.sentences import describe_view
from tasks.contract.certificate import (
    RELEVANT_SIZE,
    Boundary,
    NumberLine,
    advise_retraining,
    describe_difference,
    number_per_hundred,
    part_of,
)
from tasks.contract.examined_models import describe_files, describe_tables, describe_trained
from tasks.contract.summaries import blank_weak_interval

SYMBOLS: Mapping[str, str] = {
    "deja vu score": "the accuracy of naming objects in images that the model was trained on, minus that of a model "
    "that was not trained on them",
    "A": "the images that one model was trained on",
    "B": "the images that the other model was trained on, or that were held out",
    "percent": "the share of images that count: the images whose nearest public images agree most",
    "k": "the number of nearest public images that vote",
    "layer": "the layer whose embedding is compared; 0 is the backbone",
    "target": "the model that was trained on the images",
    "reference": "a model that was not trained on the images",
}
ASKED = "Does a model that was trained on unlabelled images remember which object was in front of which background?"
NOTICE_OF_NULL = "This is a control run: neither model was trained on the tested images. "
NO_MEMORY = "Without memory, it would be 0, apart from chance."
NO_CONCLUSION = "The data do not support a conclusion."

LIMIT_ACCESS = (
    "Assume that anyone who can query the model can learn which objects appear in the training images.",
    "Ask the technical team whether the last layers of the network are needed after training. If not, release the "
    "model without them, and audit the remaining layers (`layers=0`).",
    advise_retraining(),
)
MORE_IMAGES = (
    "Audit at least twice the number of images, or train again from another random start (`per_class`, "
    "`attack_images`, `seed`).",
)
REPEATED_IMAGES = (
    "Export at least 100 whole images a second time, among the cropped ones, and audit the table that the owner "
    "returns (`given.repeated_images=100`, in `engram probes` and in the run).",
    "Request the encoder's file, or query the deployed encoder yourself.",
)
UNTIED_EMBEDDINGS = (
    "Check the encoder whose embeddings are equal: its output is constant, or was rounded. Audit unrounded embeddings "
    "that differ between images.",
)
SAME_COMMAND = ("Run the same command again, so that the reference is tested on both sets.",)
OTHER_HELD_OUT = ("Provide held-out images that were drawn together with the training images, and audit again.",)


def mend_sets(_config: DejaVu, evidence: Evidence) -> tuple[str, ...]:
    """Return the next step if the reference distinguishes the two sets or was not tested on them."""
    if evidence.reference_p is None:
        return SAME_COMMAND
    return OTHER_HELD_OUT


def explain_unlike_sets(_config: DejaVu, evidence: Evidence) -> str:
    if evidence.reference_p is None:
        return f"{NO_CONCLUSION} The reference model was not tested on the two sets of images, so they may differ."
    return (
        f"{NO_CONCLUSION} Even a reference model names the objects of one set of images more often than those of the "
        "other. Either the two sets were not drawn in the same way, or the reference was trained on some of the images."
    )


def advise_other_layers(config: DejaVu, _evidence: Evidence | None) -> tuple[str, ...]:
    """Return the next steps if the audited layer shows no memorisation, since other projector layers may."""
    layers = ",".join(str(layer) for layer in range(config.training.top + 1))
    return (
        f"Keep this page with the files that it names. Also audit the other layers of the network (`layers={layers}`).",
    )


def draw_score(config: DejaVu, evidence: Evidence) -> NumberLine | None:
    """Draw the score on a number line, in percentage points."""
    if is_given(config):
        label = "lead over the comparison model on training images minus that on other images, in percentage points"
    elif config.is_null:
        label = "difference between two models in how often they name the object, in percentage points"
    else:
        label = "rise in how often the object is named by training on the image, in percentage points"
    score = blank_weak_interval(evidence.score)

    def to_points(share: float | None) -> float | None:
        return None if share is None else 100 * share

    return NumberLine(
        label,
        100 * score["estimate"],
        to_points(score["low"]),
        to_points(score["high"]),
        to_points(score["null"]),
        boundaries=(
            Boundary(
                100 * config.negligible,
                RELEVANT_SIZE,
                clears=True,
            ),
        ),
    )


def name_models(config: DejaVu) -> str:
    """Name the models that were examined: two that the audit trained, or a given encoder."""
    if isinstance(config.encoders, Trained):
        return describe_trained(2, ", each on its own set of images")
    encoder = config.encoders.encoder
    if isinstance(encoder, EncoderFile):
        examined = describe_files([encoder.model.path])
    else:
        paths = [] if encoder.embeddings is None else [encoder.embeddings.path]
        examined = describe_tables(paths, "outputs (embeddings)")
    comparison = "a given model"
    if isinstance(config.encoders.comparison, TrainedReferences):
        comparison = "a model that it trained itself"
    return f"{examined} For comparison, it used {comparison}, without the tested images in its training."


def explain_score(config: DejaVu, evidence: Evidence) -> str:
    """Explain the accuracies, their difference and its interval without statistical terms."""
    score = evidence.score
    view = f"Shown only {describe_view(config)},"
    if is_given(config):
        named = {name: _count_named(config, evidence, *name) for name in evidence.accuracies}
        return (
            f"{view} the model names the object in {named[TARGET, 'A']} images that it was trained on; a comparison "
            f"model, which was not trained on them, in {named[REFERENCE, 'A']}. On other images, on which neither was "
            f"trained, the model names it in {named[TARGET, 'B']} and the comparison model in {named[REFERENCE, 'B']}. "
            f"On its training images, the model is thus {_describe_lead(evidence, 'A')}; on other images, it is "
            f"{_describe_lead(evidence, 'B')}. This is a difference of "
            f"{describe_difference(score, 'its training images', 'the other images')}. {NO_MEMORY} "
            f"{_describe_counted(config, evidence)}"
        )
    target = _count_named(config, evidence, TARGET, BOTH)
    reference = _count_named(config, evidence, REFERENCE, BOTH)
    models = (
        f"a model names the object in {target} images that it was trained on; a comparison model, which was not "
        f"trained on these images, in {reference}"
    )
    difference = describe_difference(score, "the model that was trained on the images", "the comparison model")
    if config.is_null:
        models = f"one model names the object in {target} images, and another model in {reference}"
        difference = describe_difference(score, "the first model", "the second")
    return f"{view} {models}. The difference is {difference}. {NO_MEMORY} {_describe_counted(config, evidence)}"


def _count_named(config: DejaVu, evidence: Evidence, model: str, part: str) -> str:
    """Count the images of this set whose object the model names, of those for which it is most confident."""
    row = evidence.accuracies[model, part]
    return part_of(row["estimate"], most_confident(row["n"], config.confident_percent))


def _describe_lead(evidence: Evidence, part: str) -> str:
    """Format how far the model is ahead of the comparison model on this set, or behind it."""
    lead = evidence.accuracies[TARGET, part]["estimate"] - evidence.accuracies[REFERENCE, part]["estimate"]
    if not lead:
        return "level with the comparison model"
    return f"{number_per_hundred(abs(lead), 3)} percentage points {'ahead' if lead > 0 else 'behind'}"


def describe_alike_sets(config: DejaVu, evidence: Evidence) -> str:
    """State the condition that the comparison model treats both sets alike, with its two accuracies."""
    on_training, on_other = (_count_named(config, evidence, REFERENCE, part) for part in "AB")
    return (
        "the difference between the two sets for the comparison model, which was trained on neither, is within the "
        f"range of chance (it names the object in {on_training} images of one set and {on_other} of the other)"
    )


def _describe_counted(config: DejaVu, evidence: Evidence) -> str:
    if config.confident_percent == 100:
        return "All tested images count."
    images = sum(row["n"] for (model, _), row in evidence.accuracies.items() if model == TARGET)
    return (
        f"These numbers count only the {config.confident_percent} % of the {images:,} tested images about which each "
        "model is most confident."
    )
