"""The canaries as their models saw them: the training image with the feature burnt in."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.audits.unique_feature.pairs import Pairs
from dashboards.gallery import Gallery, Picture
from dashboards.run import Run
from tasks.audits.unique_feature import UniqueFeature, evaluation
from tasks.audits.unique_feature.evaluation import Triples, triples
from tasks.datasets.catalog import is_embedded, load
from tasks.datasets.features import burn
from tasks.datasets.images import as_shape

MOST = 36  # canaries
VARIED = 500  # probe images among which the most varied one is looked for

Pixels = NDArray[np.uint8]  # (height, width, channels)


def pictures(run: Run, pairs: Pairs, show_images: bool) -> Gallery | None:
    """The canaries with the largest and the smallest effects, and one probe image three times over."""
    canaries, labels, effects = pairs.columns("canary", "label", "m_w_probe_effect")
    if not len(canaries):
        return None
    order = np.argsort(-effects, kind="stable")
    if len(order) > MOST:
        order = np.concatenate([order[: MOST // 2], order[-MOST // 2 :]])
    shown = [(int(canaries[at]), int(labels[at]), float(effects[at])) for at in order]
    few = f"{len(shown) // 2} with the largest and the {len(shown) // 2} with the smallest effect of {len(canaries)}"
    caption = (
        "Training images with the feature, as the canaries' models saw them, from the largest effect on M_w over the "
        f"probe images to the smallest{f': the {few}' if len(shown) < len(canaries) else ''}."
    )
    config = run.config
    if not isinstance(config, UniqueFeature):
        return Gallery(caption, False, "The pictures cannot be drawn: the audit has changed since the run was made.")
    ids = ", ".join(str(canary) for canary, _, _ in shown)
    if not (show_images or is_embedded(config.data.name)):
        note = (
            f"Images of {config.data.name} are yours and are not shown unless asked for with --show-images. Their rows "
            f"among the training images, in that order: {ids}."
        )
        return Gallery(caption, False, note)
    try:
        return Gallery(caption, True, "", (*of_canaries(config, shown), *of_probe(config, shown[0][0], show_images)))
    except (ValueError, OSError, IndexError) as error:  # DatasetError among them
        line = " ".join(str(error).split())
        return Gallery(caption, False, f"The pictures cannot be drawn: {line}. Rows, in that order: {ids}.")


def of_canaries(config: UniqueFeature, shown: list[tuple[int, int, float]]) -> Iterator[Picture]:
    images = load(config.data).train_images
    burnt = burn(images[[canary for canary, _, _ in shown]], config.carried)
    for (canary, label, effect), image in zip(shown, burnt, strict=True):
        title = f"canary {canary}, label {label}, effect {drawing.number(effect)}"
        yield Picture(encoded(image), title, f"Training image {canary} with the feature, {title}")


def of_probe(config: UniqueFeature, canary: int, show_images: bool) -> Iterator[Picture]:
    """A probe image clean, with the feature that was asked for, and with its random patch: one with much to see."""
    if not (show_images or is_embedded(config.probe.name)):
        return
    images = load(config.probe).test_images
    row = int(images[:VARIED].std(axis=(1, 2, 3)).argmax())
    clean = as_shape(images[row : row + 1], load(config.data).train_images.shape[1:])
    three: Triples = triples("probe", clean, np.array([row]), evaluation(config, canary))
    names = {"clean": three.clean, "with the feature": three.unique, "with a random patch": three.random}
    for name, image in names.items():
        yield Picture(encoded(image[0]), f"probe image {row}, {name}", f"Probe image {row}, {name}")


def encoded(image: Pixels) -> bytes:
    """The image as PNG, a pixel a pixel."""
    from PIL import Image

    written = BytesIO()
    Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(written, "PNG", optimize=True)
    return written.getvalue()
