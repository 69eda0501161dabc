"""Fine-tuning of a language model on questions about contexts, and its answers: the task that audits plan it with.

Published setting: T5 text to text, AdaFactor at a constant learning rate of 1e-3, 128 questions a step, contexts of 512
tokens, up to 100 epochs. Bombari et al. 2022, section 6; Raffel et al. 2020, section 3.1.2.

Planning a fine-tuning imports no torch; computing one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import pyarrow as pa

from tasks.contract.extras import PEFT, TRANSFORMERS, Extra
from tasks.contract.job import Inputs, task
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import QuestionSet, redrawn
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.question_sets import Corruption, Selection
from tasks.training.chains import check_recorded, recording_up_to
from tasks.training.recipe import Privacy
from tasks.worker.work import Work

Relation = Literal["kept", "redrawn"]
Adaptation = Literal["full", "lora"]


@dataclass(frozen=True)
class FineTuning(Ranged):
    """One fine-tuning of a language model, and what it is asked.

    It is trained on the first `examples` questions for training (0: all), and asked these and the first `held_out` of
    the validation questions (0: all), each on its context as it is and on the corrupted one. With `parts`, a seed, it
    is drawn by this which contexts are trained on and which are held out. With `numeric` only questions whose first
    gold answer has a digit are asked; it is trained on all of them nevertheless.

    The answers trained on are the first gold ones. `redrawn` gives each question that of another one, by a permutation
    that is another in every epoch: never its own, and never that of the same question twice in as many epochs as there
    are other questions. Then nothing relates answers to contexts.

    `lora` trains low-rank adapters of this `rank` (Hu et al. 2022) and leaves the model's own weights as they are.
    `dropout` is set wherever the model's config has one. `length` and `answer_length` are in tokens: longer contexts
    and answers are cut off. With `accumulate` above 1 a step computes its `batch` questions in so many parts, one after
    another: it takes the memory of a part. The model is asked after the epochs `recorded` (0: before training); empty
    stands for the last, and None for no epoch.
    """

    data: Dataset
    model: LanguageModel = LanguageModel("hub:t5-small")
    corruption: Corruption = Corruption()
    examples: Annotated[int, AtLeast(0)] = 0
    held_out: Annotated[int, AtLeast(0)] = 0
    parts: int | None = None
    numeric: bool = False
    relation: Relation = "kept"
    adaptation: Adaptation = "full"
    rank: Annotated[int, AtLeast(1)] = 8
    seed: Annotated[int, AtLeast(0)] = 0
    epochs: Annotated[int, AtLeast(1)] = 20
    batch: Annotated[int, AtLeast(1)] = 128
    accumulate: Annotated[int, AtLeast(1)] = 1
    learning_rate: Annotated[float, Finite()] = 1e-3
    dropout: Annotated[float, Share(one=False)] = 0.1
    length: Annotated[int, AtLeast(8)] = 512
    answer_length: Annotated[int, AtLeast(1)] = 32
    recorded: tuple[int, ...] | None = ()
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch % self.accumulate:
            raise ValueError(f"accumulate is {self.accumulate}; it must divide batch, which is {self.batch}")
        if self.privacy is not None and self.relation == "redrawn":
            # The answer of one question would be in the gradients of others.
            raise ValueError("privacy is given and relation is redrawn; it must be kept")
        check_recorded(self.recorded, self.epochs)

    def extras(self) -> tuple[Extra, ...]:
        return (PEFT,) if self.adaptation == "lora" else ()

    @property
    def asked(self) -> tuple[int, ...]:
        """The epochs after which the model is asked, ascending."""
        return (self.epochs,) if self.recorded == () else self.recorded or ()


def up_to(config: FineTuning, before: int, end: int) -> FineTuning:
    """The link of a chain from epoch `before` to epoch `end`, which is asked after its own epochs alone.

    The part of `tasks.training.chains.chain`. ValueError where the training cannot be broken into links.
    """
    if config.privacy is not None:
        raise ValueError("privacy is given, and a private training is never broken into links; link must be 0")
    linked: FineTuning = recording_up_to(config, before, end)
    return linked


def batch_key(config: FineTuning) -> FineTuning:
    """What trainings that share a call have in common: all but the seed."""
    return replace(config, seed=0)


def work(config: FineTuning) -> Work:
    """What the training and its questions compute."""
    from tasks.datasets.catalog import load_questions

    questions = load_questions(config.data)
    trained = config.examples or len(questions.train)
    asked = 2 * (trained + (config.held_out or len(questions.validation)))  # on contexts as they are, and corrupted
    way = "train" if config.privacy is None else "privately train"
    way = f"{way} adapters of" if config.adaptation == "lora" else way
    return Work(
        {f"{way} {config.model.name}": trained * config.epochs},
        {f"ask {config.model.name}": asked * len(config.asked)},
    )


def fine_tune_many(
    configs: Sequence[FineTuning],
    inputs: Sequence[Inputs],  # noqa: ARG001 - a training reads no tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Each training's ANSWERS, or the exception that ended it alone, as it ends.

    A link of a chain continues from a given state and leaves its own where that is wanted (`tasks.worker.checkpoints`).
    """
    from tasks.datasets.catalog import load_questions
    from tasks.training.members import TrainingError

    for index, config in enumerate(configs):
        try:
            questions = load_questions(config.data)
            questions = questions if config.parts is None else redrawn(questions, config.parts)
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
)
def fine_tune(config: FineTuning, inputs: Inputs) -> pa.Table:
    """The answers of the fine-tuned model (ANSWERS) to train and validation questions, on clean and corrupted contexts.

    They are empty where no epoch is asked for.
    """
    ((_, outcome),) = fine_tune_many([config], [inputs])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def run_fine_tuning(config: FineTuning, questions: QuestionSet, index: int = 0) -> pa.Table:
    """The answers of the model fine-tuned on these questions (ANSWERS), by epoch, split, context and question.

    As the job at this index of a call it continues from a given state, and leaves its own where that is wanted; on a
    CPU neither makes a difference to the result. TrainingError where a loss is not finite; ValueError, in one line,
    for a model or a set that the config cannot be had with.
    """
    check_installed()
    from tasks.language_models.pretrained import prepare_model, quiet
    from tasks.language_models.private_training import PrivateFineTuner
    from tasks.language_models.training import AnswerRecorder, FineTuner
    from tasks.worker import hardware

    place = hardware.device()
    train = Selection(config.examples).select(questions)["train"]
    with hardware.exactly(place):
        model = prepare_model(config, train, place)
        asking = AnswerRecorder(config, model, questions)
        kind = FineTuner if config.privacy is None else PrivateFineTuner
        training = kind(config, model, train)
        with quiet():
            return training.run(asking, index)


def check_installed() -> None:
    """ValueError where transformers is not installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ValueError(f"fine-tuning a language model needs {TRANSFORMERS.advice}") from None
