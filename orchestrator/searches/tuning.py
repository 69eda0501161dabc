"""Run trials with Ray Tune, which proposes them, runs them in parallel and stops them early.

Tune stores nothing: its folder is temporary. A search that was killed starts again from its first trial with the same
sampler, and trials whose results are stored need no training, so it reaches the same trials. Tune's own resume
mechanism would keep the sampler's state but lose the scheduler's state, and up to a few seconds of trials.

Each trial is an actor that reserves no processor. It drives one run of an audit, whose jobs are separate Ray tasks. An
actor that has finished a trial takes the next one.
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

ReportTrial = Callable[[Trial], None]
EVALUATION = "evaluation"  # keys of Tune's config: the constant part
FIELD = "over"  # the sampled part
RUNG = "rung"
MEMORIZATION = "memorization"
UTILITY = "utility"
TRIAL = "told"
LAST = "last"
TRIAL_RESOURCES = {
    "memory": 1
}  # a trial only waits for its jobs, which reserve processors; Tune requires some resource
WORST = -1e300  # score of an objective without an estimate; Tune's schedulers cannot compare NaN
QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


class TrialTrainable(tune.Trainable):  # type: ignore[misc]  # Tune has no types here
    """A trial. Each step trains it to the next rung, or to the end if there are no rungs."""

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
        # Trial numbers are known only to the search.
        trial = self.evaluation.trial(self.store, -1, self.choices, epochs)
        self.climbed += 1
        objectives = search.objectives
        last = self.climbed >= len(rungs) or not trial.is_complete
        return {
            TRIAL: asdict(trial),
            RUNG: search.settings.keep_one_in ** (self.climbed - 1),
            MEMORIZATION: _score(trial.memorization, objectives.memorization.sign),
            UTILITY: _score(trial.utility, objectives.utility.sign),
            LAST: last,
            "done": last,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:  # noqa: ARG002 - the store has all state
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


class Listener(Callback):  # type: ignore[misc]  # untyped as well
    """Numbers the trials in the order in which they start, and reports the outcome of each."""

    def __init__(self, report_trial: ReportTrial) -> None:
        self.report_trial = report_trial
        self.numbers: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state, because Tune pickles it and `report_trial` may hold a reference to a terminal."""
        return {}

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:  # noqa: ARG002
        self.numbers.setdefault(trial.trial_id, len(self.numbers) + 1)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:  # noqa: ARG002
        if result["done"]:  # either finished or stopped by the scheduler, which Tune has recorded here
            fields = {**result[TRIAL], "number": self.numbers[trial.trial_id]}
            for objective in (MEMORIZATION, UTILITY):
                if fields[objective] is None:
                    fields[objective] = None
                else:
                    fields[objective] = Value(**fields[objective])
            trial_outcome = Trial(**fields)
            self.report_trial(trial_outcome if result[LAST] else replace(trial_outcome, state=STOPPED))


@dataclass
class Until(Stopper):  # type: ignore[misc]  # untyped as well
    """Stops the search once `is_over()` returns true."""

    is_over: Callable[[], bool]

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state, as in `Listener`."""
        return {}

    def __call__(self, trial_id: str, result: Any) -> bool:  # noqa: ARG002
        return False

    def stop_all(self) -> bool:
        return self.is_over()


def run_tuner(evaluation: Evaluation, report_trial: ReportTrial, is_over: Callable[[], bool]) -> None:
    """Run the trials of a search on the connected Ray cluster until `is_over()` returns true.

    `report_trial` is called in this process for each trial that has ended, in any state. Raises SpecError if the
    sampler is not installed.
    """
    search = evaluation.search
    listener = Listener(report_trial)
    with _folder() as folder, variables(QUIET), _plain():
        tuner = Tuner(
            tune.with_resources(TrialTrainable, PlacementGroupFactory([TRIAL_RESOURCES])),
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
                stop=Until(is_over),
                callbacks=[listener],
                failure_config=FailureConfig(max_failures=3),
            ),
        )
        outcome = tuner.fit()
        for error in outcome.errors:
            raise EngramError(f"a trial could not be run: {_last_line(error)}")


def _domain(search: Search, name: str) -> Any:
    """Return the domain of a field in the form that Tune samples."""
    domain: Domain = search.space[name]
    if isinstance(domain, Choice):
        values = list(domain.values)
        if search.settings.sampler == "grid":
            return tune.grid_search(values)
        return tune.choice(values)
    if domain.is_whole_number:
        if domain.log:
            draw = tune.lograndint
        else:
            draw = tune.randint
        return draw(int(domain.low), int(domain.high) + 1)
    return (tune.loguniform if domain.log else tune.uniform)(domain.low, domain.high)


def _spec_values(search: Search, drawn_values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the sampled values to the syntax of a specification."""
    spec_values = {}
    for name, value in drawn_values.items():
        domain = search.space[name]
        if isinstance(domain, Range):
            spec_values[name] = domain.round_value(value)
        else:
            spec_values[name] = value
    return spec_values


def _sampler(search: Search) -> Any:
    settings = search.settings
    if settings.sampler != "optuna":
        return BasicVariantGenerator(max_concurrent=settings.concurrent, random_state=settings.sampler_seed)
    from ray.tune.search import ConcurrencyLimiter
    from ray.tune.search.optuna import OptunaSearch

    try:
        sampler = OptunaSearch(metric=[MEMORIZATION, UTILITY], mode=["max", "max"], seed=settings.sampler_seed)
    except (ImportError, AssertionError):
        raise SpecError(f"sampler is optuna, which needs {OPTUNA.advice}") from None
    return ConcurrencyLimiter(sampler, max_concurrent=settings.concurrent)


def _scheduler(search: Search) -> Any:
    """Return a scheduler for successive halving by utility, which ends trials with low utility before full training.

    Memorisation is not used as the criterion because it is low whenever little has been learnt. Li et al. 2020, "A
    system for massively parallel hyperparameter tuning".
    """
    rungs = search.settings.rungs
    one_in = search.settings.keep_one_in
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
    """Return the error raised in a trial's process, which is the last line of Ray's traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines:
        return lines[-1]
    return type(error).__name__


def _score(value: Value | None, sign: int) -> float:
    """Return the objective, signed so that higher is better."""
    if value is None:
        return WORST
    return sign * value.estimate


@contextmanager
def _plain() -> Iterator[None]:
    """Give the trial actors the same environment as the calls of a run.

    Tune sets a variable for Lightning on its actors. Ray passes it on to the calls of a trial, which then cannot reuse
    workers started without it. As a result, a search used to start two sets of workers, each in two steps.
    """
    trial_variables = private_ray.trial_variables()
    original_values = dict(trial_variables)
    trial_variables.clear()
    try:
        yield
    finally:
        trial_variables.update(original_values)


@contextmanager
def _folder() -> Iterator[str]:
    """Create a temporary folder for Tune's files, next to the Ray session folder."""
    folder = tempfile.mkdtemp(prefix="engram-search-", dir=os.environ.get("RAY_TMPDIR"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
