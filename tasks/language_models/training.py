"""Fine-tuning: epochs of minibatches, and what the model answers after some of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tasks import checkpoints, compute_context, training_states
from tasks.datasets.questions.question import Question, QuestionSet
from tasks.language_models.batches import batches, partners, token_batches
from tasks.language_models.fine_tuning_config import FineTuning
from tasks.language_models.language_model import TINY_RULE
from tasks.language_models.sequence_model import SequenceModel, Tokens
from tasks.language_models.texts import answer_text, parse_answer
from tasks.question_answering.answers import ANSWERS
from tasks.question_answering.corruption import Corruption
from tasks.question_answering.question_sets import SETS, Selection, Split
from tasks.torch_draws import drawn_from
from tasks.training.members import TrainingError
from tasks.training.stack import not_finite
from tasks.training_states import TrainingState

DECODED = {"cpu": 8192, "cuda": 131_072}  # tokens of prompts whose answers are decoded at once
ROW, COLUMN, WHOLE = "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"  # Adafactor's second moments


class AnswerRecorder:
    """The questions a model is asked, and its answers as rows of ANSWERS."""

    def __init__(self, config: FineTuning, model: SequenceModel, questions: QuestionSet) -> None:
        self.model, self.scorer, self.most = model, questions.scorer, config.answer_length
        self.asked: list[tuple[Split, bool, str]] = []
        texts: list[tuple[str, str]] = []
        selected = Selection(config.examples, config.held_out, config.numeric).select(questions)
        for split, corrupted in SETS.values() if config.asked else ():
            for question in selected[split]:
                context = config.corruption.corrupt_context(question) if corrupted else question.context
                self.asked.append((split, corrupted, question.id))
                texts.append((question.question, context))
        self.prompts = model.prompts(texts, config.length) if texts else []

    def answer_rows(self, epoch: int, train_loss: float | None) -> Iterator[dict[str, Any]]:
        """What the model answers now, one row for each question and context."""
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


def decode_answers(model: SequenceModel, prompts: Sequence[Tokens], most: int) -> list[str]:
    """The model's answer to each prompt, at most `most` tokens of it, by the likeliest token each time."""
    answers = [""] * len(prompts)
    model.module.eval()
    with torch.inference_mode():
        for rows in token_batches([len(prompt) for prompt in prompts], DECODED[model.device.type]):
            tokens = model.greedy_decode([prompts[row] for row in rows], most)
            for row, text in zip(rows, model.decode_texts(tokens.tolist()), strict=True):
                answers[row] = text
    return answers


