"""Trials proposed, stopped early and run side by side by Ray Tune.

Tune keeps nothing: its folder is temporary. A search that was killed is made again from its first trial with the same
sampler, and trials whose results are stored cost no training. So it comes to the same trials, in contrast to Tune's
own resume, which keeps the sampler's state and loses that of the scheduler, and up to some seconds of trials.

Each trial is an actor that takes no processor: it drives one run of an audit, whose jobs are Ray tasks of their own. An
actor that has ended a trial takes the next one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from ray import tune
from ray.tune import Callback, FailureConfig, PlacementGroupFactory, RunConfig, Stopper, TuneConfig, Tuner
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler
from ray.tune.search.basic_variant import BasicVariantGenerator

from orchestrator.errors import EngramError, SpecError
from orchestrator.executors import private_ray
from orchestrator.executors.environment import variables
from orchestrator.searches.definition import Choice, Domain, Range, Search
from orchestrator.searches.evaluation import Evaluation
from orchestrator.searches.trials import STOPPED, Trial, Value
from tasks.contract.extras import OPTUNA

Hear = Callable[[Trial], None]
EVALUATION, FIELD = "evaluation", "over"  # of Tune's config: what is constant, and what is drawn
RUNG, MEMORIZATION, UTILITY, TOLD, LAST = "rung", "memorization", "utility", "told", "last"
HARDLY_ANY = {"memory": 1}  # a trial waits for its jobs, which ask for processors; Tune refuses to ask for nothing
WORST = -1e300  # of an objective without an estimate; Tune's schedulers cannot compare a NaN
QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


class TrialTrainable(tune.Trainable):  # type: ignore[misc]  # Tune has no types here
    """A trial: each step trains it to the next rung, or to its end where there are no rungs."""

    def setup(self, config: dict[str, Any]) -> None:
        self.evaluation: Evaluation = config[EVALUATION]
        self.store = self.evaluation.enter_environment()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.choices = _spec_values(self.evaluation.search, new_config[FIELD])
        self.climbed = 0
        return True

    def step(self) -> dict[str, Any]:
        search = self.evaluation.search
        rungs = search.settings.rungs
        epochs = rungs[self.climbed] if rungs else None
        # The number of the trial is known to the search alone.
        trial = self.evaluation.trial(self.store, -1, self.choices, epochs)
        self.climbed += 1
        objectives = search.objectives
        last = self.climbed >= len(rungs) or not trial.whole
        return {
            TOLD: asdict(trial),
            RUNG: search.settings.keep_one_in ** (self.climbed - 1),
            MEMORIZATION: _score(trial.memorization, objectives.memorization.sign),
            UTILITY: _score(trial.utility, objectives.utility.sign),
            LAST: last,
            "done": last,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:  # noqa: ARG002 - the store has all there is
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


class Listener(Callback):  # type: ignore[misc]  # nor here
    """Numbers the trials in the order in which they begin, and passes on what came of each."""

    def __init__(self, hear: Hear) -> None:
        self.hear = hear
        self.numbers: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune writes down what it would restore a search by, and who hears may hold a terminal."""
        return {}

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:  # noqa: ARG002
        self.numbers.setdefault(trial.trial_id, len(self.numbers) + 1)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:  # noqa: ARG002
        if result["done"]:  # by itself, or because the scheduler stops it, which Tune has noted here by now
            told = {**result[TOLD], "number": self.numbers[trial.trial_id]}
            for each in (MEMORIZATION, UTILITY):
                told[each] = None if told[each] is None else Value(**told[each])
            ended = Trial(**told)
            self.hear(ended if result[LAST] else replace(ended, state=STOPPED))


