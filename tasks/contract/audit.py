"""The vocabulary of audits: a method with its config, its plan and measures, its presets, and its answer in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tasks.contract.certificate import Certificate, add_names, made_of, name_stand_in
from tasks.contract.circumstances import USUAL, Circumstances
from tasks.contract.commitment import BINDINGS
from tasks.contract.copy_counts import describe_copies
from tasks.contract.crosswalk import Attack
from tasks.contract.job import Roots
from tasks.contract.learning import add_unlearnt, begin_unlearnt, describe_unlearnt
from tasks.contract.looks import (
    FIRST,
    Look,
    SummedError,
    add_look,
    attach_look,
    certify_look,
    describe_look,
    stated_error,
    summed_error,
)
from tasks.contract.measure import Measure
from tasks.contract.objectives import Objective, Objectives
from tasks.contract.power import Power, Resolution
from tasks.contract.rules import Rules
from tasks.contract.situation import Situation
from tasks.contract.stand_in import begin_verdict
from tasks.contract.verdict import ANSWERS, Answer, Meaning, Verdict


class UndeclaredAnswer(ValueError):
    """A verdict has an answer that its audit does not declare; the message is one line for the audit's author."""


@dataclass(frozen=True)
class Wording:
    """What an audit says of itself and of its answer, in words.

    `answers` are all answers that its verdict may give, those of ANSWERS unless it has its own. `rules` are the
    conditions by which it decides, as the certificate and the audit's page give them. `certificate(config, summary,
    verdict)` is the answer for somebody who knows no machine learning; None for the one that
    `tasks.contract.certificate` makes of the verdict. `names(config, read)` says by number which things were found,
    from the run's tables, which `read` finds by name; it holds nothing that is private, and follows the first finding.
    `symbols` explains the words and symbols of its metrics and settings, each by how it is written there.
    `subject(config)` says in a few words what the audit is about, such as `letter A`, to tell runs apart in a list.
    `repeats` says of each preset which part of the paper it repeats, or begins with `ours: `; `situations` are those in
    which somebody needs the audit. `attacks` are those that it tries, by which `tasks.contract.crosswalk` finds the
    controls that it speaks to. `summed_error(config, look)` says how many of 100 audits of models that keep nothing
    accuse at one of the looks so far, at most; None if every look adds the error of the rules. `stand_in(config)` names
    a built-in model in the place of the user's model (`tasks.contract.stand_in`); the first sentence of every answer
    then names it.
    """

    answers: Mapping[Answer, Meaning] = field(default_factory=lambda: ANSWERS)
    rules: Rules[Any] | None = None
    certificate: Callable[[Any, pa.Table, Verdict], Certificate] | None = None
    names: Callable[[Any, Callable[[str], pa.Table]], str] | None = None
    symbols: Mapping[str, str] = field(default_factory=dict)
    subject: Callable[[Any], str] | None = None
    repeats: Mapping[str, str] = field(default_factory=dict)
    situations: tuple[Situation, ...] = ()
    attacks: tuple[Attack, ...] = ()
    stand_in: Callable[[Any], str] | None = None
    summed_error: SummedError | None = None


@dataclass(frozen=True)
class Handout:
    """What the owner of a model evaluates it on, who keeps the model.

    `probes(config)` yields the sets as (name of the set, `Pixels`) or, for all sets, (name, `Records`), (name,
    `ProbeQuestions`) or (name, `ToEmbed`). `config(config)` hands out the same sets and names nothing that they do not
    need, such as a model that is trained later. `split(config)` is the `Split` that says which of these images are
    which, for the auditor alone, before anything is given; None where all are of one kind. `draw(config)` is the `Draw`
    by which chance decides which pictures matter, and `secret` the field of the config that keeps it from the owner;
    beside it stand `nonce` and `nonce_by`. `columns` tells the owner of a model that is asked about records which to
    return.
    """

    # Typed no closer, since the packages of these types import this one.
    probes: Callable[[Any], Iterator[tuple[str, Any]]]
    config: Callable[[Any], Any] = lambda config: config
    split: Callable[[Any], Any] | None = None
    draw: Callable[[Any], Any] | None = None
    secret: str = ""
    columns: str = ""