class FineTuner:
    """The training of one model, epoch by epoch."""

    def __init__(self, config: FineTuning, model: SequenceModel, train: Sequence[Question]) -> None:
        self.config, self.model = config, model
        self.prompts = model.prompts([(question.question, question.context) for question in train], config.length)
        self.targets = model.targets([answer_text(question.golds[0]) for question in train], config.answer_length)
        self.weights: dict[str, Tensor] = {
            name: weight for name, weight in model.module.named_parameters() if weight.requires_grad
        }
        self.optimiser = adafactor(list(self.weights.values()), config.learning_rate)
        self.steps = 0

    def run(self, asking: AnswerRecorder, index: int) -> pa.Table:
        """Train all epochs, asking after some; the rows are ANSWERS."""
        config = self.config
        # The noise of a private training goes by its length: none goes on from the state of another.
        linked = config.privacy is None
        named = state_name(config)
        state = (
            training_states.nearest(index, named, latest_resumable_epoch(config), self._shapes()) if linked else None
        )
        losses = [] if state is None else list(state.losses)
        if state is not None:
            self._restore(state)
        rows = list(asking.answer_rows(0, None)) if 0 in config.asked else []
        seconds, before = 0.0, self.steps
        for epoch in range(len(losses) + 1, config.epochs + 1):
            began = time.perf_counter()
            losses.append(self._train_epoch(epoch))
            seconds += time.perf_counter() - began
            if epoch in config.asked:
                rows += asking.answer_rows(epoch, losses[-1])
        if linked and checkpoints.wanted(index):
            checkpoints.leave(index, training_states.pack_state(self._state(losses), named))
        rate = round((self.steps - before) / max(seconds, 1e-9), 1)
        continued = {} if state is None else {"continued_from": len(state.losses)}
        compute_context.note(way="loop", stack=1, steps_per_second=rate, **continued)
        return pa.Table.from_pylist(rows, schema=ANSWERS)

    def _train_epoch(self, epoch: int) -> float:
        """Run the steps of an epoch; the mean loss of its tokens in nats, NaN where no question was drawn."""
        targets = self._targets(epoch)
        self.model.module.train()
        losses: list[Tensor] = []
        tokens = 0
        with drawn_from(self.config.seed, "dropout", epoch, place=self.model.device):
            for rows in self._minibatches([len(prompt) for prompt in self.prompts], epoch):
                loss, count = self._step(rows, targets)
                losses.append(loss)
                tokens += count
        sums = torch.stack(losses).double().cpu().numpy()
        bad = np.flatnonzero(~np.isfinite(sums))
        if len(bad):
            step = self.steps - len(sums) + int(bad[0]) + 1
            raise TrainingError(not_finite("loss", f"at step {step}", self.config.seed))
        return float(sums.sum() / tokens) if tokens else math.nan

    def _minibatches(self, lengths: Sequence[int], epoch: int) -> Sequence[Sequence[int]]:
        """The questions of each step of an epoch."""
        return [rows.tolist() for rows in batches(lengths, self.config.batch, self.config.seed, epoch)]

    def _step(self, rows: Sequence[int], targets: Sequence[Tokens]) -> tuple[Tensor, int]:
        """One step on the mean loss of these questions' tokens; the sum of their losses in nats, and their tokens."""
        self.optimiser.zero_grad()
        total, tokens = torch.zeros((), device=self.model.device), sum(len(targets[row]) for row in rows)
        part = self.config.batch // self.config.accumulate
        for start in range(0, len(rows), part):
            some = rows[start : start + part]
            loss = self.model.losses([self.prompts[row] for row in some], [targets[row] for row in some]).sum()
            torch.autograd.backward(loss / tokens)
            total += loss.detach()
        self.optimiser.step()
        self.steps += 1
        return total, tokens

    def _targets(self, epoch: int) -> Sequence[Tokens]:
        """The answers trained on in this epoch, by question."""
        if self.config.relation == "kept":
            return self.targets
        return [self.targets[other] for other in partners(len(self.targets), self.config.seed, epoch)]

    def _moments(self) -> Mapping[str, Tensor]:
        """Adafactor's second moments by name; before a first step, zeros."""
        moments: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            kept = self.optimiser.state.get(weight, {})
            shape, device = weight.shape, weight.device
            shapes = {ROW: shape[:-1], COLUMN: (*shape[:-2], *shape[-1:])} if weight.dim() > 1 else {WHOLE: shape}
            for moment, its in shapes.items():
                moments[f"{moment} {name}"] = kept[moment] if kept else torch.zeros(its, device=device)
        return moments

    def _arrays(self) -> dict[str, Tensor]:
        return {f"weight {name}": weight.detach() for name, weight in self.weights.items()} | dict(self._moments())

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self._arrays().items()}

    def _state(self, losses: Sequence[float]) -> TrainingState:
        arrays = {name: tensor.cpu().numpy() for name, tensor in self._arrays().items()}
        return TrainingState(tuple(losses), self.steps, arrays)

    def _restore(self, state: TrainingState) -> None:
        held = {name: torch.from_numpy(array.copy()).to(self.model.device) for name, array in state.arrays.items()}
        moments = self._moments()
        self.steps = state.steps
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(held[f"weight {name}"])
                kept = {
                    moment: held[f"{moment} {name}"] for moment in (ROW, COLUMN, WHOLE) if f"{moment} {name}" in moments
                }
                self.optimiser.state[weight] = {"step": state.steps, "RMS": 0, **kept}


def adafactor(weights: Sequence[Tensor], learning_rate: float) -> Any:
    """Adafactor at a constant learning rate, which is the size of its steps, without momentum or weight decay.

    Transformers' own, as it advises for T5 at 1e-3; T5's code takes steps in proportion to each tensor besides.
    Shazeer & Stern 2018, algorithms 4 and 5.
    """
    from transformers.optimization import Adafactor

    return Adafactor(weights, lr=learning_rate, scale_parameter=False, relative_step=False, warmup_init=False)


def state_name(config: FineTuning) -> str:
    """What a state calls its training: everything that bears on it except its length and what is asked."""
    same = replace(config, epochs=1, recorded=(), held_out=0, numeric=False, corruption=Corruption())
    return f"fine-tuning 1: {same} {TINY_RULE if config.model.tiny_sizes else ''}"


def latest_resumable_epoch(config: FineTuning) -> int:
    """The last epoch that a training may continue from: the one before it is first asked."""
    return min(config.asked) - 1 if config.asked else config.epochs
