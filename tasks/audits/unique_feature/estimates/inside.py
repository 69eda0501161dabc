"""What happens inside: M while a model is trained (figure 3c), and units that answer to the feature (figure 3b)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tasks.statistics import mean
from tasks.summaries import Row, row

MOST = 0.5  # of the probe images, in which a unit answers to the feature and not to a random patch


def during_training(course: Sequence[Row]) -> Iterator[Row]:
    """M before training, after its first epoch and at the kept one; the effects there, over pairs."""
    models: dict[tuple[int, int], dict[str, list[Row]]] = {}
    for each in course:
        models.setdefault((each["canary"], each["seed"]), {}).setdefault(each["model"], []).append(each)
    pairs = [found for found in models.values() if set(found) == {"canary", "twin"}]
    moments = {"before training": _at(0), "first epoch": _at(1), "kept": _kept}
    for moment, at in moments.items():
        for metric, name in (("M", "m"), ("M_w", "m_w_probe")):
            canary, twin = ([at(found[model])[name] for found in pairs] for model in ("canary", "twin"))
            yield row(metric, {"epoch": moment}, mean(canary), "training", mean(twin).value)
            effects = [a - b for a, b in zip(canary, twin, strict=True)]
            yield row(f"{metric} effect", {"epoch": moment}, mean(effects), "pair of trainings", 0.0)


def latent(latents: Sequence[Row]) -> Iterator[Row]:
    """Units per model that answer to the feature, and not to a random patch, in more than half of the probe images."""
    counts: dict[tuple[str, str], dict[tuple[int, int], int]] = {}
    for each in latents:
        of_model = counts.setdefault((each["layer"], each["model"]), {}).setdefault
        key = (each["canary"], each["seed"])
        of_model(key, 0)
        if each["unique"] - each["random"] > MOST:
            counts[each["layer"], each["model"]][key] += 1
    for layer in dict.fromkeys(layer for layer, _ in counts):
        found = {model: list(counts.get((layer, model), {}).values()) for model in ("canary", "twin")}
        null = mean(found["twin"]).value
        yield row("units of the feature", {"layer": layer}, mean(found["canary"]), "training", null)


def _at(epoch: int) -> Callable[[Sequence[Row]], Row]:
    return lambda rows: next(each for each in rows if each["epoch"] == epoch)


def _kept(rows: Sequence[Row]) -> Row:
    return next(each for each in rows if each["kept"])
