"""Fine-tuning with differential privacy: DP-SGD, its clipping, noise and accountant by opacus.

Every step draws each question with the probability 1 / (steps of an epoch) (Poisson sampling), clips the gradient of
each one's mean loss per token to the norm `clip`, adds them up, and adds normal noise, whose size is such that all
epochs together are (epsilon, delta) differentially private in one question with its answer; Adafactor goes on from
there. Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1. It is no pure epsilon: with
probability delta more may be revealed.

What is protected is one question of the training part; those about one context are protected one by one, not together.
The number of questions is public, and so is the vocabulary of a tiny model, which is made of their texts. Noise and
draws come from the config's seed, so that a result can be reproduced: this is for measuring what differential privacy
does, not for releasing a model (`tasks.training.dp_sgd` says more).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from tasks.datasets.questions.question import Question
from tasks.language_models.fine_tuning_config import FineTuning
from tasks.language_models.sequence_model import SequenceModel, Tokens
from tasks.language_models.training import FineTuner
from tasks.numerics import seeds
from tasks.training import dp_sgd
from tasks.training.members import minibatches


class PrivateFineTuner(FineTuner):
    """The private training of one model: each question has a gradient of its own, by torch.func's vmap.

    A step of a tiny T5 takes about three times as long on a CPU as one without privacy. ValueError, in one line, where
    there is no opacus, where no noise is enough, or where the model cannot be computed question by question.
    """

    def __init__(self, config: FineTuning, model: SequenceModel, train: Sequence[Question]) -> None:
        super().__init__(config, model, train)
        dp_sgd.opacus()  # tells in one line where it is not installed
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
        self.gradients = vmap(grad_and_value(model.loss_of), in_dims=(None, 0), randomness="different")

    def _minibatches(self, lengths: Sequence[int], epoch: int) -> Sequence[Sequence[int]]:
        """The questions drawn for each step, possibly none."""
        draws = seeds.generator(self.config.seed, "private rows", epoch)
        chance = 1 / self.steps_per_epoch
        return [np.flatnonzero(draws.random(len(lengths)) < chance).tolist() for _ in range(self.steps_per_epoch)]

    def _step(self, rows: Sequence[int], targets: Sequence[Tokens]) -> tuple[Tensor, int]:
        """One private step on these questions; the sum of their losses in nats, and their tokens."""
        total, tokens = torch.zeros((), device=self.model.device), 0
        part = self.config.batch // self.config.accumulate
        by_length = sorted(rows, key=lambda row: len(self.prompts[row]))
        parts = [by_length[start : start + part] for start in range(0, len(rows), part)]
        self.private.zero_grad()
        for number, some in enumerate(parts, 1):
            answers = [targets[row] for row in some]
            slopes, losses = self._gradients([self.prompts[row] for row in some], answers)
            for name, weight in self.weights.items():
                weight.grad_sample = slopes[name]  # type: ignore[attr-defined]
            if number < len(parts):
                self.private.signal_skip_step(do_skip=True)
                self.private.step()
                self.private.zero_grad()
            counts = torch.tensor([len(answer) for answer in answers], device=self.model.device)
            total += (losses.detach() * counts).sum()
            tokens += int(counts.sum())
        if not parts:
            for weight in self.weights.values():
                weight.grad_sample = weight.new_zeros(0, *weight.shape)  # type: ignore[attr-defined]
        self.private.step()
        self.steps += 1
        return total, tokens

    def _gradients(self, prompts: Sequence[Tokens], answers: Sequence[Tokens]) -> tuple[dict[str, Tensor], Tensor]:
        """Each question's gradients by weight, (questions, *shape), and its loss in nats per token, (questions,)."""
        weights = {name: weight.detach() for name, weight in self.weights.items()}
        try:
            slopes, losses = self.gradients(weights, self.model.loss_inputs(prompts, answers))
        except RuntimeError as error:
            if "vmap" not in str(error):  # such as memory that a device does not have
                raise
            reason = " ".join(str(error).split())[:150]
            raise ValueError(
                f"privacy is given, and {self.config.model.name} cannot be computed question by question: {reason}"
            ) from None
        return slopes, losses
