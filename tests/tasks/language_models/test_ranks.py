"""Language models fine-tuned by two processes equal those of one, up to rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tasks.contract.job import Inputs, single_table, task
from tasks.language_models.fine_tuning import run_fine_tuning
from tasks.language_models.fine_tuning_config import FineTuning
from tasks.language_models.language_model import LanguageModel
from tasks.training import dp_sgd
from tasks.training.recipe import Privacy
from tasks.worker import checkpoints, compute_context
from tasks.worker.checkpoints import Link
from tasks.worker.compute_context import ComputeContext
from tasks.worker.process_group import compute_together
from tests.tasks.language_models.models import config, question_set, saved

QUESTIONS = question_set()


def tune_many(configs: Sequence[FineTuning], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    for index, setting in enumerate(configs):
        yield index, tuned(setting, index)


def tuned(setting: FineTuning, index: int = 0) -> pa.Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dp_sgd, "noise", lambda *_: 0.8)  # which takes seconds to find
        return run_fine_tuning(setting, QUESTIONS, index)


@task(version=1, many=tune_many, spreads=True)
def tune(setting: FineTuning, inputs: Inputs) -> pa.Table:
    return single_table(tune_many, setting, inputs)


def linked(setting: FineTuning, states: Sequence[bytes] = ()) -> tuple[pa.Table, bytes]:
    """Train in this process, and return the table and the final state."""
    left: list[bytes] = []
    with checkpoints.use_links([Link(lambda: states, left.append)]):
        return run_fine_tuning(setting, QUESTIONS), left[0]


def assert_close(actual: pa.Table | Exception, expected: pa.Table) -> None:
    assert isinstance(actual, pa.Table), actual
    assert actual.drop_columns("train_loss").equals(expected.drop_columns("train_loss"))
    losses = (table["train_loss"].to_pylist() for table in (actual, expected))
    for first, second in zip(*losses, strict=True):
        assert first == (None if second is None else pytest.approx(second, rel=2e-4))


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    # With 11 questions in minibatches of 5, only one rank has a row of the last one.
    plain = config(epochs=2, dropout=0.0, batch=5, examples=11, recorded=(0, 1, 2))
    lora: dict[str, Any] = {"adaptation": "lora", "rank": 2, "accumulate": 2, "batch": 4}
    configs = [
        plain,
        replace(plain, model=LanguageModel("tiny-gpt#32x2"), **lora),
        replace(plain, model=saved(tmp_path / "bart", "bart", QUESTIONS)),
        replace(plain, privacy=Privacy(8.0), accumulate=2, batch=4),
    ]
    one_epoch = replace(plain, epochs=1, recorded=(1,))
    second = replace(plain, recorded=(2,))
    other_state = linked(one_epoch)[1]
    left: list[bytes] = []
    links = [Link() for _ in configs] + [Link(leave=left.append), Link(lambda: [other_state])]
    with checkpoints.use_links(links), compute_context.use_context(ComputeContext(processes=2)):
        jobs = [*configs, one_epoch, second]
        outcomes = dict(compute_together(f"{__name__}:tune", jobs, [()] * len(jobs)))
    for index, setting in enumerate(configs):
        assert_close(outcomes[index], tuned(setting))
    last = linked(second, [other_state])[0]
    assert_close(outcomes[len(configs) + 1], last)
    assert_close(linked(second, left)[0], last)
