"""From a config to jobs: which trainings, what each is asked, and the tables that the answers make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tasks import seeds
from tasks.audits.unique_feature.canaries import CanaryScores, canary_scores
from tasks.audits.unique_feature.choice import Ranked
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.contrast import Contrast, contrast
from tasks.audits.unique_feature.course import Course, course
from tasks.audits.unique_feature.curves import Curves, curves
from tasks.audits.unique_feature.detection import Detection, detection
from tasks.audits.unique_feature.evaluation import Evaluation, score
from tasks.audits.unique_feature.history import Pair, history
from tasks.audits.unique_feature.influence import Tracing, influence
from tasks.audits.unique_feature.latents import Latents, latents
from tasks.audits.unique_feature.panel import Asked, ask, ask_family
from tasks.audits.unique_feature.panel_sizes import Panels, panels
from tasks.audits.unique_feature.presets import repeats
from tasks.audits.unique_feature.relatives import PairAsked, Relatives, pair_family
from tasks.audits.unique_feature.summary import PANEL_PARTS, PARTS, Part, Summary, summary
from tasks.audits.unique_feature.traced import Traced, traced
from tasks.audits.unique_feature.trainings import (
    Canary,
    Trainings,
    base,
    chosen_job,
    influence_job,
    pairs,
    shape,
    training,
    training_seed,
)
from tasks.audits.unique_feature.triples import Burning
from tasks.datasets.catalog import load
from tasks.datasets.features import check_fits
from tasks.job import Job, Roots
from tasks.training.classifier import Burnt, train


def plan(config: UniqueFeature) -> Roots:
    """The tables of the audit, `summary` among them; which ones follows from what is measured."""
    if config.asks_models:
        return of_panel(config)
    check(config)
    roots: dict[str, Job | tuple[Job, ...]] = {}
    for measure in dict.fromkeys(config.measures):
        roots |= MEASURES[measure](config)
    roots["summary"] = summarised(config, roots)
    return roots


def check(config: UniqueFeature) -> None:
    """ValueError where the data cannot serve the config."""
    images = load(config.trained_on).train_images
    rows = config.examples or len(images)
    for name, most in (("examples", len(images)), ("canaries", rows)):
        if getattr(config, name) > most:
            raise ValueError(
                f"{name} is {getattr(config, name)}; it must be at most {most}, the training images there are"
            )
    for feature in (config.feature, config.carried):
        check_fits(feature, *images.shape[1:3])


def scores(config: UniqueFeature) -> dict[str, Job | tuple[Job, ...]]:
    divergences, histories = [], []
    for pair in pairs(config):
        divergences += [
            Job(score, evaluation(config, pair.canary, redraw), pair.inputs) for redraw in range(config.evaluations)
        ]
        histories.append(Job(history, Pair(pair.canary.image), pair.inputs))
    found: dict[str, Job | tuple[Job, ...]] = {
        "canary_scores": Job(canary_scores, CanaryScores(), (*divergences, *histories)),
        "divergences": tuple(divergences),
        "history": tuple(histories),
    }
    if config.choice == "self-influence":
        found |= {"chosen": chosen_job(config), "influence": influence_job(config)}
    return found


def families(config: UniqueFeature) -> dict[str, Job | tuple[Job, ...]]:
    asked = tuple(
        Job(pair_family, PairAsked(config.trained_on, pair.canary.image, relatives(config, pair.canary)), pair.inputs)
        for pair in pairs(config)
    )
    found = scores(config)["canary_scores"]
    assert isinstance(found, Job)
    detected = Job(detection, Detection(), (*asked, found))
    return {
        "family": asked,
        "detection": detected,
        "curves": Job(curves, Curves(), (detected,)),
        "panels": Job(panels, Panels(seeds.derive(config.seed, "panels")), asked),
    }


def courses(config: UniqueFeature) -> dict[str, Job | tuple[Job, ...]]:
    return {"course": tuple(job for pair in pairs(config) for job in followed(config, pair))}


def followed(config: UniqueFeature, pair: Trainings) -> Iterator[Job]:
    """The trainings of the pair again, asked after every epoch."""
    canary, clean, about = pair.canary, training(config, pair.seed), evaluation(config, pair.canary, 0)
    if isinstance(canary.image, Ranked):
        yield Job(course, Course(clean, about, "canary", canary.carried), pair.chosen)
    else:
        yield Job(course, Course(replace(clean, burnt=(Burnt(canary.image, canary.carried),)), about, "canary"))
    yield Job(course, Course(clean, about, "twin"), pair.chosen)


def activations(config: UniqueFeature) -> dict[str, Job | tuple[Job, ...]]:
    return {
        "latents": tuple(
            Job(latents, Latents(evaluation(config, pair.canary, 0)), pair.inputs) for pair in pairs(config)
        )
    }


def influences(config: UniqueFeature) -> dict[str, Job | tuple[Job, ...]]:
    """The image with the highest self-influence and the one with the lowest, traced again with the feature."""
    ranking, before = chosen_job(config), influence_job(config)
    ends = [Ranked("highest", 1), *([Ranked("lowest", 1)] if config.canaries > 1 else [])]
    after = [Job(influence, Tracing(base(config), end, config.carried), (ranking,)) for end in ends]
    return {
        "influence": before,
        "chosen": ranking,
        "traced": tuple(Job(traced, Traced(end), (ranking, before, job)) for end, job in zip(ends, after, strict=True)),
    }


def contrasts(config: UniqueFeature) -> dict[str, Job | tuple[Job, ...]]:
    images = Contrast(config.probe, config.probe_split, shape(config), burning(config))
    return {"contrast": Job(contrast, images)}


MEASURES = {
    "scores": scores,
    "family": families,
    "course": courses,
    "latents": activations,
    "influence": influences,
    "pictures": contrasts,
}


def burning(config: UniqueFeature) -> Burning:
    """What the probe images get, where it does not differ between canaries."""
    return Burning(config.feature, config.random, evaluation_seed(config))


def evaluation_seed(config: UniqueFeature, redraw: int = 0) -> int:
    return seeds.derive(config.seed, "evaluation", *((redraw,) if redraw else ()))


def evaluation(config: UniqueFeature, canary: Canary, redraw: int) -> Evaluation:
    return Evaluation(
        data=config.trained_on,
        probe=config.probe,
        probe_split=config.probe_split,
        feature=canary.asked,
        canary=canary.image,
        examples=config.examples,
        seed=evaluation_seed(config, redraw),
        redraw=redraw,
        random=config.random,
    )


def relatives(config: UniqueFeature, canary: Canary) -> Relatives:
    """The family of what a canary's models are asked about; of a feature that is not drawn it is the same for all."""
    path = (canary.number,) if config.drawn else ()
    seed = seeds.derive(config.seed, "family", *path)
    return Relatives(config.probe, config.probe_split, config.probes, canary.asked, config.family, seed)


