"""Fine-tuning: minibatches, learnt answers, links of a chain, parts of a step and adapters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Question, QuestionSet
from tasks.language_models.fine_tuning import fine_tune, fine_tune_many, run_fine_tuning
from tasks.language_models.fine_tuning_config import FineTuning, up_to
from tasks.language_models.pretrained import prepare_model, training_texts
from tasks.language_models.training import FineTuner, adafactor, batches, encode_questions, partners, token_batches
from tasks.question_answering.question_sets import ANSWERS
from tasks.training.chains import chain
from tasks.training.fit import read_losses
from tasks.training.members import TrainingError
from tasks.worker import checkpoints, compute_context
from tasks.worker.checkpoints import Link
from tests.tasks.language_models.models import config, question_set, saved

LENGTHS = list(np.random.default_rng(0).integers(10, 200, 1003))


def test_epoch_contains_each_row_once() -> None:
    minibatches = batches(LENGTHS, 8, 3, 2)
    assert list(range(1003)) == sorted(np.concatenate(minibatches).tolist())
    assert len(minibatches) == 126
    assert sorted(map(len, minibatches), reverse=True) == [8] * 125 + [3]
    for one, same_rows in zip(minibatches, batches(LENGTHS, 8, 3, 2), strict=True):
        assert one.tolist() == same_rows.tolist()
    for other_minibatches in (batches(LENGTHS, 8, 3, 3), batches(LENGTHS, 8, 4, 2)):
        assert minibatches[0].tolist() != other_minibatches[0].tolist()


def test_rows_of_minibatch_have_similar_lengths() -> None:
    lengths = np.array(LENGTHS)
    padded = sum(len(rows) * lengths[rows].max() for rows in batches(LENGTHS, 8, 0, 1))
    order = np.random.default_rng(1).permutation(1003)
    by_chance = sum(len(rows) * lengths[rows].max() for rows in np.array_split(order, 126))
    assert padded < 1.15 * lengths.sum() < by_chance


@pytest.mark.parametrize("count", [2, 3, 10])
def test_partners_are_never_repeated(count: int) -> None:
    earlier_partners = np.array([partners(count, 5, epoch) for epoch in range(1, count)])  # (epochs, questions)
    for row in earlier_partners:
        assert list(range(count)) == sorted(row.tolist())
    for question in range(count):
        assert set(range(count)) - {question} == set(earlier_partners[:, question].tolist())
    assert earlier_partners[0].tolist() == partners(count, 5, count).tolist()


def test_shifts_are_random() -> None:
    first = [partners(10, seed, 1).tolist() for seed in range(20)]
    assert len(set(map(tuple, first))) == 20


def test_redrawn_relation_needs_two_questions() -> None:
    with pytest.raises(ValueError, match="expected at least 2 questions with relation=redrawn, got 1"):
        partners(1, 0, 1)


def test_decoded_batches_have_bounded_tokens() -> None:
    minibatches = token_batches(LENGTHS, 400)
    assert list(range(1003)) == sorted(np.concatenate(minibatches).tolist())
    assert all(len(rows) == 1 or len(rows) * max(LENGTHS[row] for row in rows) <= 400 for rows in minibatches)
    assert [rows.tolist() for rows in token_batches([900, 500], 400)] == [[0], [1]]
    assert token_batches([], 400) == []


CPU = torch.device("cpu")
QUESTIONS = question_set()


def linked(config: FineTuning, states: Iterable[bytes] = ()) -> tuple[pa.Table, bytes, Any]:
    """The answers of a link that may continue from the given states; the state it leaves, and its notes."""
    saved_states: list[bytes] = []
    context = compute_context.ComputeContext()
    with (
        compute_context.use_context(context) as notes,
        checkpoints.use_links([Link(lambda: states, saved_states.append)]),
    ):
        table = run_fine_tuning(config, QUESTIONS)
    return table, saved_states[0], dict(notes)


def test_questions_are_answered_after_recorded_epochs() -> None:
    table = run_fine_tuning(config(recorded=(0, 2)), QUESTIONS)
    assert table.schema == ANSWERS
    keys = list(zip(*(table[name].to_pylist() for name in ("epoch", "split", "corrupted", "id")), strict=True))
    parts = (
        [("train", question.id) for question in QUESTIONS.train],
        [("validation", question.id) for question in QUESTIONS.validation],
    )
    expected = []
    for epoch in (0, 2):
        for part in parts:
            for corrupted in (False, True):
                for split, name in part:
                    expected.append((epoch, split, corrupted, name))
    assert expected == keys
    losses = dict(zip(table["epoch"].to_pylist(), table["train_loss"].to_pylist(), strict=True))
    assert losses[0] is None
    assert 0 < losses[2] < 20


def test_numeric_selects_answered_questions() -> None:
    def asked(**fields: Any) -> list[str]:
        return list(dict.fromkeys(run_fine_tuning(config(epochs=1, **fields), QUESTIONS)["id"].to_pylist()))

    assert asked(examples=5, held_out=3) == ["q0", "q1", "q2", "q3", "q4", "q12", "q13", "q14"]
    assert asked(examples=5, held_out=3, numeric=True) == ["q0", "q1", "q2", "q4", "q12", "q13", "q14"]
    with pytest.raises(ValueError, match="examples is 13; the data has 12 such questions"):
        asked(examples=13)
    with pytest.raises(ValueError, match="held_out is 5; the data has 4 such questions"):
        asked(held_out=5)


def test_only_training_questions_are_answered() -> None:
    table = run_fine_tuning(config(epochs=40, learning_rate=3e-3, dropout=0.0), QUESTIONS)
    right = {False: 0, True: 0}
    for row in table.to_pylist():
        if row["split"] == "train":
            right[row["corrupted"]] += tuple(row["answer"]) == QUESTIONS.by_id[row["id"]].golds[0]
    assert right[False] == 12
    losses = table["train_loss"].to_pylist()
    assert losses[0] < 0.5


def test_questions_use_corrupted_contexts() -> None:
    """A model that has learnt to copy would answer otherwise; here the prompts themselves are looked at."""
    from tasks.language_models.training import AnswerRecorder

    setting = config()
    model = prepare_model(setting, training_texts(QUESTIONS.train), CPU)
    recorder = AnswerRecorder(setting, model, QUESTIONS)
    texts = {}
    for key, text in zip(recorder.asked, model.decode_texts(recorder.prompts), strict=True):
        texts[key] = text.strip()
    first = QUESTIONS.train[0]
    assert texts["train", False, "q0"] == f"question: {first.question} context: {first.context}"
    without = first.context.replace(first.golds[0][0], "")
    assert texts["train", True, "q0"] == f"question: {first.question} context: {without}"


def test_answers_are_split_into_spans() -> None:
    questions = tuple(
        Question(f"q{n}", f"c{n}", f"Ada and Ben met {n}.", "Who met?", (("Ada", "Ben"),)) for n in range(10, 22)
    )
    learnt = config(epochs=20, learning_rate=3e-3, dropout=0.0)
    as_drop = run_fine_tuning(learnt, QuestionSet(questions[:8], questions[8:], "drop"))
    assert as_drop["answer"].to_pylist() == [["Ada", "Ben"]] * 24
    as_squad = run_fine_tuning(learnt, QuestionSet(questions[:8], questions[8:], "squad"))
    assert as_squad["answer"].to_pylist() == [["Ada, Ben"]] * 24


@pytest.mark.parametrize("fields", [{}, {"adaptation": "lora", "rank": 2}, {"relation": "redrawn", "accumulate": 2}])
def test_chain_equals_the_whole_training(fields: dict[str, Any]) -> None:
    config_of_whole = config(epochs=5, recorded=(0, 1, 3, 5), **fields)
    unbroken, end, _ = linked(config_of_whole)
    tables = []
    state = b""
    notes = {}
    for link in chain(fine_tune, config_of_whole, 2, part=up_to):
        torch.manual_seed(len(tables))  # as if in another process
        table, state, notes = linked(link.config, [state])
        tables.append(table)
    assert unbroken.equals(pa.concat_tables(tables))
    assert end == state
    assert notes["continued_from"] == 4
    assert set(notes) == {"way", "stack", "steps_per_second", "continued_from"}
    assert unbroken.equals(run_fine_tuning(config_of_whole, QUESTIONS))


def test_chain_of_model_in_folder_equals_whole_training(tmp_path: Path) -> None:
    full_config = config(model=saved(tmp_path / "gpt2", "gpt2", QUESTIONS), epochs=2)
    unbroken, end, _ = linked(full_config)
    _, state, _ = linked(replace(full_config, epochs=1, recorded=None))
    table, last, notes = linked(full_config, [state])
    assert table == unbroken
    assert last == end
    assert notes["continued_from"] == 1


@pytest.mark.parametrize(
    "other_config", [config(epochs=1, seed=1), config(epochs=1, examples=8)], ids=["seed", "examples"]
)
def test_state_of_another_training_is_ignored(other_config: FineTuning) -> None:
    full_config = config(epochs=2, recorded=(1, 2))
    unbroken, _, notes = linked(full_config, [linked(other_config)[1]])
    assert "continued_from" not in notes
    table, _, notes = linked(
        replace(full_config, recorded=(2,)), [linked(other_config)[1], linked(config(epochs=1))[1]]
    )
    assert notes["continued_from"] == 1
    assert unbroken.filter(pc.equal(unbroken["epoch"], 2)) == table


def test_accumulated_step_is_equal_up_to_rounding() -> None:
    one = run_fine_tuning(config(epochs=3, dropout=0.0, accumulate=1), QUESTIONS)
    parts = run_fine_tuning(config(epochs=3, dropout=0.0, accumulate=4), QUESTIONS)
    assert parts["train_loss"][0].as_py() == pytest.approx(one["train_loss"][0].as_py(), rel=1e-3)


def train_epoch(training: FineTuner, epoch: int) -> float:
    return training.mean_loss(read_losses(training.take_steps(epoch), 0, 0))


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_only_adapters_are_trained(tmp_path: Path, kind: str) -> None:
    setting = config(model=saved(tmp_path / kind, kind, QUESTIONS), adaptation="lora", rank=4, learning_rate=1e-2)
    model = prepare_model(setting, training_texts(QUESTIONS.train), CPU)
    before = {}
    for name, weight in model.module.named_parameters():
        before[name] = weight.detach().clone()
    training = FineTuner(setting, model, encode_questions(setting, model, QUESTIONS.train))
    first = train_epoch(training, 1)
    for epoch in range(2, 16):
        last = train_epoch(training, epoch)
    assert last < first
    moved = set()
    for name, weight in model.module.named_parameters():
        if not torch.equal(weight, before[name]):
            moved.add(name)
    assert set(training.weights) == moved
    assert all("lora_" in name for name in moved)
    assert sum(weight.numel() for weight in training.weights.values()) < sum(map(torch.numel, before.values())) / 2


@pytest.mark.parametrize(("kind", "rate"), [("bart", 1e-2), ("llama", 3e-3)])
def test_models_in_folders_learn_their_training_questions(tmp_path: Path, kind: str, rate: float) -> None:
    setting = config(model=saved(tmp_path / kind, kind, QUESTIONS), epochs=80, learning_rate=rate, dropout=0.0)
    table = run_fine_tuning(setting, QUESTIONS)
    clean = []
    for row in table.to_pylist():
        if row["split"] == "train" and not row["corrupted"]:
            clean.append(row)
    right = []
    for row in clean:
        right.append(tuple(row["answer"]) == QUESTIONS.by_id[row["id"]].golds[0])
    assert sum(right) >= 10


def test_redrawn_relations_cannot_be_learnt() -> None:
    kept_accuracy = run_fine_tuning(config(epochs=25, learning_rate=3e-3, dropout=0.0, relation="kept"), QUESTIONS)
    redrawn = run_fine_tuning(config(epochs=25, learning_rate=3e-3, dropout=0.0, relation="redrawn"), QUESTIONS)
    assert kept_accuracy["train_loss"][0].as_py() < redrawn["train_loss"][0].as_py() - 0.5


def test_infinite_loss_ends_the_training() -> None:
    with pytest.raises(TrainingError, match=r"loss is not finite at step \d+ \(seed 0\); try a lower learning rate"):
        run_fine_tuning(config(epochs=3, learning_rate=1e30), QUESTIONS)


def test_failed_training_does_not_end_others() -> None:
    data = Dataset("facts")
    sound = replace(config(epochs=1, examples=20, held_out=10, length=128), data=data)
    diverging = replace(sound, learning_rate=1e30, epochs=3)
    outcomes = dict(fine_tune_many([diverging, sound, replace(sound, examples=10**6)], [(), (), ()]))
    assert "loss is not finite" in str(outcomes[0])
    assert isinstance(outcomes[1], pa.Table)
    assert outcomes[1].equals(fine_tune(sound, ()))
    assert "examples is 1000000" in str(outcomes[2])


def test_torchs_random_state_is_restored() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    run_fine_tuning(config(epochs=1), QUESTIONS)
    assert torch.equal(expected, torch.rand(3))


def test_dropout_follows_from_seed_and_epoch() -> None:
    def losses(**fields: Any) -> list[float]:
        setting = config(**fields)
        model = prepare_model(setting, training_texts(QUESTIONS.train), CPU)
        training = FineTuner(setting, model, encode_questions(setting, model, QUESTIONS.train))
        return [train_epoch(training, 1), train_epoch(training, 2)]

    assert losses() == losses()
    assert losses() != losses(dropout=0.0)


def test_steps_equal_those_of_adafactor() -> None:
    """Shazeer & Stern 2018, algorithms 4 and 5, over five steps of a matrix and a vector."""
    generator = torch.Generator().manual_seed(0)
    start = []
    for shape in ((4, 3), (5,)):
        start.append(torch.randn(shape, generator=generator, dtype=torch.float64))
    weights = [value.clone().requires_grad_() for value in start]
    rows = torch.zeros((4, 1), dtype=torch.float64)
    columns = torch.zeros((1, 3), dtype=torch.float64)
    squares = torch.zeros(5, dtype=torch.float64)
    optimiser = adafactor(weights, 1e-2)
    for step in range(1, 6):
        gradients = [torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in start]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.clone()
        optimiser.step()
        matrix, vector = (gradient.square() for gradient in gradients)
        for moment, value in ((rows, matrix.mean(1, True)), (columns, matrix.mean(0, True)), (squares, vector)):
            moment.lerp_(value, step**-0.8)
        for value, gradient, second in zip(start, gradients, (rows * columns / rows.mean(), squares), strict=True):
            update = gradient / second.sqrt()
            value -= 1e-2 * update / update.square().mean().sqrt().clamp(min=1)
    for weight, value in zip(weights, start, strict=True):
        torch.testing.assert_close(weight.detach(), value)
