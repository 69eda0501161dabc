"""Fine-tune on minibatches of texts with similar lengths, and record the model's answers after some epochs.

Private training is DP-SGD, with clipping, noise and accounting by opacus. Every step samples each question with
probability 1 / (steps per epoch) (Poisson sampling), clips the gradient of its mean loss per token to the norm `clip`,
sums these gradients, and adds normal noise, scaled so that all epochs together are (epsilon, delta)-differentially
private for one question with its answer. Adafactor uses the result as the gradient. Abadi et al. 2016, "Deep learning
with differential privacy", algorithm 1. The guarantee is not pure epsilon: with probability delta, more may be
revealed.

The protected unit is one training question; questions about the same context are protected individually, not jointly.
The number of questions is public, and so is the vocabulary of a tiny model, which is derived from the texts. Noise and
sampling follow from the config's seed, so results are reproducible: this measures the effect of differential privacy
and is not suitable for releasing a model (`tasks.training.dp_sgd` has details).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad_and_value, vmap

from tasks.datasets.questions.question import Question, QuestionSet
from tasks.language_models.fine_tuning_config import FineTuning, Reader, Tuning
from tasks.language_models.language_model import TINY_RULES
from tasks.language_models.sequence_model import DecoderOnly, SequenceModel, Tokens, answer_text, parse_answer
from tasks.language_models.sharding import no_gradients, zero_moments
from tasks.numerics import seeds
from tasks.numerics.seeds import drawn_from
from tasks.question_answering.question_sets import SETS, DigitRemoval, Selection, Split
from tasks.training import dp_sgd, memory
from tasks.training.fit import Losses, fit_link
from tasks.training.members import minibatches
from tasks.worker import compute_context
from tasks.worker.ranks import add_over_ranks, current_ranks, share_rows

POOL = 16  # number of minibatches that are jointly sorted by length


def batches(lengths: Sequence[int], size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the rows of each minibatch of an epoch. They depend only on the seed and the epoch.

    The rows are shuffled and sorted by length within pools of 16 minibatches, and then the minibatches are shuffled.
    Each row occurs once, and the last minibatch may be smaller.
    """
    stream = seeds.generator(seed, "batch order", epoch)
    order = stream.permutation(len(lengths))
    pools = [order[start : start + POOL * size] for start in range(0, len(order), POOL * size)]
    by_length = [pool[np.argsort(np.asarray(lengths)[pool], kind="stable")] for pool in pools]
    minibatches = []
    for pool in by_length:
        for start in range(0, len(pool), size):
            minibatches.append(pool[start : start + size])
    return [minibatches[index] for index in stream.permutation(len(minibatches))]


