"""Train density models of images: the task with which density audits plan their models.

Published training: Adam with torch's defaults except for the learning rate, 64 images per step, a fixed number of
epochs, and the loss summed over a minibatch. log p of every observation is estimated at some of the epochs. Van den
Burg & Williams 2021, "On memorization in probabilistic deep generative models", algorithm 1 and supplement B.

Planning a training does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.job import Inputs, Work, format_shape, single_table, task
from tasks.contract.schemas import make_table
from tasks.datasets.images import rows_at_once
from tasks.models.catalog import autoencoder_growth
from tasks.training.chains import Linked, train_chains
from tasks.training.density_config import (
    DensityTraining,
    Fold,
    RefinedTraining,
    Row,
    examples,
    joined_copies,
    trained_on,
)
from tasks.training.described_steps import CodesStep, DensityStep
from tasks.training.members import Epoch, Member, Spec, minibatches
from tasks.worker import compute_context

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from tasks.datasets.images import PictureSet
    from tasks.training.density_objective import DensityObjective
    from tasks.training.trainer import Outcome

# One row per trained epoch.
FITTED = pa.schema(
    [
        ("seed", pa.int64()),
        ("partition", pa.int64()),  # seed of the partition whose fold was held out; null if none was
        ("fold", pa.int32()),
        ("row", pa.int64()),  # the held-out observation; null if none was
        ("epoch", pa.int32()),  # from 1
        ("train_loss", pa.float64()),  # mean over the epoch's training images, in nats
        ("test_loss", pa.float64()),  # mean over the test split
        ("epsilon", pa.float64()),  # of (epsilon, delta) differential privacy, spent so far; null without
        ("log_p", pa.large_list(pa.float32())),  # of every observation, in nats; null at epochs not requested
        # The effective number of samples, (sum of weights)^2 / sum of squared weights, for each of these; at most the
        # number drawn. Null if log p is, and for models that are not evaluated by importance sampling.
        ("effective_samples", pa.large_list(pa.float32())),
        ("samples", pa.large_binary()),  # float32 (drawn, h, w, c) in [0, 1], at the last epoch; null if none
    ]
)


# If codes are fitted to each observation, effective_samples refers to the fitted codes and another column to the
# encoder's codes.
REFINED = FITTED.append(pa.field("encoder_effective_samples", pa.large_list(pa.float32())))


STREAMED = 128  # divides the number of images in a part, since models of a user draw random numbers per 128 rows
OF_OBSERVATIONS = ("log_p", "effective_samples", "encoder_effective_samples")


def is_fitted(table: pa.Table) -> bool:
    """Return whether a table is the result of a training."""
    return bool(table.num_rows) and (table.schema.equals(FITTED) or table.schema.equals(REFINED))


@dataclass
class Evaluation:
    """The current results of a model: its samples and, by epoch, log p and effective sample sizes of all observations.

    After an `error`, the model is not evaluated again.
    """

    log_p: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    samples: NDArray[np.float32] | None = None
    error: ValueError | None = None
    effective_samples: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    encoder_effective_samples: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    way: str = ""  # how a GPU estimated log p: "triton" or "torch"


class Evaluator:
    """Evaluates every model of a call at its epochs, and stores the results by the model's position in `configs`.

    If a model cannot be evaluated, only this model fails.
    """

    def __init__(self, learning: DensityObjective, configs: Sequence[DensityTraining], images: PictureSet) -> None:
        from tasks.models.importance import Sampling

        first = configs[0] if configs else None
        self.learning = learning
        self.configs = configs
        self.images = images
        self.evaluations: dict[int, Evaluation] = {}
        refine = first.refine if isinstance(first, RefinedTraining) else 0
        if first:
            self.sampling = Sampling(first.samples, first.view, first.afresh, first.log_p_precision, refine)
        else:
            self.sampling = Sampling()

    def watch(self, progress: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]) -> None:
        """Evaluate the models of a stack that have reached an epoch at which they are to be evaluated."""
        usable = [position for position, (index, _) in enumerate(progress) if self._evaluation(index).error is None]
        self._record(
            [position for position in usable if progress[position][1] in self._config(progress[position]).recorded],
            progress,
            tensors,
        )
        for position in usable:
            if (
                self._config(progress[position]).drawn
                and progress[position][1] == self._config(progress[position]).epochs
            ):
                self._draw(position, progress, tensors)

    def _record(
        self, positions: Sequence[int], progress: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]
    ) -> None:
        if not positions:
            return
        try:
            log_p, effective, encoders = self._estimate_densities(positions, progress, tensors)
        except ValueError as error:
            if len(positions) == 1:
                self._evaluation(progress[positions[0]][0]).error = error
            else:
                for position in positions:
                    self._record([position], progress, tensors)
            return
        for number, (position, values) in enumerate(zip(positions, log_p, strict=True)):
            index, epoch = progress[position]
            evaluation = self._evaluation(index)
            invalid_rows = np.flatnonzero(np.isnan(values) | np.isposinf(values))
            if len(invalid_rows):
                evaluation.error = ValueError(
                    f"log p of observation {invalid_rows[0]} is {values[invalid_rows[0]]} after epoch {epoch}"
                )
            else:
                # A view would keep the results of all models in memory until the last model ends.
                evaluation.log_p[epoch] = values.copy()
                if effective is not None:
                    evaluation.effective_samples[epoch] = effective[number].copy()
                if encoders is not None:
                    evaluation.encoder_effective_samples[epoch] = encoders[number].copy()

    def _estimate_densities(
        self, positions: Sequence[int], progress: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, NDArray[np.float32] | None]:
        """Return log p of every observation under these models, and effective numbers of samples.

        The latter refer to fitted codes and, if different, to the encoder's codes. Each array is (positions,
        observations).
        """
        import torch

        selected_tensors, members = self._select_models(positions, progress, tensors)
        config = self.configs[progress[positions[0]][0]]
        parts = []
        for start, pixels in observations(config, self.images, members.device):
            rows = torch.arange(start, start + len(pixels), device=members.device)
            parts.append(self.learning.estimate_log_density(selected_tensors, pixels, rows, members, self.sampling))
        if members.is_cuda:
            for position in positions:
                self._evaluation(progress[position][0]).way = parts[0].way
        return (
            _join_parts([part.log_p for part in parts]),
            _join_optional_parts([part.effective_samples for part in parts]),
            _join_optional_parts([part.encoder_effective_samples for part in parts]),
        )

    def _draw(self, position: int, progress: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]) -> None:
        evaluation = self._evaluation(progress[position][0])
        config = self._config(progress[position])
        selected_tensors, members = self._select_models([position], progress, tensors)
        try:
            evaluation.samples = self.learning.sample(selected_tensors, members, config.drawn)[0].float().cpu().numpy()
        except ValueError as error:
            evaluation.error = error

    def _config(self, model: tuple[int, int]) -> DensityTraining:
        return self.configs[model[0]]

    def _evaluation(self, index: int) -> Evaluation:
        return self.evaluations.setdefault(index, Evaluation())

    def _select_models(
        self, positions: Sequence[int], progress: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], Tensor]:
        """Return the tensors and keys of these models."""
        import torch

        from tasks.models.counter_rng import member_key

        device = next(iter(tensors.values())).device
        keys = torch.tensor(
            [member_key(self.configs[progress[position][0]].seed) for position in positions], device=device
        )
        if len(positions) == len(progress):
            return tensors, keys
        rows = torch.tensor(list(positions), device=device)
        return {name: tensor[rows] for name, tensor in tensors.items()}, keys


def observations(config: DensityTraining, images: PictureSet, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Yield the images whose log p is estimated, (n, h w c) uint8, on the device, and the row of the first.

    Images that are on the device form one part. Others are read in parts, which start at multiples of `STREAMED`.
    """
    from tasks.training.device_data import place_images

    data = place_images(images, device)
    count = data.test_count if config.asked == "test" else examples(config, images)
    at_once = count
    if not data.is_resident:
        at_once = max(1, rows_at_once(images.shape, count) // STREAMED) * STREAMED
    for start in range(0, count, at_once):
        yield start, data.pixels(config.asked, start, min(start + at_once, count))


def _join_parts(parts: Sequence[Tensor]) -> NDArray[np.float32]:
    """Return numbers of all observations (models, observations) from those of consecutive parts."""
    return np.concatenate([part.float().cpu().numpy() for part in parts], axis=1)


def _join_optional_parts(parts: Sequence[Tensor | None]) -> NDArray[np.float32] | None:
    """Return `_join_parts`, or None if the model has no such numbers."""
    present = [part for part in parts if part is not None]
    return _join_parts(present) if present else None


def density_table(
    config: DensityTraining, history: Sequence[Epoch], evaluation: Evaluation, epsilons: Sequence[float] | None = None
) -> pa.Table:
    """Return the FITTED or REFINED table of a trained model.

    `epsilons` is the privacy spent by the end of each epoch.
    """
    schema = REFINED if isinstance(config, RefinedTraining) else FITTED
    fold = config.held_out if isinstance(config.held_out, Fold) else None
    row = config.held_out.row if isinstance(config.held_out, Row) else None
    if evaluation.samples is None:
        samples = None
    else:
        samples = evaluation.samples.tobytes()
    of_observations = {}
    for name in OF_OBSERVATIONS:
        if name in schema.names:
            by_epoch = getattr(evaluation, name)
            of_observations[name] = lists([by_epoch.get(epoch.epoch) for epoch in history])
    return make_table(
        schema,
        seed=config.seed,
        partition=fold and fold.partition,
        fold=fold and fold.number,
        row=row,
        epoch=[epoch.epoch for epoch in history],
        train_loss=[epoch.train_loss for epoch in history],
        test_loss=[epoch.validation_loss for epoch in history],
        epsilon=epsilons,
        samples=[None] * (len(history) - 1) + [samples],
        **of_observations,
    )


def lists(arrays: Sequence[NDArray[np.float32] | None]) -> pa.Array:
    """Return a column of number lists, null for None, without copying individual numbers."""
    lengths = [0 if values is None else len(values) for values in arrays]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    present = [values for values in arrays if values is not None]
    flat = pa.array(np.concatenate(present) if present else np.empty(0, np.float32))
    absent = pa.array([values is None for values in arrays])
    return pa.LargeListArray.from_arrays(pa.array(offsets), flat, mask=absent)


def batch_key(config: DensityTraining) -> DensityTraining:
    """Return the settings that trainings in one call must share.

    These are all settings except seed, learning rate, held-out data and evaluations.
    """
    return replace(config, seed=0, held_out=None, recorded=(), learning_rate=1.0, drawn=0)


def train_many(
    configs: Sequence[DensityTraining],
    inputs: Sequence[Inputs],  # noqa: ARG001 - a training reads no tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each training's FITTED table, or its exception, when it ends. All must have the same batch key."""
    from tasks.datasets.catalog import load
    from tasks.training.density_objective import generative

    first = configs[0]
    if len({batch_key(config) for config in configs}) > 1:
        raise ValueError(
            "trainings that differ in more than seed, learning rate, held-out data and evaluations cannot share a call"
        )
    images = load(first.data)
    learning = generative(first.model, images, first.outliers, first.width)
    members: dict[int, Member] = {}
    for index, config in enumerate(configs):
        try:
            if config.drawn:
                learning.check_drawn()
            members[index] = member_of(config, images)
        except ValueError as error:
            yield index, error
    order = list(members)
    evaluator = Evaluator(learning, [configs[index] for index in order], images)
    spec = Spec(learning, first.recipe, images, evaluator.watch)
    outcomes: Iterator[Outcome]
    if first.privacy is not None:  # a private training is never split into links
        from tasks.training import dp_sgd

        steps = {index: private_steps(configs[index], members[index]) for index in order}
        outcomes = dp_sgd.train_by_index(spec, members, first.privacy, steps)
    else:
        outcomes = train_chains(spec, members, {index: chain_state(configs[index]) for index in order})
    positions = {index: position for position, index in enumerate(order)}
    for index, outcome in outcomes:
        evaluation = evaluator.evaluations.pop(positions[index], Evaluation())
        if isinstance(outcome, Exception):
            yield index, outcome
        elif evaluation.error is not None:
            yield index, evaluation.error
        else:
            if evaluation.way:
                compute_context.note_further(log_p=evaluation.way)
            yield index, density_table(configs[index], outcome.history, evaluation, outcome.epsilons)


def work(config: DensityTraining) -> Work:
    """Return the work of the training and of its log p estimates."""
    from tasks.datasets.catalog import load

    images = load(config.data)
    rows = examples(config, images)
    if config.held_out is None:
        training_rows = rows
    else:
        training_rows = len(trained_on(config, rows, joined_copies(config, images)))
    if config.asked == "train":
        evaluated_rows = rows
    else:
        evaluated_rows = len(images.test)
    model = f"{config.model.name} on {format_shape(images.shape)}"
    way = "train" if config.privacy is None else "privately train"
    passes = 1
    if isinstance(config, RefinedTraining):
        passes = 1 + config.refine
    estimated = evaluated_rows * config.samples * len(config.recorded) * passes
    training_cost, decoding_cost = autoencoder_growth(images.shape, config.width)
    training_unit, codes_unit = f"{way} {model}", f"draw codes for {model}"
    name = str(config.model)
    training_step = DensityStep(
        name, images.shape, config.width, config.batch, config.privacy is not None, 1 / training_cost, config.precision
    )
    return Work(
        {training_unit: training_cost * training_rows * config.epochs},
        {codes_unit: decoding_cost * estimated},
        operations={
            training_unit: training_step,
            codes_unit: CodesStep(name, images.shape, config.width, 1 / decoding_cost),
        },
    )


@task(
    version=2,
    name="generator.fit",
    gpus=1.0,
    many=train_many,
    batch_key=batch_key,
    trains=1,
    work=work,
    spreads=True,
)
def fit(config: DensityTraining, inputs: Inputs) -> pa.Table:
    """Train a model and return its losses and log p of every observation (FITTED)."""
    return single_table(train_many, config, inputs)


def member_of(config: DensityTraining, images: PictureSet) -> Member:
    """Return the member with its training rows. Raises ValueError if the held-out row is not an observation."""
    rows = trained_on(config, examples(config, images), joined_copies(config, images))
    return Member(config.seed, rows, learning_rate=config.learning_rate)


def private_steps(config: DensityTraining, member: Member) -> int:
    """Return the number of steps in a private epoch.

    It is the same with and without a held-out row, so that both trainings are the same mechanism.
    """
    return minibatches(len(member.rows) + isinstance(config.held_out, Row), config.batch)


def chain_state(config: DensityTraining) -> Linked:
    """Return the states that a training may continue from.

    They belong to the same training, for any epochs and evaluations.
    """
    one_epoch_config = replace(config, epochs=1, recorded=(), drawn=0)
    return Linked(f"{one_epoch_config} {one_epoch_config.recipe}", latest(config))


def latest(config: DensityTraining) -> int:
    """Return the last epoch that a training may continue from, which precedes its first evaluation."""
    evaluated = (*config.recorded, *((config.epochs,) if config.drawn else ()))
    return min(evaluated) - 1 if evaluated else config.epochs
