"""Does a self-supervised model remember which object was in front of which background?

Two models are trained identically on disjoint image sets, A and B. A background region without the object is cropped
from every image, and both models embed the crop among public images with known labels. If the nearest public images
show the removed object under the model that was trained on the image, but not under the other model, the first model
remembers the image.

    acc(p) = share of correct labels among the p % of images whose neighbours agree most
    deja vu score(p) = acc of the model trained on the images - acc of the other, mean of both directions

Interpretation. The score is 0 without memorisation, because both models name objects that backgrounds reveal (swans on
water). A score of 0.2 at p = 20 means: of 100 images with the most agreement, 20 more are named correctly because the
model was trained on them. Misrepresented images, which only the wrong model names correctly, estimate how many images
look memorised by chance.

Source. Meehan et al. 2023, "Do SSL Models Have Deja Vu? A Case of Unintended Memorization in Self-supervised Learning":
section 4.1 defines the score, section 4.2 the categories.

Differences from the paper. The paper reports scores without an error. This audit adds intervals and a randomisation
test that is exact for any pair of models (`tasks.audits.deja_vu.randomisation`). The largest rectangle without an
object is searched among all rectangles, not only among strips between boxes (`crop=strips`). Sets are drawn from a
seed. The momentum of DINO's teacher is at most 1; in the released code it reaches 2.

Cost. Two trainings of `epochs` epochs, and one embedding pass over all public images per snapshot. `quickstart` takes
about a minute on two cores.
"""

from __future__ import annotations

from contextlib import suppress

from tasks.audits.deja_vu.answer import MEANINGS, OBJECTIVES, RULES, certificate, verdict
from tasks.audits.deja_vu.attack import probes
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.evidence import has_trained_references, is_given
from tasks.audits.deja_vu.measures import MEASURES, summary
from tasks.audits.deja_vu.plain_words import SYMBOLS
from tasks.audits.deja_vu.power import power
from tasks.audits.deja_vu.presets import PRESETS, REPEATS, repeats, tiny
from tasks.audits.deja_vu.trainings import training_configs, trainings
from tasks.contract.audit import Audit, Handout, Wording
from tasks.contract.crosswalk import Attack
from tasks.contract.job import Job, Roots
from tasks.contract.measure import roots
from tasks.contract.stand_in import stand_in_compared, stand_in_trained
from tasks.datasets.boxed.partition import smallest_parts
from tasks.datasets.cache_need import CachedImages
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.copies import count_groups
from tasks.self_supervised.square_files import squares_file

__all__ = ["AUDIT", "PRESETS", "DejaVu", "plan", "probes", "tiny"]


def plan(config: DejaVu) -> Roots:
    """Plan the tables of the requested measures and their `summary`."""
    decisive = (config.confident_percent, config.asked_layers[0], config.k[0], config.training.last_epoch)
    copies = count_groups(load_with_boxes(config.data, config.correlation).first_copies)
    about = About(*decisive, repeats(config), is_given(config), copies)
    return roots(MEASURES, config, trainings(config), lambda inputs: Job(summary, about, inputs))


def limits(config: DejaVu) -> dict[str, int]:
    """Return sizes that leave enough images for every part: each of four training sets gets a sixth of a class."""
    pictures = load_with_boxes(config.data, config.correlation)
    if pictures.given_parts is not None:
        return {}
    per_class, spare = smallest_parts(pictures, config.partition)
    return {"per_class": per_class, "validation": spare // 3, "public": spare - min(config.validation, spare // 3)}


def cached_images(config: DejaVu) -> tuple[CachedImages, ...]:
    """Return the file of squares of each training set. Models with different seeds share it."""
    with suppress(ValueError):  # the plan reports missing tables and sets that are too small
        images = {training.images: training for training in training_configs(config).values()}
        return tuple(squares_file(training) for training in images.values())
    return ()


def subject(config: DejaVu) -> str:
    if is_given(config):
        return f"encoder of {config.data.name}"
    return f"{config.training.criterion.tag} on {config.data.name}"


def stand_in(config: DejaVu) -> str:
    if has_trained_references(config):
        return stand_in_compared(config.data, config.training.backbone, "encoder")
    if is_given(config):
        return ""
    return stand_in_trained(config.data, config.training.backbone, "encoder")


AUDIT = Audit(
    config=DejaVu,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    usual=(
        "data",
        "per_class",
        "encoders",
        "criterion",
        "backbone",
        "epochs",
        "batch",
        "base_learning_rate",
        "given.model",
        "given.embeddings",
        "seed",
    ),
    tiny=tiny,
    limits=limits,
    cached_images=cached_images,
    verdict=verdict,
    objectives=OBJECTIVES,
    wording=Wording(
        repeats=REPEATS,
        rules=RULES,
        answers=MEANINGS,
        certificate=certificate,
        symbols=SYMBOLS,
        subject=subject,
        stand_in=stand_in,
        attacks=(Attack.ATTRIBUTE, Attack.RECONSTRUCTION),
    ),
    handout=Handout(probes),
    power=power,
)