def partners(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the question (count,) int64 whose answer replaces that of each question in an epoch, counted from 1.

    The result is a permutation: no question has its own answer, or the same answer twice within count - 1 epochs, after
    which the sequence repeats. Raises ValueError for fewer than two questions.
    """
    if count < 2:
        raise ValueError(f"examples: expected at least 2 questions with relation=redrawn, got {count}. Add questions.")
    order = seeds.generator(seed, "answers").permutation(count)
    shifts = seeds.generator(seed, "shifts").permutation(count - 1) + 1
    partner = np.empty(count, np.int64)
    partner[order] = np.roll(order, int(shifts[(epoch - 1) % (count - 1)]))
    return partner


def token_batches(lengths: Sequence[int], tokens: int) -> list[NDArray[np.int64]]:
    """Divide the rows, from longest to shortest, into batches of at most `tokens` padded tokens.

    A batch of a single row may have more tokens.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    token_batches: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        size = max(1, tokens // max(1, lengths[order[start]]))
        token_batches.append(order[start : start + size])
        start += size
    return token_batches


DECODED = {"cpu": 8192, "cuda": 131_072}  # prompt tokens that are decoded at a time
# Adafactor's second moments
ROW = "exp_avg_sq_row"
COLUMN = "exp_avg_sq_col"
WHOLE = "exp_avg_sq"


class AnswerRecorder:
    """The questions for a model, and its answers as rows of ANSWERS."""

    def __init__(self, config: FineTuning, model: SequenceModel, questions: QuestionSet) -> None:
        self.model = model
        self.scorer = questions.scorer
        self.most = config.answer_length
        self.asked: list[tuple[Split, bool, str]] = []
        texts: list[tuple[str, str]] = []
        selected = Selection(config.examples, config.held_out, config.numeric).select(questions)
        for split, corrupted in SETS.values() if config.asked else ():
            for question in selected[split]:
                if corrupted:
                    context = config.corruption.corrupt_context(question)
                else:
                    context = question.context
                self.asked.append((split, corrupted, question.id))
                texts.append((question.question, context))
        self.prompts = model.prompts(texts, config.length) if texts else []

    def answer_rows(self, epoch: int, train_loss: float | None) -> Iterator[dict[str, Any]]:
        """Yield the model's current answers, one row per question and context."""
        answers = decode_answers(self.model, self.prompts, self.most)
        for (split, corrupted, name), text in zip(self.asked, answers, strict=True):
            yield {
                "epoch": epoch,
                "split": split,
                "corrupted": corrupted,
                "id": name,
                "answer": list(parse_answer(text, self.scorer)),
                "train_loss": train_loss,
            }


def decode_answers(model: SequenceModel, prompts: Sequence[Tokens], max_tokens: int) -> list[str]:
    """Decode the likeliest answer to each prompt, with at most `max_tokens` tokens."""
    return model.decode_texts(decode_tokens(model, prompts, max_tokens))


def decode_tokens(model: SequenceModel, prompts: Sequence[Tokens], max_tokens: int) -> list[Tokens]:
    """Decode the likeliest continuation of each prompt. Values after the end token are arbitrary."""
    decoded: list[Tokens] = [[]] * len(prompts)
    model.module.eval()
    with no_gradients():
        for rows in token_batches([len(prompt) for prompt in prompts], DECODED[model.device.type]):
            tokens = model.greedy_decode([prompts[row] for row in rows], max_tokens).tolist()
            for row, its in zip(rows, tokens, strict=True):
                decoded[row] = its
    return decoded


@dataclass(frozen=True)
class Examples:
    """Training examples: a model reads a prompt and learns to continue with its target.

    Minibatches contain examples with similar `lengths`.
    """

    prompts: Sequence[Tokens]
    targets: Sequence[Tokens]
    lengths: Sequence[int]


def encode_questions(config: FineTuning, model: SequenceModel, train: Sequence[Question]) -> Examples:
    """Tokenise questions and contexts as prompts, and first gold answers as targets."""
    prompts = model.prompts([(question.question, question.context) for question in train], config.length)
    targets = model.targets([answer_text(question.golds[0]) for question in train], config.answer_length)
    return Examples(prompts, targets, [len(prompt) for prompt in prompts])


def encode_texts(config: Reader, model: SequenceModel, texts: Sequence[str]) -> Examples:
    """Tokenise whole texts as targets, without a prompt."""
    targets = model.encode_texts(texts, config.length)
    return Examples([[model.begin]] * len(texts), targets, [len(target) for target in targets])


def score_texts(config: Reader, model: SequenceModel, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the log probability of each whole text in nats, (texts,), summed over its tokens."""
    return score_targets(model, encode_texts(config, model, texts))


def score_candidates(config: Reader, model: SequenceModel, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return `score_texts` up to rounding.

    A decoder-only model reads the common beginning of the texts only once.
    """
    if not isinstance(model, DecoderOnly):
        return score_texts(config, model, texts)
    targets = model.encode_texts(texts, config.length)
    alike = takewhile(lambda column: len(set(column)) == 1, zip(*targets, strict=False))
    shared = min(sum(1 for _ in alike), min(map(len, targets)) - 1)
    before = targets[0][:shared]
    prefix = 0.0
    if shared:
        prefix = score_targets(model, Examples([[model.begin]], [before], [shared]))[0]
    scores = np.full(len(texts), prefix)
    model.module.eval()
    with no_gradients():
        for rows in token_batches([len(target) for target in targets], DECODED[model.device.type]):
            losses = model.continuation_losses([model.begin, *before], [targets[row][shared:] for row in rows])
            scores[rows] -= losses.sum(1).double().cpu().numpy()
    return scores


def score_targets(
    model: SequenceModel, examples: Examples, reduce: Callable[[Tensor], Tensor] = lambda log_p: log_p.sum(1)
) -> NDArray[np.float64]:
    """Return the log probability of each target given its prompt in nats, (examples,), summed over its tokens.

    `reduce` replaces the sum. It receives the tokens' log probabilities (examples, longest), which are 0 after the end
    of a target.
    """
    scores = np.empty(len(examples.targets))
    model.module.eval()
    with no_gradients():
        for rows in token_batches(examples.lengths, DECODED[model.device.type]):
            batch = [examples.prompts[row] for row in rows], [examples.targets[row] for row in rows]
            scores[rows] = reduce(-model.token_losses(*batch)).double().cpu().numpy()
    return scores


def least_likely(share: float) -> Callable[[Tensor], Tensor]:
    """Return a reduction to the mean log probability of the least likely share of tokens: Min-k %.

    Shi et al. 2024, eq. 1.
    """

    def mean(log_p: Tensor) -> Tensor:
        counts = (log_p < 0).sum(1)
        kept_count = (share * counts).ceil().clamp(min=1)[:, None]
        first = torch.arange(log_p.shape[1], device=log_p.device)[None] < kept_count
        return (log_p.sort(1).values * first).sum(1) / kept_count[:, 0]

    return mean


class FineTuner:
    """The training of one model."""

    def __init__(self, config: Tuning, model: SequenceModel, examples: Examples) -> None:
        self.config = config
        self.model = model
        self.prompts = examples.prompts
        self.targets = examples.targets
        self.lengths = examples.lengths
        self.weights: dict[str, Tensor] = {
            name: weight for name, weight in model.module.named_parameters() if weight.requires_grad
        }
        self.optimiser = adafactor(list(self.weights.values()), config.learning_rate)
        self.steps = self.tokens = 0  # all steps taken, and tokens in the latest epoch
        self.parts = self.planned_parts = config.accumulate

    def fit(self, name: str, record: Callable[[int, float | None], None], index: int | None) -> None:
        """Train all epochs and call `record(epoch, loss)` after the recorded ones.

        The job with this index in a call may continue from a state with this name and save one. If index is None, it
        does neither.
        """
        config = self.config
        # The noise of private training depends on its length, so it cannot continue from another state.
        link = index if config.privacy is None else None
        is_alone = current_ranks().size == 1
        if config.privacy is None and is_alone and memory.raises_when_full(self.model.device):
            self.parts = self._find_parts()
        fit_link(self, link, name, config.seed, config.epochs, config.asked, record)

    def take_steps(self, epoch: int) -> Iterator[Tensor]:
        """Take the steps of an epoch, yielding the sum of each step's token losses in nats."""
        targets = self._targets(epoch)
        self.model.module.train()
        self.tokens = 0
        for state in self.optimiser.state.values():
            state["step"] = self.steps  # needed after continuing from a state
        # The ranks of a process group compute different rows, which must not have the same dropout.
        stream: list[str | int] = ["dropout", epoch]
        if current_ranks().size > 1:
            stream.append(current_ranks().rank)
        with drawn_from(self.config.seed, *stream, device=self.model.device):
            minibatches = self._minibatches(self.lengths, epoch)
            for taken, rows in enumerate(minibatches, 1):
                loss, count = self._step(rows, targets)
                self.tokens += count
                yield loss
                compute_context.advance((epoch - 1 + taken / len(minibatches)) / self.config.epochs)

    def mean_loss(self, losses: Losses) -> float:
        """Return the mean over the tokens of the latest epoch, or NaN if no question was sampled."""
        return float(losses.sum() / self.tokens) if self.tokens else math.nan

    def _minibatches(self, lengths: Sequence[int], epoch: int) -> Sequence[Sequence[int]]:
        """Return the questions of each step of an epoch."""
        minibatches = []
        for rows in batches(lengths, self.config.batch, self.config.seed, epoch):
            minibatches.append(rows.tolist())
        return minibatches

    def _step(self, rows: Sequence[int], targets: Sequence[Tokens]) -> tuple[Tensor, int]:
        """Take a step on the mean token loss. Returns the sum of losses in nats and the number of tokens."""
        result = self._backward(rows, targets, self.parts)
        self.optimiser.step()
        self.steps += 1
        return result

    def _find_parts(self) -> int:
        """Return the number of parts in which steps fit into memory. Raises TrainingError if they do not fit.

        The longest texts are tried.
        """
        config = self.config
        longest = np.argsort(-np.asarray(self.lengths), kind="stable")[: config.batch].tolist()
        obstacle = None
        if config.dropout:
            obstacle = "each part would draw its own dropout masks, which changes the result"

        def compute(parts: int) -> None:
            self.model.module.train()
            with drawn_from(config.seed, "rehearsal", device=self.model.device):
                self._backward(longest, self.targets, parts)

        try:
            return memory.find_parts(compute, self.parts, config.batch, self.model.device, config.model.name, obstacle)
        finally:
            self.optimiser.zero_grad()

    def _backward(self, rows: Sequence[int], targets: Sequence[Tokens], parts: int) -> tuple[Tensor, int]:
        """Compute the gradients of the mean token loss in parts.

        Returns the sum of losses in nats and the number of tokens. The ranks of a process group share the rows of each
        part. A rank without rows computes one, whose loss does not count, since the layers are divided among all ranks.
        """
        self.optimiser.zero_grad()
        total = torch.zeros((), device=self.model.device)
        tokens = sum(len(targets[row]) for row in rows)
        part = self.config.batch // parts
        for start in range(0, len(rows), part):
            share = share_rows(start, min(start + part, len(rows)))
            weight = float(share.stop > share.start)
            part_rows = rows[share] if weight else rows[start : start + 1]
            loss = self.model.losses(
                [self.prompts[row] for row in part_rows], [targets[row] for row in part_rows]
            ).sum()
            if current_ranks().size > 1:
                loss = loss * weight
            torch.autograd.backward(loss * current_ranks().size / tokens)  # FSDP averages gradients over ranks
            total += loss.detach()
        add_over_ranks([total])
        return total, tokens

    def _targets(self, epoch: int) -> Sequence[Tokens]:
        """Return the training answers of this epoch, by question."""
        if self.config.relation == "kept":
            return self.targets
        result = []
        for partner in partners(len(self.targets), self.config.seed, epoch):
            result.append(self.targets[partner])
        return result

    def arrays(self) -> Mapping[str, Tensor]:
        """Return the weights and Adafactor's second moments, by name."""
        arrays = {f"weight {name}": weight.detach() for name, weight in self.weights.items()}
        for name, weight in self.weights.items():
            state = self.optimiser.state[weight]
            arrays |= {f"{moment} {name}": state[moment] for moment in (ROW, COLUMN, WHOLE) if moment in state}
        return arrays


def adafactor(weights: Sequence[Tensor], learning_rate: float) -> Any:
    """Return Adafactor with a constant learning rate, which is its step size, without momentum or weight decay.

    This is the transformers implementation with its settings for T5 at 1e-3. T5's own code also scales steps by the
    size of each tensor. Shazeer & Stern 2018, algorithms 4 and 5.
    """
    from transformers.optimization import Adafactor

    optimiser = Adafactor(weights, lr=learning_rate, scale_parameter=False, relative_step=False, warmup_init=False)
    for weight in weights:  # initial values, so that a state contains them before the first step
        shape = weight.shape
        if weight.dim() > 1:
            shapes = {ROW: shape[:-1], COLUMN: (*shape[:-2], *shape[-1:])}
        else:
            shapes = {WHOLE: shape}
        optimiser.state[weight] = {"step": 0, "RMS": 0, **zero_moments(weight, shapes)}
    return optimiser


def state_name(config: FineTuning) -> str:
    """Return the name of a training's state: all settings except its length and the recorded answers."""
    same = replace(config, epochs=1, recorded=(), held_out=0, numeric=False, corruption=DigitRemoval())
    return f"fine-tuning 1: {same} {TINY_RULES[sizes.kind] if (sizes := config.model.tiny_sizes) else ''}"


class PrivateFineTuner(FineTuner):
    """The private training of one model, with per-question gradients computed by vmap from torch.func.

    On a CPU, a step of a tiny T5 takes about three times as long as one without privacy. Raises ValueError if opacus is
    not installed, if no amount of noise suffices, or if vmap does not support the model.
    """

    def __init__(self, config: Tuning, model: SequenceModel, examples: Examples) -> None:
        super().__init__(config, model, examples)
        dp_sgd.opacus()  # raises ValueError if it is not installed
        from opacus.optimizers import DPOptimizer

        assert config.privacy is not None
        self.steps_per_epoch = minibatches(len(self.prompts), config.batch)
        noise = dp_sgd.noise(config.privacy, self.steps_per_epoch, config.epochs)
        self.private: Any = DPOptimizer(
            self.optimiser,
            noise_multiplier=noise,
            max_grad_norm=config.privacy.clip,
            expected_batch_size=None,
            loss_reduction="sum",  # Adafactor's steps do not depend on the size of gradients
            generator=dp_sgd.generator(config.seed, "privacy", model.device),
        )
        dp_sgd.share_noise(self.private)
        self.gradients = vmap(grad_and_value(model.loss_of), in_dims=(None, 0), randomness="different")

    def _minibatches(self, lengths: Sequence[int], epoch: int) -> Sequence[Sequence[int]]:
        """Sample the questions of each step, of which there may be none."""
        draws = seeds.generator(self.config.seed, "private rows", epoch)
        chance = 1 / self.steps_per_epoch
        minibatches = []
        for _ in range(self.steps_per_epoch):
            minibatches.append(np.flatnonzero(draws.random(len(lengths)) < chance).tolist())
        return minibatches

    def _step(self, rows: Sequence[int], targets: Sequence[Tokens]) -> tuple[Tensor, int]:
        """Take a private step. Returns the sum of losses in nats and the number of tokens."""
        total = torch.zeros((), device=self.model.device)
        part = self.config.batch // self.parts
        by_length = sorted(rows, key=lambda row: self.lengths[row])
        parts = []
        for start in range(0, len(rows), part):
            share = share_rows(start, min(start + part, len(rows)))
            if share.start < share.stop:
                parts.append(by_length[share])
        self.private.zero_grad()
        for number, part_rows in enumerate(parts, 1):
            answers = [targets[row] for row in part_rows]
            slopes, losses = self._gradients([self.prompts[row] for row in part_rows], answers)
            for name, weight in self.weights.items():
                weight.grad_sample = slopes[name]  # type: ignore[attr-defined]
            if number < len(parts):
                self.private.signal_skip_step(do_skip=True)
                self.private.step()
                self.private.zero_grad()
            counts = torch.tensor([len(answer) for answer in answers], device=self.model.device)
            total += (losses.detach() * counts).sum()
        if not parts:
            for weight in self.weights.values():
                weight.grad_sample = weight.new_zeros(0, *weight.shape)  # type: ignore[attr-defined]
        self.private.step()
        self.steps += 1
        add_over_ranks([total])
        return total, sum(len(targets[row]) for row in rows)

    def _gradients(self, prompts: Sequence[Tokens], answers: Sequence[Tokens]) -> tuple[dict[str, Tensor], Tensor]:
        """Return each question's gradients by weight, (questions, *shape), and mean token loss, (questions,)."""
        weights = {name: weight.detach() for name, weight in self.weights.items()}
        try:
            slopes, losses = self.gradients(weights, self.model.loss_inputs(prompts, answers))
        except RuntimeError as error:
            if "vmap" not in str(error):  # for example out of memory
                raise
            reason = " ".join(str(error).split())[:150]
            raise ValueError(
                f"privacy: {self.config.model.name} does not support gradients of single texts: {reason}. Train "
                "without privacy, or choose another model."
            ) from None
        return slopes, losses