def of_panel(config: UniqueFeature) -> Roots:
    """Models of somebody else, or of the data as they stand."""
    given = config.given
    roots: dict[str, Job | tuple[Job, ...]] = {}
    inputs: list[tuple[Job, ...]]
    if given.there:
        if not (given.models or given.outputs):
            raise ValueError("given has a shape alone; it must have models or outputs for there to be anything to ask")
        panel = [asked(config, number) for number in range(max(len(given.models), len(given.outputs)))]
        inputs = [() for _ in panel]
    else:
        check(config)
        trainings = [training(config, training_seed(config, 0, replicate)) for replicate in range(config.seeds)]
        panel = [replace(asked(config, 0), number=number) for number in range(len(trainings))]
        inputs = [(Job(train, each),) for each in trainings]
    check_fits(config.feature, *panel[0].shape[:2])
    roots["divergences"] = tuple(Job(ask, each, read) for each, read in zip(panel, inputs, strict=True))
    roots["family"] = tuple(Job(ask_family, each, read) for each, read in zip(panel, inputs, strict=True))
    roots["summary"] = summarised(config, roots)
    return roots


def asked(config: UniqueFeature, number: int) -> Asked:
    """What the panel's model of this number is asked."""
    given = config.given
    return Asked(
        relatives=relatives(config, Canary(0, 0, config.carried, config.feature)),
        random=config.random,
        shape=shape(config),
        number=number,
        model=given.models[number] if given.models else None,
        outputs=given.outputs[number] if given.outputs else None,
        interface=given.interface,
        classes=given.classes,
        columns=given.columns,
        label=given.label,
    )


def summarised(config: UniqueFeature, roots: Roots) -> Job:
    """The summary of the tables that there are; with `beside_plain` the scores of the plain network are one of them."""
    parts: list[Part] = []
    inputs: list[Job] = []
    read = {part: roots[part] for part in PARTS if part in roots}
    if not config.asks_models:
        read = {part: root for part, root in read.items() if part not in PANEL_PARTS}
    if config.beside_plain and "canary_scores" in roots:
        read["plain"] = scores(config.plain())["canary_scores"]
    for part, root in read.items():
        for job in root if isinstance(root, tuple) else (root,):
            parts.append(part)
            inputs.append(job)
    return Job(summary, Summary(tuple(parts), repeats(config)), tuple(inputs))