@dataclass(frozen=True)
class Audit:
    """One method: its config type, the plan that answers its question, its presets, and its answer in words.

    `plan(config)` returns the named roots, `summary` (the SUMMARY schema) among them. `tiny(config)` keeps a config's
    shape and shrinks data, epochs and members to seconds, on embedded data. A preset is a config, or a tuple of
    configs: a sweep with a cell for each. `verdict(config, summary)` reads the answer off the summary table.

    `measures` are the measures that the plan is made of, if any. `handout` is what the owner of a model evaluates;
    None where nobody is asked. `objectives` are what a search over the config moves; None where nothing is trained that
    could be trained otherwise. `effect` is the number by which runs are compared, always the same row of the summary,
    whichever rule decided; None for the memorization of `objectives`. `stopping` is how a run ends once it is decided;
    None where nothing is drawn whose rank could be bet on. `notes(config)` yields the warnings about the data sets of a
    config, beside those about each of them, which are printed before any work; None if there can be none.
    `resolution(config)` says whether a single remembered item could be found, without which the audit clears nobody,
    and `power(config)` how often it finds what size; None if it has no such statement.
    `limits(config)` are the largest values of fields that the data of a pinned config allow, which `scale=tiny` keeps
    to; None if `examples` is the only such field.
    """

    config: type
    plan: Callable[[Any], Roots]
    presets: Mapping[str, Any]
    tiny: Callable[[Any], Any]
    verdict: Callable[[Any, pa.Table], Verdict] | None = None
    measures: tuple[Measure, ...] = ()
    wording: Wording = field(default_factory=Wording)
    handout: Handout | None = None
    objectives: Objectives | None = None
    effect: Objective | None = None
    stopping: Stopping | None = None
    notes: Callable[[Any], Iterable[str]] | None = None
    resolution: Callable[[Any], Resolution | None] | None = None
    power: Callable[[Any], Iterable[Power]] | None = None
    limits: Callable[[Any], Mapping[str, int]] | None = None

    def __post_init__(self) -> None:
        for name in self.presets:
            if not self.cells(name):
                raise ValueError(f"preset {name!r} is an empty tuple; it must hold at least one config")
        for name in self.wording.repeats:
            if name not in self.presets:
                raise ValueError(f"repeats has {name!r}; it must be one of the presets: {', '.join(self.presets)}")

    def answer(self, config: Any, summary: pa.Table, circumstances: Circumstances = USUAL) -> Verdict | None:
        """The verdict, which names a stand-in first; None if the audit gives none.

        Raises UndeclaredAnswer if the answer is not one of `answers`.
        """
        verdict = self._verdict(config, attach_look(summary, circumstances.look), circumstances)
        if verdict is None:
            return None
        verdict = add_look(verdict, circumstances.look.number, self._describe_look(config, circumstances.look))
        sentence = begin_unlearnt(verdict.sentence, verdict.answer, describe_unlearnt(summary))
        return replace(verdict, sentence=begin_verdict(sentence, verdict.answer, self._stand_in(config)))

    def _stand_in(self, config: Any) -> str:
        return "" if self.wording.stand_in is None else self.wording.stand_in(config)

    def _verdict(self, config: Any, summary: pa.Table, circumstances: Circumstances) -> Verdict | None:
        verdict = None if self.verdict is None else self.verdict(config, summary)
        if verdict is not None and verdict.answer not in self.wording.answers:
            declared = ", ".join(self.wording.answers) or "none"
            raise UndeclaredAnswer(f"answer is {verdict.answer!r}; it must be one of those declared: {declared}")
        if verdict is None:
            return None
        before = (BINDINGS[circumstances.binding], describe_copies(summary), verdict.limits)
        return replace(verdict, limits=" ".join(filter(None, before)))

    def certify(
        self,
        question: str,
        config: Any,
        summary: pa.Table,
        read: Callable[[str], pa.Table] | None = None,
        circumstances: Circumstances = USUAL,
    ) -> Certificate | None:
        """The answer for somebody who knows no machine learning; None where there is no answer.

        It names what was found where the run's tables can be `read`, by name.
        """
        made = self._certificate(question, config, summary, circumstances)
        named = self.wording.names(config, read) if made and read is not None and self.wording.names else ""
        return add_names(made, named) if made and named else made

    def _certificate(
        self, question: str, config: Any, summary: pa.Table, circumstances: Circumstances
    ) -> Certificate | None:
        summary = attach_look(summary, circumstances.look)
        verdict = self._verdict(config, summary, circumstances)
        if verdict is None:
            return None
        if self.wording.certificate is not None:
            made = self.wording.certificate(config, summary, verdict)
        else:
            made = made_of(question, verdict, self.wording.answers[verdict.answer], summary, self.verdict)
        made = certify_look(made, circumstances.look, self._describe_look(config, circumstances.look))
        return name_stand_in(add_unlearnt(made, describe_unlearnt(summary)), self._stand_in(config))

    def describe_power(self, config: Any) -> tuple[Power, ...]:
        """What the audit finds with this config, and how often."""
        return () if self.power is None else tuple(self.power(config))

    def warn_of_power(self, config: Any) -> Iterator[str]:
        """That the audit cannot clear with this config, and what would let it; nothing if it can."""
        resolution = None if self.resolution is None else self.resolution(config)
        if resolution is not None:
            yield from resolution.warn()

    def summed_error(self, config: Any, look: Look) -> float | None:
        """Of 100 audits of models that keep nothing, how many accuse over all looks and cells, at most.

        None if the rules state no error.
        """
        wording = self.wording
        stated = stated_error(wording.rules, config, wording.answers)
        return summed_error(look, stated, wording.summed_error, config)

    def _describe_look(self, config: Any, look: Look) -> str:
        if look == FIRST:
            return ""
        subject = "these pairs" if self.stopping is not None else "these models and data"
        return describe_look(look, self.summed_error(config, look), subject)

    @property
    def compared(self) -> Objective | None:
        """The number by which runs are compared; None where the audit declares none."""
        return self.effect or (self.objectives.memorization if self.objectives else None)

    def headline(self, config: Any, summary: pa.Table) -> Mapping[str, Any] | None:
        """The row of the summary by which runs are compared; None without one.

        Of an audit that declares none it is the summary's first row.
        """
        if self.compared is None:
            return next(iter(summary.slice(0, 1).to_pylist()), None)
        return self.compared.row(config, summary)

    def cells(self, preset: str) -> tuple[Any, ...]:
        """The configs of this preset, one per run."""
        cells = self.presets[preset]
        return cells if isinstance(cells, tuple) else (cells,)


