"""Explanations for readers without a machine-learning background, and a glossary of symbols."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.encoder_config import EncoderFile, Trained, TrainedReferences
from tasks.audits.deja_vu.evidence import REFERENCE, TARGET, Evidence, is_given
from tasks.audits.deja_vu.measures.scores import BOTH
from tasks.audits.deja_vu.sentences import describe_view
from tasks.contract.certificate import Boundary, NumberLine, advise_retraining, number_per_hundred, range_per_hundred
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
NO_CONCLUSION = "The data do not support a conclusion."

LIMIT_ACCESS = (
    "Assume that anyone who can query the model can learn which objects appear in the training images.",
    "Ask the technical team whether the last layers of the network are needed after training. If not, release the "
    "model without them, and audit the remaining layers (layers=0).",
    advise_retraining(),
)
MORE_IMAGES = (
    "Audit at least twice the number of images, or train again from another random start (per_class, attack_images, "
    "seed).",
)
REPEATED_IMAGES = (
    "Export at least 100 whole images a second time, among the cropped ones, and audit the table that the owner "
    "returns (given.repeated_images=100, in engram probes and in the run).",
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
        f"Keep this page with the files that it names. Also audit the other layers of the network (layers={layers}).",
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
                "memorised if the whole interval is above, not detected only if it is below",
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
    comparative = "larger"
    sign = 1
    verb = "raises"
    if score["estimate"] < 0:
        comparative = "smaller"
        verb = "lowers"
        sign = -1
    size = number_per_hundred(sign * score["estimate"])
    interval = f"95 % interval {range_per_hundred(score, sign)}; 0 would mean no memory"
    accuracies = {name: f"{number_per_hundred(share)} of 100" for name, share in evidence.accuracies.items()}
    view = f"Shown only {describe_view(config)},"
    if is_given(config):
        return (
            f"The model's lead over a comparison model is {size} percentage points {comparative} on its training "
            f"images than on other images ({interval}). {view} the model names the object in {accuracies[TARGET, 'A']} "
            f"of its training images and in {accuracies[TARGET, 'B']} other images; the comparison model, which was "
            f"trained on neither, does so in {accuracies[REFERENCE, 'A']} and {accuracies[REFERENCE, 'B']}. "
            f"{_describe_counted(config)}"
        )
    target = accuracies[TARGET, BOTH]
    reference = accuracies[REFERENCE, BOTH]
    finding = f"Training on an image {verb} how often a model names its object by {size} percentage points ({interval})"
    models = (
        f"a model names the object in {target} images that it was trained on; another model, which was not trained on "
        f"these images, names it in {reference} of them"
    )
    if config.is_null:
        finding = f"Two models differ by {size} percentage points in how often they name the object ({interval})"
        models = f"one model names the object in {target} images, and another model in {reference}"
    return f"{finding}. {view} {models}. {_describe_counted(config)}"


def _describe_counted(config: DejaVu) -> str:
    if config.confident_percent == 100:
        return "All images count."
    return f"These numbers count the {config.confident_percent} % of images for which each model is most confident."
