"""From a config to jobs: which trainings, and the tables that what they say makes."""

from __future__ import annotations

from dataclasses import dataclass

from tasks import seeds
from tasks.audits.density.config import Density
from tasks.audits.density.distribution import Distribution, distribution
from tasks.audits.density.duplicates import Duplicates, duplicates
from tasks.audits.density.folds import Alone, Folds
from tasks.audits.density.kernel import Kernel, kernel, points
from tasks.audits.density.losses import Losses, losses
from tasks.audits.density.neighbours import Neighbouring, neighbours
from tasks.audits.density.outliers import Outliers, outliers
from tasks.audits.density.published import repeats
from tasks.audits.density.ratios import Ratios, ratios
from tasks.audits.density.reassignment import smallest_p_value
from tasks.audits.density.scores import Scores, scores
from tasks.audits.density.summary import Summary, summary
from tasks.audits.density.trainings import alone, folds, left_out, observations, partition_seed, whole
from tasks.job import Job, Roots


def plan(config: Density) -> Roots:
    """The tables of the audit, `summary` among them; which ones follows from what is measured."""
    roots: dict[str, Job | tuple[Job, ...]] = {}
    if config.trains:
        roots |= scored(config)
    if "kernel" in config.measures:
        asked = Kernel(seed=seeds.derive(config.seed, "kernel"))
        roots |= {"kernel": Job(kernel, asked), "points": Job(points, asked)}
    if "duplicates" in config.measures:
        roots["duplicates"] = Job(duplicates, Duplicates(config.data, config.examples))
    read = [job for name, job in roots.items() if name != "fits" and isinstance(job, Job)]
    roots["summary"] = Job(summary, summarised(config), tuple(read))
    return roots


@dataclass(frozen=True, eq=False)
class Fits:
    """The jobs that train: those whose models are asked for log p, and the links of the one of all data."""

    asked: tuple[Job, ...]
    whole: tuple[Job, ...]


def scored(config: Density) -> dict[str, Job | tuple[Job, ...]]:
    models, fits = asked(config), trained(config)
    found: dict[str, Job | tuple[Job, ...]] = {
        "scores": Job(scores, scoring(config, models), fits.asked),
        "distribution": Job(
            distribution,
            Distribution(models, config.recorded, config.draws, chance(config)),
            fits.asked,
        ),
        "losses": Job(losses, Losses(), (*fits.asked, *fits.whole)),
        "fits": (*fits.asked, *fits.whole),
    }
    ranked = found["scores"]
    assert isinstance(ranked, Job)
    if "outliers" in config.measures:
        binned = Outliers(config.outlier_bin, seed=seeds.derive(config.seed, "outliers"))
        found["outliers"] = Job(outliers, binned, (ranked,))
    if "neighbours" in config.measures:
        near = Job(neighbours, Neighbouring(config.data, config.examples, config.asked), (fits.whole[-1],))
        found |= {"neighbours": near, "ratios": Job(ratios, Ratios(config.score_bin), (ranked, near))}
    return found


def trained(config: Density) -> Fits:
    """The trainings of the estimator; of leave-one-out there are models of all data already."""
    if config.estimator == "loo":
        return Fits(tuple(job for chain in alone(config) for job in chain), ())
    return Fits(tuple(job for chain in folds(config) for job in chain), whole(config))


def asked(config: Density) -> Folds | Alone:
    """Which models there are to be, and what each left out."""
    count = observations(config)
    if config.estimator == "loo":
        return Alone(config.data, count, left_out(config), config.repetitions)
    partitions = tuple(partition_seed(config, repetition) for repetition in range(config.repetitions))
    return Folds(config.data, count, partitions, config.folds, config.asked)


def scoring(config: Density, models: Folds | Alone) -> Scores:
    return Scores(models, config.epochs, config.permutations, config.draws, chance(config))


def chance(config: Density) -> int:
    """One seed for both tables of scores: the distribution is then that of the scores told."""
    return seeds.derive(config.seed, "scores")


def summarised(config: Density) -> Summary:
    """What the summary is told of the run, beside the tables."""
    pair = config.estimator == "loo"
    models = 2 if pair else config.folds
    return Summary(
        planned=config.repetitions * models,
        smallest=smallest_p_value(config.repetitions, models, config.permutations),
        published=repeats(config),
        privacy=config.privacy if pair else None,
    )
