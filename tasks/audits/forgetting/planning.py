"""From a config to jobs: which trainings, what each is asked, and the tables that the answers make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import PurePath

from tasks import seeds
from tasks.audits.forgetting.asked import SET, Ask, ask, check_table
from tasks.audits.forgetting.audited import Audited
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.distances import Distances, distances
from tasks.audits.forgetting.examples import Examples, examples
from tasks.audits.forgetting.fits import Fit, fit
from tasks.audits.forgetting.powers import Powers, beside_all, powers
from tasks.audits.forgetting.published import repeats
from tasks.audits.forgetting.ratios import Ratios, ratios
from tasks.audits.forgetting.summary import Summary, summary
from tasks.audits.forgetting.trainings import Model, check, trained
from tasks.datasets.catalog import load
from tasks.datasets.images import Pixels
from tasks.external.model_file import Interface
from tasks.job import Job, Roots


def plan(config: Forgetting) -> Roots:
    """The tables of the audit, `summary` among them; which ones follows from what is measured.

    A DatasetError where the data cannot serve, and a ValueError where a table of outputs cannot: before anything is
    trained.
    """
    check(config)
    config = plainly(config)
    for job in given(config):
        check_table(job.config)
    roots: dict[str, Job | tuple[Job, ...]] = {}
    if "scores" in config.measures:
        roots |= scored(config)
    if "examples" in config.measures:
        parts = dict(zip(("query", "calibration", "outside"), config.parts, strict=False))
        roots["examples"] = Job(examples, Examples(**parts, seed=seeds.derive(config.seed, "examples")))
    read = tuple(job for found in roots.values() for job in (found if isinstance(found, tuple) else (found,)))
    asked = tuple(job for job in read if job.function is not ask)  # what they said is in the tables made of it
    about = Summary(audited(config), repeats(config)) if "scores" in config.measures else Summary(())
    roots["summary"] = Job(summary, about, asked)
    return roots


def plainly(config: Forgetting) -> Forgetting:
    """The config with each part of the data written in one way, since its trainings and answers are keyed by it."""
    parts = {
        name: part.plainly(load(part.data))
        for name in ("query", "calibration", "outside")
        if (part := getattr(config, name)) is not None
    }
    return replace(config, **parts)


def scored(config: Forgetting) -> dict[str, Job | tuple[Job, ...]]:
    models = tuple(trained(config))
    said = (
        *(Job(ask, Ask(model, config.query, decimals=config.decimals), (job,)) for model, job in models),
        *given(config),
    )
    ratio = Ratios(audited(config), config.margin, config.resamples, seeds.derive(config.seed, "bootstrap"))
    found: dict[str, Job | tuple[Job, ...]] = {
        "ratios": Job(ratios, ratio, said),
        "distances": Job(distances, Distances(), said),
        "confidences": said,
        "fits": tuple(Job(fit, Fit(model), (job,)) for model, job in models),
    }
    if any(beside_all(target) and target.remembers for target in ratio.targets):
        found["power"] = Job(powers, Powers(ratio), said)
    return found


def given(config: Forgetting) -> Iterator[Job]:
    """What models of somebody else are asked, each a target of its own."""
    about = config.given
    asked = partial(Ask, query=config.query, decimals=config.decimals)
    for number, file in enumerate(about.models):
        yield Job(ask, asked(Model("target", number, 0), file=file, interface=about.interface))
    gives = Interface(gives=about.interface.gives)  # what a table is read by; the rest says how a model is asked
    for number, outputs in enumerate(about.outputs, start=len(about.models)):
        yield Job(ask, asked(Model("target", number, 0), outputs=outputs, interface=gives, columns=about.columns))


def audited(config: Forgetting) -> tuple[Audited, ...]:
    """The targets in their order: those that are trained here, or the given ones, by their files without the folders.

    Each has a name of its own, by which its numbers are known: of equal ones all but the first are numbered.
    """
    trained = [Audited(str(each), "training", each.query, each.calibration, each.outside) for each in config.targets]
    models = [Audited(PurePath(file.path).name, "model") for file in config.given.models]
    tables = [Audited(PurePath(file.path).name, "outputs") for file in config.given.outputs]
    found: dict[str, Audited] = {}
    for each in (*trained, *models, *tables):
        names = itertools.chain((each.name,), (f"{each.name} ({number})" for number in itertools.count(2)))
        name = next(name for name in names if name not in found)
        found[name] = replace(each, name=name)
    return tuple(found.values())


def probes(config: Forgetting) -> Iterator[tuple[str, Pixels]]:
    """The query set, which a model's owner asks the model about."""
    images = load(config.query.data)
    yield SET, images.train_images[config.query.rows(images)]