@dataclass
class Until(Stopper):  # type: ignore[misc]  # nor here
    """Ends the search when there is a reason to."""

    over: Callable[[], bool]

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, as of a `Listener`."""
        return {}

    def __call__(self, trial_id: str, result: Any) -> bool:  # noqa: ARG002
        return False

    def stop_all(self) -> bool:
        return self.over()


def run_tuner(evaluation: Evaluation, hear: Hear, over: Callable[[], bool]) -> None:
    """Make the trials of a search, on the Ray cluster that this process is connected to, until `over()` is true.

    `hear` is called in this process with each trial that has ended, whichever way. Raises SpecError where the sampler
    is not installed.
    """
    search = evaluation.search
    listener = Listener(hear)
    with _folder() as folder, variables(QUIET), _plain():
        tuner = Tuner(
            tune.with_resources(TrialTrainable, PlacementGroupFactory([HARDLY_ANY])),
            param_space={EVALUATION: evaluation, FIELD: {name: _domain(search, name) for name in search.space}},
            tune_config=TuneConfig(
                search_alg=_sampler(search),
                scheduler=_scheduler(search),
                num_samples=1 if search.settings.sampler == "grid" else search.trials,
                max_concurrent_trials=None,
                reuse_actors=True,
            ),
            run_config=RunConfig(
                name="search",
                storage_path=folder,
                verbose=0,
                stop=Until(over),
                callbacks=[listener],
                failure_config=FailureConfig(max_failures=3),
            ),
        )
        ended = tuner.fit()
        for error in ended.errors:
            raise EngramError(f"a trial could not be made: {_last_line(error)}")


def _domain(search: Search, name: str) -> Any:
    """The domain of a field as Tune samples it."""
    domain: Domain = search.space[name]
    if isinstance(domain, Choice):
        values = list(domain.values)
        return tune.grid_search(values) if search.settings.sampler == "grid" else tune.choice(values)
    if domain.whole:
        draw = tune.lograndint if domain.log else tune.randint
        return draw(int(domain.low), int(domain.high) + 1)
    return (tune.loguniform if domain.log else tune.uniform)(domain.low, domain.high)


def _spec_values(search: Search, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """What was drawn, as it is written in a specification."""
    written = {}
    for name, value in drawn.items():
        domain = search.space[name]
        written[name] = domain.round_value(value) if isinstance(domain, Range) else value
    return written


def _sampler(search: Search) -> Any:
    settings = search.settings
    if settings.sampler != "optuna":
        return BasicVariantGenerator(max_concurrent=settings.concurrent, random_state=settings.sampler_seed)
    from ray.tune.search import ConcurrencyLimiter
    from ray.tune.search.optuna import OptunaSearch

    try:
        found = OptunaSearch(metric=[MEMORIZATION, UTILITY], mode=["max", "max"], seed=settings.sampler_seed)
    except (ImportError, AssertionError):
        raise SpecError(f"sampler is optuna, which needs {OPTUNA.advice}") from None
    return ConcurrencyLimiter(found, max_concurrent=settings.concurrent)


def _scheduler(search: Search) -> Any:
    """Successive halving by utility over the rungs: what is not useful early is not trained to its end.

    Not by memorization, which is low wherever little was learnt yet. Li et al. 2020, "A system for massively parallel
    hyperparameter tuning".
    """
    rungs, one_in = search.settings.rungs, search.settings.keep_one_in
    if not rungs:
        return FIFOScheduler()
    return AsyncHyperBandScheduler(
        time_attr=RUNG,
        metric=UTILITY,
        mode="max",
        max_t=one_in ** (len(rungs) - 1),
        grace_period=1,
        reduction_factor=one_in,
    )


def _last_line(error: Exception) -> str:
    """What happened in a trial's process: the last line of the traceback that Ray passes on."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _score(value: Value | None, sign: int) -> float:
    """An objective of which more is better."""
    return WORST if value is None else sign * value.estimate


@contextmanager
def _plain() -> Iterator[None]:
    """Let the trials' actors be as plain as the calls of a run.

    Tune gives its actors a variable for Lightning. Ray hands it on to the calls of a trial, and no worker of a process
    without it would be taken for them: a search started two sets of workers, and each in two steps.
    """
    of_trials = private_ray.trial_variables()
    before = dict(of_trials)
    of_trials.clear()
    try:
        yield
    finally:
        of_trials.update(before)


@contextmanager
def _folder() -> Iterator[str]:
    """A folder for what Tune writes, gone afterwards; Ray's own session lies beside it."""
    made = tempfile.mkdtemp(prefix="engram-search-", dir=os.environ.get("RAY_TMPDIR"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
