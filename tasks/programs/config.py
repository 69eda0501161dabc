"""Configurations of a user's own training program: a command or a Python function.

An audit offers them in its field `training`, as alternatives to its own recipe. A program trains on rows of a data set,
given by their numbers, and returns a score per record, a model, or samples (`tasks.programs.returned`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from tasks.contract.conditions import Condition, require
from tasks.contract.ranges import AtMost, Finite, Ranged, Share
from tasks.contract.resources import EXECUTION_ONLY, NO_RESOURCES, Resources
from tasks.programs.code import TRACKED_FILES, ProgramCode
from tasks.programs.command_line import check_command, named_files, used_placeholders
from tasks.programs.embedding import Embedding
from tasks.programs.function import TrainingFunction
from tasks.training.recipe import LARGEST_EPSILON

# What a program returns: a number per record, class probabilities, a model that is evaluated here, or samples.
Returns = Literal["loss", "log_likelihood", "log_odds", "probabilities", "model", "samples"]
DataFormat = Literal["auto", "npz", "folder", "parquet", "jsonl"]


TRUE_RESULTS = require(
    "the training program trained each model on the records that it was given, and returned the results of this model",
    "the author of the program",
)


@dataclass(frozen=True)
class StatedPrivacy(Ranged):
    """The guarantee of differential privacy that the program states. Engram does not check how it is reached."""

    epsilon: Annotated[float, Finite(), AtMost(LARGEST_EPSILON, "since larger values offer no privacy")]
    """Epsilon of the guarantee, over the whole training."""
    delta: Annotated[float, Share(zero=False, one=False)] = 1e-5
    """Delta of the guarantee."""


@dataclass(frozen=True, kw_only=True)
class ProgramTraining(Ranged):
    """The settings of every program."""

    returns: Returns = "loss"
    """What the program returns: a loss (non-negative), a log-likelihood, log-odds or class probabilities per record, a
    model that Engram evaluates, or samples of a generator."""
    data_format: DataFormat = "auto"
    """Format of the records in {data}, if the audit changes records; auto: npz, or jsonl for texts."""
    embedding: Embedding | None = None
    """Your own function of records and samples, as package.module:function, whose vectors are compared; by default,
    standardised features or pixels."""
    privacy: StatedPrivacy | None = None
    """The guarantee of differential privacy that the program states; by default, none."""
    resources: Resources = field(default=NO_RESOURCES, metadata={EXECUTION_ONLY: True})
    """Resources of one training, for the scheduler."""

    def conflicts(self) -> Iterator[str]:
        if self.embedding is not None and self.returns != "samples":
            yield f"embedding is {self.embedding.name} and returns is {self.returns}; it must be samples"

    @property
    def guarantee(self) -> StatedPrivacy | None:
        """The privacy guarantee of the training, or None without one."""
        return self.privacy

    @property
    def assumptions(self) -> tuple[Condition, ...]:
        """What every answer about these trainings takes for granted."""
        return (TRUE_RESULTS,)

    @property
    def name(self) -> str:
        """The program in a few words."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class CommandTraining(ProgramTraining):
    """A training that a shell command performs."""

    tag: ClassVar[str] = "command"

    command: str
    """Shell command that trains one model, with the placeholders {rows}, {seed}, {out}, {state}, {data}, {ask} and
    {gpus}."""
    code: ProgramCode = TRACKED_FILES
    """Files of the program, as paths and patterns; by default those that git tracks in the current folder."""

    def conflicts(self) -> Iterator[str]:
        check_command(self.command)
        yield from super().conflicts()

    def to_pin(self) -> CommandTraining:
        """Return the training with the files that the command names among those of the program."""
        return replace(self, code=self.code.with_files(named_files(self.command)))

    @property
    def name(self) -> str:
        return self.command

    def uses(self, placeholder: str) -> bool:
        """Return whether the command has this placeholder."""
        return any(name == placeholder for name, _ in used_placeholders(self.command))


@dataclass(frozen=True, kw_only=True)
class FunctionTraining(ProgramTraining):
    """A training that a Python function performs, which takes an `engram.TrainingJob`."""

    tag: ClassVar[str] = "function"
    text_form: ClassVar[str] = "package.module:train"

    function: TrainingFunction
    """Function that trains one model, as package.module:train."""

    @classmethod
    def from_text(cls, text: str) -> FunctionTraining | None:
        """Return the training that `training=package.module:train` selects, or None for text of another form."""
        return cls(function=TrainingFunction.parse(text)) if ":" in text else None

    @property
    def name(self) -> str:
        return self.function.name


Program = CommandTraining | FunctionTraining


def without_resources(program: Program) -> Program:
    """Return the program as a key sees it: without the resources of its jobs."""
    return replace(program, resources=NO_RESOURCES)


def row_conflicts(program: Program, returns: Sequence[Returns], numbers: str) -> Iterator[str]:
    """Yield why an audit cannot use a program that trains on given rows and returns one of these `numbers`."""
    if program.returns not in returns:
        *others, last = returns
        allowed = f"{', '.join(others)} or {last}" if others else last
        yield (
            f"training.returns is {program.returns}; it must be {allowed}, since this audit needs {numbers} of each "
            "record"
        )
    if isinstance(program, CommandTraining) and program.uses("data"):
        yield "training.command has the placeholder {data}; this audit changes no records, so it must be {rows}"
