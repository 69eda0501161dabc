"""How often do the outputs of one model reveal a glyph, by calibration and by images?

    python -m studies unique_feature_output_slopes [--tiny] [--seed 520000] [--owners 20] [--clean 10] [--out FILE]

`unique_feature_first_layer` trains the models on 10,000 MNIST images: each owner's model with a random glyph in one
training image, and references and innocent models without any. A model's score is the slope of the label's centred
logit in each pixel, that is, its mean gradient over images. It can also be obtained from the outputs for many images.
The slopes are weighted and compared in several ways:

    alone                  1 / (ink + 10), without any other model
    4 references           the same less the mean of four clean models, as in the audit
    all references         the same with all clean models
    measured noise         all references; the variance of a pixel is measured on the clean models in pixels with
                           similar ink, and their mean counts only where it exceeds its own error
    same model elsewhere   no reference: the variance of the model's own slopes in similar pixels elsewhere
    carriers               as `measured noise`, on other images: of other classes, of half the contrast, of the label
                           mixed with other classes, blank images, and the owner's own canary
    all carriers           the mean over these, without the owner's own image

Ranks are among all 4,457,400 glyphs, and other owners' glyphs are the null. Intervals are Clopper-Pearson intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from studies.unique_feature_first_layer import (
    LEVELS,
    AuditedModel,
    asked_pairs,
    describe_count,
    glyph_of,
    study_config,
    train,
    with_training,
)
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.population import Cells, inked_cells
from tasks.audits.unique_feature.single_models.first_layer import (
    Counts,
    comparison,
    ink_class,
    ink_counts,
    trained_first_layer,
)
from tasks.audits.unique_feature.slope_ranks import IMAGES, Subsets, cell_sums
from tasks.audits.unique_feature.slopes import LEAST_INK, Array, pixel_ink
from tasks.datasets.catalog import load
from tasks.datasets.features import Glyph, burn, draw_member
from tasks.datasets.images import Images, Pixels
from tasks.models.networks import architecture_of, weights_of_model
from tasks.numerics import seeds

ASKED_REFERENCES = 4  # number that the audit trains
LABEL_IMAGES = "images of the label"
OWN_IMAGE = "the owner's own image"


@dataclass(frozen=True, eq=False)
class Domain:
    """The data set, how many training images ink each pixel (h w,), and how much ink they have there."""

    data: Images
    counts: Counts
    ink: Array

    @property
    def outside(self) -> NDArray[np.int64]:
        """The pixels outside the block that contains glyphs."""
        inside = np.zeros(self.data.shape[:2], bool)
        inside[1:6, 1:6] = True
        return np.flatnonzero(~inside.ravel())


def carrier_images(domain: Domain, one: AuditedModel, label: int, seed: int) -> Mapping[str, Pixels]:
    """Return the image sets by name. Every image carries a random glyph."""
    data = domain.data
    of_label = data.test_images[data.test_labels == label][:IMAGES]
    other_images = data.test_images[data.test_labels != label][: len(of_label)]
    assert isinstance(one.canary.image, int)
    owner_image = data.train_images[one.canary.image : one.canary.image + 1]
    sets = {
        LABEL_IMAGES: of_label,
        "images of other classes": other_images,
        "half the contrast": of_label // 2,
        "mixed with other classes": of_label // 2 + other_images // 2,
        "blank images": np.zeros_like(of_label),
        OWN_IMAGE: np.repeat(owner_image, len(of_label), axis=0),
    }
    return {name: with_drawn_glyphs(images, seed) for name, images in sets.items()}


def with_drawn_glyphs(images: Pixels, seed: int) -> Pixels:
    glyphs = []
    for number in range(len(images)):
        glyphs.append(draw_member(Glyph(), seeds.derive(seed, "carried", number)))
    return np.concatenate([burn(images[row : row + 1], glyph) for row, glyph in enumerate(glyphs)])


def model_slopes(model: pa.Table, images: Pixels, label: int, blank: NDArray[np.int64]) -> Array:
    """Return the slopes of the label's centred logit in every pixel (pixels,), in units of their spread without ink."""
    layer = trained_first_layer(architecture_of(model), weights_of_model(model), images, label)
    slopes = layer.gradients @ layer.weights
    return np.asarray(slopes / slopes[blank].std())


def calibrated_slopes(domain: Domain, slopes: Array, references: Sequence[Array]) -> dict[str, Array]:
    """Return the pixel values (pixels,) under every calibration."""
    weights = 1 / (domain.ink + LEAST_INK)
    few = np.mean(references[:ASKED_REFERENCES], axis=0)
    every = np.mean(references, axis=0)
    return {
        "alone": slopes * weights,
        "4 references": (slopes - few) * weights,
        "all references": (slopes - every) * weights,
        "measured noise": whiten_slopes(domain, slopes, references),
        "same model elsewhere": slopes / elsewhere_variance(domain, slopes),
    }