@dataclass(frozen=True)
class Stopping:
    """What a run of the audit needs to end early.

    `level` and `pairs` are fields of the config, by their dotted paths: the error rate, 0 for a run that goes to its
    end, and how many pairs are planned at most. Fewer pairs must be the first of more. `table` is the root whose job
    reads a table of each pair, in this order, and writes a row for each with the columns `evidence` and `decided`; a
    pair's row may depend on those before it alone.
    """

    level: str
    pairs: str
    table: str

    def is_asked(self, config: Any) -> bool:
        """Whether the run ends early; a question without these fields goes to its end."""
        return bool(self.error_rate(config))

    def error_rate(self, config: Any) -> float:
        """The error rate of a run that ends early; 0 for a run that goes to its end."""
        return float(_read_path(config, self.level) or 0.0)

    def planned(self, config: Any) -> int:
        """The pairs that are planned at most."""
        return int(_read_path(config, self.pairs))

    def first(self, config: Any, pairs: int) -> Any:
        """The config of the first pairs, this number of them."""
        return _replace_path(config, self.pairs.split("."), pairs)

    def settings(self, level: float, most: int | None) -> Mapping[str, Any]:
        """The fields of a run that ends early, after so many pairs at most (None: as many as the config has)."""
        return {self.level: level} | ({} if most is None else {self.pairs: most})


def _read_path(config: Any, path: str) -> Any:
    """The value of the field at a dotted path; None if there is no such field."""
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def _replace_path(config: Any, path: Sequence[str], value: Any) -> Any:
    """The config with this value of the field at a path."""
    name, *rest = path
    return replace(config, **{name: _replace_path(getattr(config, name), rest, value) if rest else value})
