"""Private fine-tuning: clipped gradients of single questions, noise, and models that cannot have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.language_models.fine_tuning import run_fine_tuning
from tasks.language_models.pretrained import prepare_model, training_texts
from tasks.language_models.training import PrivateFineTuner, encode_questions
from tasks.training import dp_sgd
from tasks.training.recipe import Privacy
from tasks.worker import checkpoints
from tasks.worker.checkpoints import Link
from tests.tasks.language_models.models import config, question_set, saved

CPU = torch.device("cpu")
QUESTIONS = question_set()
KINDS = ("t5", "bart", "gpt2", "llama")


@pytest.fixture(scope="module", autouse=True)
def _approximate_noise() -> Iterator[None]:
    """The search for the last hundredth of epsilon would take longer than the trainings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dp_sgd, "TOLERANCE", 0.5)
        dp_sgd._noise.cache_clear()
        yield
    dp_sgd._noise.cache_clear()


def private(folder: Path, kind: str, **fields: Any) -> PrivateFineTuner:
    settings = {"privacy": Privacy(8.0, 1e-5, 0.5), "dropout": 0.0, **fields}
    setting = config(model=saved(folder / kind, kind, QUESTIONS), **settings)
    model = prepare_model(setting, training_texts(QUESTIONS.train), CPU)
    model.module.train()
    return PrivateFineTuner(setting, model, encode_questions(setting, model, QUESTIONS.train))


@pytest.mark.parametrize(("kind", "accumulate"), [*((kind, 1) for kind in KINDS), ("gpt2", 2)])
def test_step_is_sum_of_clipped_gradients_and_noise(tmp_path: Path, kind: str, accumulate: int) -> None:
    """Each question's gradient is computed separately, by torch's backward, and clipped by hand."""
    training = private(tmp_path, kind, accumulate=accumulate)
    rows = [3, 0, 7]
    weights = training.weights
    summed = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for row in rows:
        training.model.module.zero_grad()
        target = training.targets[row]
        loss = training.model.losses([training.prompts[row]], [target])[0] / len(target)
        torch.autograd.backward(loss)
        slopes = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
        norm = torch.stack([slope.norm() for slope in slopes.values()]).norm()
        assert norm > 0.5
        for name, slope in slopes.items():
            summed[name] += slope * min(1.0, 0.5 / float(norm))
    training.model.module.zero_grad()
    training.private.noise_multiplier = 0.0
    loss, tokens = training._step(rows, training.targets)
    assert sum(len(training.targets[row]) for row in rows) == tokens
    for name, weight in weights.items():
        assert weight.grad is not None
        torch.testing.assert_close(summed[name], weight.grad, rtol=1e-3, atol=1e-5)


def test_noise_follows_from_the_budget(tmp_path: Path) -> None:
    training = private(tmp_path, "t5")
    assert training.steps_per_epoch == 3
    assert dp_sgd.noise(Privacy(8.0, 1e-5, 0.5), 3, 2) == training.private.noise_multiplier
    training._step([], training.targets)  # no question was sampled: only noise
    noise = torch.cat([weight.grad.flatten() for weight in training.weights.values() if weight.grad is not None])
    assert float(noise.std()) == pytest.approx(0.5 * training.private.noise_multiplier, rel=0.05)
    assert training.steps == 1


def test_questions_are_sampled_independently(tmp_path: Path) -> None:
    training = private(tmp_path, "t5")
    samples = []
    for epoch in range(1, 401):
        samples.extend(training._minibatches([1] * 12, epoch))
    assert len(samples) == 1200
    assert sum(map(len, samples)) / len(samples) == pytest.approx(4, abs=0.3)
    assert len(set(map(len, samples))) > 5
    assert training._minibatches([1] * 12, 7) == samples[18:21]


@pytest.mark.parametrize("fields", [{}, {"adaptation": "lora"}, {"dropout": 0.1}])
def test_private_training_is_reproducible(fields: dict[str, Any]) -> None:
    setting = config(privacy=Privacy(8.0), recorded=(0, 2), **fields)
    table = run_fine_tuning(setting, QUESTIONS)
    assert table.num_rows == 64
    assert table.equals(run_fine_tuning(setting, QUESTIONS))
    assert table.column("train_loss").null_count == 32


def test_private_training_uses_no_state() -> None:
    setting = config(privacy=Privacy(8.0))
    saved_states: list[bytes] = []
    with checkpoints.use_links([Link(lambda: pytest.fail("a state was requested"), saved_states.append)]):
        run_fine_tuning(setting, QUESTIONS)
    assert saved_states == []


def test_noise_hinders_learning() -> None:
    fields = {"epochs": 10, "learning_rate": 3e-3, "dropout": 0.0, "batch": 12}
    free = run_fine_tuning(config(privacy=Privacy(200.0, 1e-3, 1.0), **fields), QUESTIONS)
    bound = run_fine_tuning(config(privacy=Privacy(1.0, 1e-3, 1.0), **fields), QUESTIONS)
    assert free["train_loss"][0].as_py() < bound["train_loss"][0].as_py() - 0.5


def test_model_without_single_gradients_is_refused(tmp_path: Path) -> None:
    training = private(tmp_path, "gpt2")
    embed = training.model.module.transformer.wte.forward

    def looks(tokens: torch.Tensor) -> Any:
        assert tokens.sum().item() > 0  # as a model does that chooses by its input's values
        return embed(tokens)

    training.model.module.transformer.wte.forward = looks
    message = r"privacy: folder:.*gpt2 does not support gradients of single texts"
    with pytest.raises(ValueError, match=message) as error:
        list(training.take_steps(1))
    assert "\n" not in str(error.value)


def test_redrawn_relations_are_refused_with_privacy() -> None:
    with pytest.raises(ValueError, match="relation: expected kept with privacy, got redrawn"):
        config(privacy=Privacy(8.0), relation="redrawn")