def whiten_slopes(domain: Domain, slopes: Array, references: Sequence[Array]) -> Array:
    classes = ink_class(domain.counts)
    stacked = np.stack(references)
    mean = stacked.mean(axis=0)
    variance = stacked.var(axis=0, ddof=1)
    values = np.zeros_like(slopes)
    for ink in np.unique(classes):
        same = classes == ink
        noise = float(variance[same].mean())
        retained_mean = max(0.0, 1 - noise / len(references) / float((mean[same] ** 2).mean()))
        values[same] = (slopes[same] - retained_mean * mean[same]) / noise
    return values


def elsewhere_variance(domain: Domain, slopes: Array) -> Array:
    """Return the variance of the model's own slopes in pixels with similar ink outside the glyph block: (pixels,)."""
    classes = ink_class(domain.counts)
    outside = domain.outside
    variance = np.zeros_like(slopes)
    for ink in np.unique(classes):
        variance[classes == ink] = comparison(slopes[outside], classes[outside], int(ink))[1] ** 2
    return variance


def pixel_values(
    config: UniqueFeature, domain: Domain, one: AuditedModel, references: Sequence[pa.Table]
) -> dict[str, Array]:
    """Return the pixel values (pixels,) under every score for one owner's model."""
    assert isinstance(one.canary.image, int)
    label = int(domain.data.train_labels[one.canary.image])
    blank = domain.outside[domain.counts[domain.outside] == 0]
    scores: dict[str, Array] = {}
    by_carrier: dict[str, Array] = {}
    for carrier, images in carrier_images(domain, one, label, config.seed).items():
        slopes, *reference_slopes = (model_slopes(model, images, label, blank) for model in (one.model, *references))
        if carrier == LABEL_IMAGES:
            scores |= calibrated_slopes(domain, slopes, reference_slopes)
        by_carrier[carrier] = whiten_slopes(domain, slopes, reference_slopes)
    scores |= {f"measured noise, {name}": values for name, values in by_carrier.items() if name != LABEL_IMAGES}
    averaged = [values for name, values in by_carrier.items() if name != OWN_IMAGE]
    return scores | {"measured noise, all carriers": np.mean(averaged, axis=0)}


@dataclass(frozen=True)
class OwnerRanks:
    """The p-values of the owners' glyphs in their own models, and of other owners' glyphs in these models."""

    carried: list[float]
    other_owners: list[float]


def rank_all_glyphs(
    config: UniqueFeature, owners: Sequence[AuditedModel], references: Sequence[pa.Table]
) -> dict[str, OwnerRanks]:
    data = load(asked_pairs(config).data)
    training = data.train_images[: asked_pairs(config).examples or None]
    domain = Domain(data, ink_counts(training), pixel_ink(training).ravel())
    glyphs = [inked_cells(glyph_of(one)) for one in owners]
    ranks: defaultdict[str, OwnerRanks] = defaultdict(lambda: OwnerRanks([], []))
    for number, one in enumerate(owners):
        for name, values in pixel_values(config, domain, one, references).items():
            cells = cell_sums(values.reshape(data.shape[:2]), glyph_of(one))
            carried_glyph, other_glyphs = split_ranks(cells, glyphs, number)
            ranks[name].carried.append(carried_glyph)
            ranks[name].other_owners.extend(other_glyphs)
        print(f"{number + 1} of {len(owners)} models asked", flush=True)
    return dict(ranks)


def split_ranks(cells: Array, glyphs: Sequence[Cells], number: int) -> tuple[float, list[float]]:
    """Return the p-value of the glyph with this number, and the p-values of the other glyphs."""
    subsets = Subsets(cells)
    p_values = [subsets.p_value(glyph) for glyph in glyphs]
    return p_values.pop(number), p_values


def table(ranks: Mapping[str, OwnerRanks]) -> str:
    lines = ["| score of outputs | found at 5 % | 1 % | 0.1 % | glyphs of other owners at 5 % |", f"|{5 * '---|'}"]
    for name, p_value_lists in ranks.items():
        p_values = np.array(p_value_lists.carried)
        found_counts = [describe_count(p_values <= level) for level in LEVELS]
        false_calls = sum(p_value <= LEVELS[0] for p_value in p_value_lists.other_owners)
        lines.append(f"| {' | '.join([name, *found_counts])} | {false_calls} of {len(p_value_lists.other_owners)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=520000, help="from which all chance follows")
    parser.add_argument("--owners", type=int, default=20, help="how many; 20 unless given")
    parser.add_argument(
        "--clean", type=int, default=10, help="clean models in addition to the four references; 10 unless given"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.tiny:
        config = with_training(study_config("digits", 50, 2, options.seed), epochs=2, patience=0)
    else:
        config = study_config("mnist", 10000, options.owners, options.seed)
    models = train(config, 0 if options.tiny else options.clean, ASKED_REFERENCES)
    clean = [*models.references, *(one.model for one in models.innocent)]
    setting = measurement_facts("", torch.device("cpu")) | {
        "data": f"{asked_pairs(config).data.name}, {asked_pairs(config).examples} training images",
        "seed": str(config.seed),
        "models": f"{len(models.owners)} with a glyph, {len(clean)} clean references",
    }
    counted = table(rank_all_glyphs(config, models.owners, clean))
    publish_counts("One model by its outputs: calibrations and carriers", setting, counted, options.out)
