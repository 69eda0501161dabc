"""The canaries with the feature, as their models saw them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dashboards import drawing
from dashboards.audits.unique_feature.pairs import Pairs
from dashboards.audits.unique_feature.read_out import drawn_canaries, read_out
from dashboards.gallery import Gallery, Picture, describe_withheld, encode_png, error_reason
from dashboards.run import Run
from orchestrator.inspection.disclosure import is_private
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.evaluation import burning, triples
from tasks.audits.unique_feature.given_models import Given
from tasks.audits.unique_feature.questions import Panel, ProbePictures
from tasks.datasets.catalog import is_embedded, load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import burn
from tasks.datasets.images import as_shape

MOST = 36  # canaries shown
PROBES = 3  # probe images, each shown clean, with the feature and with a random patch
CANARIES = "Training images with the feature"
PROBE_IMAGES = "Probe images: clean, with the feature and with a random patch"
VARIED = 500  # probe images from which those with the highest contrast are chosen


def pictures(run: Run, pairs: Pairs, show_images: bool) -> Gallery | None:
    """Show the canaries with the largest and smallest effects, and probe images clean and with patches (figure 2).

    Audits of third-party models have no canaries, so they show only probe images.
    """
    rows, labels, effects = pairs.columns("canary", "label", "m_w_probe_effect")
    if not len(rows):
        return _probe_gallery(run, show_images)
    first = np.unique(rows, return_index=True)[1]  # one of several trainings of a canary
    rows = rows[np.sort(first)]
    labels = labels[np.sort(first)]
    effects = effects[np.sort(first)]
    order = np.argsort(-effects, kind="stable")
    if len(order) > MOST:
        order = np.concatenate([order[: MOST // 2], order[-MOST // 2 :]])
    shown_rows = []
    for index in order:
        shown_rows.append((int(rows[index]), int(labels[index]), float(effects[index])))
    few = (
        f"{len(shown_rows) // 2} with the largest and the {len(shown_rows) // 2} with the smallest effect of "
        f"{len(rows)}"
    )
    caption = (
        "Training images with the feature, from the largest effect on M_w over the probe images to the "
        f"smallest{f': the {few}' if len(shown_rows) < len(rows) else ''}."
    )
    config = run.private_config
    if not isinstance(config, UniqueFeature) or config.trained is None:
        return Gallery(caption, False, "The images cannot be drawn: the audit has changed since this run.")
    ids = ", ".join(str(canary) for canary, _, _ in shown_rows)
    data = config.trained.data
    if not (show_images or _are_public(config, data)):
        return Gallery(caption, False, f"{_hidden_note(data)} Their rows, in that order: {ids}.")
    try:
        images = (
            *_canary_pictures(config, data, shown_rows),
            *_probe_pictures(config, show_images),
            *read_out(run, config),
        )
        return Gallery(caption, True, "", images)
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(
            caption, False, f"The images cannot be drawn{error_reason(run, error)}. Rows, in that order: {ids}."
        )


def _probe_gallery(run: Run, show_images: bool) -> Gallery | None:
    """Show the probe images on which a third-party model was evaluated."""
    config = run.private_config
    if not isinstance(config, UniqueFeature) or not isinstance(config.question, Panel | Given | ProbePictures):
        return None
    caption = "Probe images on which the model was evaluated: clean, with the feature and with a random patch."
    if not (show_images or _are_public(config, config.probe)):
        return Gallery(caption, False, _hidden_note(config.probe))
    try:
        return Gallery(caption, True, "", (*_probe_pictures(config, show_images), *read_out(run, config)))
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(caption, False, f"The images cannot be drawn{error_reason(run, error)}.")


def _are_public(config: UniqueFeature, data: Dataset) -> bool:
    """Whether the images may be shown because neither the data set nor the feature belongs to the user."""
    return is_embedded(data.name) and not is_private((config.asked_feature, config.carried))


def _hidden_note(data: Dataset) -> str:
    reason = "are your own data"
    if is_embedded(data.name):
        reason = "show your own feature"
    return describe_withheld(f"Images of {data.named().name}", reason)


def _canary_pictures(
    config: UniqueFeature, data: Dataset, canary_rows: list[tuple[int, int, float]]
) -> Iterator[Picture]:
    trained_on = load(data)
    # Canaries chosen by rank share one feature. Canaries drawn at random may each have their own.
    own_features = {canary.image: canary.carried_feature for canary in drawn_canaries(config)}
    for canary, label, effect in canary_rows:
        (image,) = burn(trained_on.train.pixels(np.array([canary])), own_features.get(canary, config.carried))
        title = f"canary {canary}, label {label}, effect {drawing.format_number(effect)}"
        alt = f"Training image {canary} with the feature, {title}"
        yield Picture(encode_png(image), title, alt, CANARIES)


def _probe_pictures(config: UniqueFeature, show_images: bool) -> Iterator[Picture]:
    """Yield the probe images with the highest contrast: clean, with the feature and with a random patch."""
    if not (show_images or _are_public(config, config.probe)):
        return
    images = load(config.probe).test
    varied = images.pixels(np.arange(min(VARIED, len(images))))
    rows = np.argsort(-varied.std(axis=(1, 2, 3)), kind="stable")[:PROBES]
    clean = as_shape(varied[rows], config.shape)
    three = triples("probe", clean, rows, int(rows.max()) + 1, burning(config))
    names = {"clean": three.clean, "with the feature": three.unique, "with a random patch": three.random}
    for index, row in enumerate(rows.tolist()):
        for name, image in names.items():
            title = f"probe image {row}, {name}"
            alt = f"Image {row} of the probe images, {name}"
            yield Picture(encode_png(image[index : index + 1][0]), title, alt, PROBE_IMAGES)
