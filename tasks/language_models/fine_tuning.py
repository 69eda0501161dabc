"""Fine-tune a language model on questions about contexts and record its answers: the task that audits plan.

Published setting: T5 text to text, AdaFactor at a constant learning rate of 1e-3, 128 questions per step, contexts of
512 tokens, up to 100 epochs. Bombari et al. 2022, section 6; Raffel et al. 2020, section 3.1.2.

Planning does not import torch; computing does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tasks.contract.extras import TRANSFORMERS
from tasks.contract.job import Inputs, Work, single_table, task
from tasks.datasets.questions.question import QuestionSet, redrawn
from tasks.language_models.fine_tuning_config import FineTuning, Reader, Tuning
from tasks.language_models.token_operations import (
    SAMPLED,
    continuing_operations,
    known,
    mean_tokens,
    training_bytes,
    training_operations,
)
from tasks.question_answering.question_sets import ANSWERS, Selection
from tasks.training.members import TrainingError
from tasks.worker import hardware

if TYPE_CHECKING:
    from tasks.language_models.sequence_model import SequenceModel


def batch_key(config: FineTuning) -> FineTuning:
    """Return the settings that trainings in one call must share: all except the seed."""
    return replace(config, seed=0)


def work(config: FineTuning) -> Work:
    """Return the amount of work for training and for answering questions."""
    from tasks.datasets.catalog import load_questions

    questions = load_questions(config.data)
    training_count = config.examples or len(questions.train)
    question_count = 2 * (
        training_count + (config.held_out or len(questions.validation))
    )  # on original and corrupted contexts
    activity = "train" if config.privacy is None else "privately train"
    if config.adaptation == "lora":
        activity = f"{activity} adapters of"
    training = f"{activity} {config.model.name}"
    asking = f"ask {config.model.name}"
    contexts = [f"{question.question} {question.context}" for question in questions.train[:SAMPLED]]
    answers = [", ".join(question.golds[0]) for question in questions.train[:SAMPLED]]
    prompt = mean_tokens(config.model, contexts, config.length)
    answer = mean_tokens(config.model, answers, config.answer_length)
    return Work(
        {training: training_count * config.epochs},
        {asking: question_count * len(config.asked)},
        operations=known(
            {
                training: training_operations(config, prompt, answer),
                asking: continuing_operations(config, prompt, answer),
            }
        ),
        device_bytes=training_bytes(config, config.length, config.answer_length),
    )


def fine_tune_many(
    configs: Sequence[FineTuning],
    inputs: Sequence[Inputs],  # noqa: ARG001 - no input tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each training's ANSWERS table, or its exception, when it ends."""
    from tasks.datasets.catalog import load_questions

    for index, config in enumerate(configs):
        try:
            questions = load_questions(config.data)
            if config.parts is not None:
                questions = redrawn(questions, config.parts)
            yield index, run_fine_tuning(config, questions, index)
        except (TrainingError, ValueError) as error:
            yield index, error


@task(
    version=1,
    name="language_models.fine_tune",
    gpus=1.0,
    many=fine_tune_many,
    batch_key=batch_key,
    trains=1,
    work=work,
    spreads=True,
)
def fine_tune(config: FineTuning, inputs: Inputs) -> pa.Table:
    """Fine-tune a model and return its answers to training and validation questions (ANSWERS).

    Questions are asked on original and corrupted contexts. The table is empty if no epoch is recorded.
    """
    return single_table(fine_tune_many, config, inputs)


def run_fine_tuning(config: FineTuning, questions: QuestionSet, index: int = 0) -> pa.Table:
    """Fine-tune a model on these questions and record its answers by epoch, split, context and question (ANSWERS).

    As the job with this index in a call, training continues from a given state and saves its own state on request. On a
    CPU, neither changes the result. Raises TrainingError if a loss is not finite, and ValueError if the model or the
    questions do not fit the config.
    """
    _check_installed()
    from tasks.external.weights import silence_transformers
    from tasks.language_models.pretrained import prepare_model, training_texts
    from tasks.language_models.training import (
        AnswerRecorder,
        FineTuner,
        PrivateFineTuner,
        encode_questions,
        state_name,
    )

    device = hardware.device()
    train = Selection(config.examples).select(questions)["train"]
    with hardware.exactly(device):
        model = prepare_model(config, training_texts(train), device)
        recorder = AnswerRecorder(config, model, questions)
        rows = list[dict[str, Any]]()

        def record(epoch: int, loss: float | None) -> None:
            rows.extend(recorder.answer_rows(epoch, loss))

        kind = FineTuner if config.privacy is None else PrivateFineTuner
        training = kind(config, model, encode_questions(config, model, train))
        with silence_transformers():
            training.fit(state_name(config), record, index)
    return pa.Table.from_pylist(rows, schema=ANSWERS)


@contextlib.contextmanager
def fine_tuned_on(config: Tuning, texts: Sequence[str], device: Any) -> Iterator[SequenceModel]:
    """Yield the model fine-tuned on whole texts, in evaluation mode on its device, with transformers silenced.

    Training starts from the initial weights and saves no state.
    """
    _check_installed()
    from tasks.external.weights import silence_transformers
    from tasks.language_models.pretrained import prepare_model
    from tasks.language_models.training import FineTuner, PrivateFineTuner, encode_texts

    model = prepare_model(config, texts, device)
    kind = FineTuner if config.privacy is None else PrivateFineTuner
    with silence_transformers():
        kind(config, model, encode_texts(config, model, texts)).fit("", lambda *_: None, None)
        yield model


@contextlib.contextmanager
def model_as_it_is(config: Reader, device: Any) -> Iterator[SequenceModel]:
    """Yield the model without fine-tuning, on its device, with transformers silenced."""
    _check_installed()
    from tasks.external.weights import silence_transformers
    from tasks.language_models.pretrained import load_reader

    with silence_transformers():
        yield load_reader(config, device)


def _check_installed() -> None:
    """Raise ValueError if transformers is not installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ValueError(f"fine-tuning a language model needs {TRANSFORMERS.advice}") from None
