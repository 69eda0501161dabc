"""The definition of an audit: its configuration, plan, measures, presets and answer."""

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
    """A verdict has an answer that its audit does not declare. The message is for the author of the audit."""


@dataclass(frozen=True)
class Wording:
    """The texts of an audit.

    answers: the possible answers and their meanings.
    rules: the conditions that decide, as printed on the certificate and the audit's page.
    certificate(config, summary, verdict): the answer for readers without a machine-learning background; None for the
        one that `tasks.contract.certificate` derives from the verdict.
    names(config, read_table): the numbers of the items that were found, without private data; `read_table(name)` reads
        a table of the run. The text follows the first finding.
    symbols: explanations of words and symbols in metrics and settings.
    subject(config): the subject in a few words, such as `letter A`, which distinguishes runs in a list.
    repeats: for each preset, the part of the paper that it repeats, or a text that begins with `ours: `.
    situations: the situations in which a user needs the audit.
    attacks: the attacks that the audit tries, by which `tasks.contract.crosswalk` finds the related controls.
    summed_error(config, look): an upper limit of the false accusations in 100 audits of models without memory, over all
        looks so far; None if each look adds the error of the rules.
    stand_in(config): names a built-in model that replaces the user's model (`tasks.contract.stand_in`). The first
        sentence of every answer then names it.
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
    """The images, records or questions on which the owner of a model evaluates it, if the model stays with its owner.

    probes(config): yields each set as (name, `Pixels`) or, for all sets, (name, `Records`), (name, `ProbeQuestions`) or
        (name, `ToEmbed`).
    config(config): a config with the same sets and without fields that they do not need, such as a model that is
        trained later.
    split(config): the `Split` of the images, for the auditor alone, before any outputs exist; None if all images are of
        one kind.
    draw(config): the `Draw` that randomly selects the images that matter.
    secret: the field of the config that hides the draw from the owner; `nonce` and `nonce_by` are in the same part.
    columns: tells the owner which columns to return for records.
    """

    # Any, because the packages of these types import this module.
    probes: Callable[[Any], Iterator[tuple[str, Any]]]
    config: Callable[[Any], Any] = lambda config: config
    split: Callable[[Any], Any] | None = None
    draw: Callable[[Any], Any] | None = None
    secret: str = ""
    columns: str = ""


@dataclass(frozen=True)
class Audit:
    """One method: its config type, plan, presets and answer.

    config: the type of the configuration.
    plan(config): the named roots; one is `summary`, with the SUMMARY schema.
    presets: a config each, or a tuple of configs: a sweep with one cell per config.
    tiny(config): the same config with data, epochs and members reduced to seconds, on embedded data.
    verdict(config, summary): the answer.
    measures: the measures that the plan consists of, if any.
    handout: the data for the owner of a model; None if the audit accepts no returned outputs.
    objectives: the objectives of a search over the config; None if the audit trains nothing that could be varied.
    effect: the number that compares runs, always the same row of the summary, regardless of the rule that decided;
        None for the memorization of `objectives`.
    stopping: how a run ends early; None if the audit has no ranks to bet on.
    notes(config): warnings about combinations of data sets, printed before any work; None if there are none.
    resolution(config): whether a single memorised item could be detected, without which the audit never clears.
    power(config): the detection rate for effects of stated sizes; None if the audit has no such statement.
    limits(config): the largest values that the data of a pinned config allow for its fields, which `scale=tiny`
        respects; None if `examples` is the only such field.
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
                raise ValueError(f"preset {name!r} is an empty tuple; it must contain at least one config")
        for name in self.wording.repeats:
            if name not in self.presets:
                raise ValueError(f"repeats has {name!r}; it must be one of the presets: {', '.join(self.presets)}")

    def answer(self, config: Any, summary: pa.Table, circumstances: Circumstances = USUAL) -> Verdict | None:
        """Return the verdict, which names a stand-in first; None if the audit has no verdict.

        Raises UndeclaredAnswer if the answer is not one of `answers`.
        """
        verdict = self._verdict(config, attach_look(summary, circumstances.look), circumstances)
        if verdict is None:
            return None
        verdict = add_look(verdict, circumstances.look.number, self._describe_look(config, circumstances.look))
        sentence = begin_unlearnt(verdict.sentence, verdict.answer, describe_unlearnt(summary))
        return replace(verdict, sentence=begin_verdict(sentence, verdict.answer, self._stand_in(config)))

    def _stand_in(self, config: Any) -> str:
        if self.wording.stand_in is None:
            return ""
        return self.wording.stand_in(config)

    def _verdict(self, config: Any, summary: pa.Table, circumstances: Circumstances) -> Verdict | None:
        if self.verdict is None:
            verdict = None
        else:
            verdict = self.verdict(config, summary)
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
        read_table: Callable[[str], pa.Table] | None = None,
        circumstances: Circumstances = USUAL,
    ) -> Certificate | None:
        """Return the answer for readers without a machine-learning background; None if there is no answer.

        With `read_table`, which reads a table of the run by name, the certificate lists the items that were found.
        """
        certificate = self._certificate(question, config, summary, circumstances)
        if certificate and read_table is not None and self.wording.names:
            names = self.wording.names(config, read_table)
        else:
            names = ""
        if certificate and names:
            return add_names(certificate, names)
        return certificate

    def _certificate(
        self, question: str, config: Any, summary: pa.Table, circumstances: Circumstances
    ) -> Certificate | None:
        summary = attach_look(summary, circumstances.look)
        verdict = self._verdict(config, summary, circumstances)
        if verdict is None:
            return None
        if self.wording.certificate is not None:
            certificate = self.wording.certificate(config, summary, verdict)
        else:
            certificate = made_of(question, verdict, self.wording.answers[verdict.answer], summary, self.verdict)
        certificate = certify_look(certificate, circumstances.look, self._describe_look(config, circumstances.look))
        return name_stand_in(add_unlearnt(certificate, describe_unlearnt(summary)), self._stand_in(config))

    def describe_power(self, config: Any) -> tuple[Power, ...]:
        """Return the detection rates of this config."""
        return () if self.power is None else tuple(self.power(config))

    def warn_of_power(self, config: Any) -> Iterator[str]:
        """Yield a warning, with advice, if the audit cannot clear with this config."""
        if self.resolution is None:
            resolution = None
        else:
            resolution = self.resolution(config)
        if resolution is not None:
            yield from resolution.warn()

    def summed_error(self, config: Any, look: Look) -> float | None:
        """Return an upper limit of the false accusations in 100 audits of models without memory, over all looks.

        Includes all cells of a sweep. None if the rules state no error.
        """
        wording = self.wording
        stated = stated_error(wording.rules, config, wording.answers)
        return summed_error(look, stated, wording.summed_error, config)

    def _describe_look(self, config: Any, look: Look) -> str:
        if look == FIRST:
            return ""
        subject = "these models and data"
        if self.stopping is not None:
            subject = "these pairs"
        return describe_look(look, self.summed_error(config, look), subject)

    @property
    def compared(self) -> Objective | None:
        """The number that compares runs; None if the audit declares none."""
        return self.effect or (self.objectives.memorization if self.objectives else None)

    def headline(self, config: Any, summary: pa.Table) -> Mapping[str, Any] | None:
        """Return the row of the summary that compares runs; None without one.

        The first row if the audit declares no number to compare.
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
    """How a run of the audit ends early.

    `level` and `pairs` are dotted paths of fields of the config: the error rate, 0 for a run of full length, and the
    maximum number of pairs. A smaller number of pairs must select the first of a larger number. `table` is the root
    whose job reads one table per pair, in order, and writes one row per pair with the columns `evidence` and `decided`.
    The row of a pair may depend on that pair and earlier ones only.
    """

    level: str
    pairs: str
    table: str

    def is_asked(self, config: Any) -> bool:
        """Whether the run may end early; False for a question without these fields."""
        return bool(self.error_rate(config))

    def error_rate(self, config: Any) -> float:
        """The error rate of a run that may end early; 0 for a run of full length."""
        return float(_read_path(config, self.level) or 0.0)

    def planned(self, config: Any) -> int:
        """The maximum number of pairs."""
        return int(_read_path(config, self.pairs))

    def first(self, config: Any, pairs: int) -> Any:
        """The config of the first `pairs` pairs."""
        return _replace_path(config, self.pairs.split("."), pairs)

    def settings(self, level: float, largest_pairs: int | None) -> Mapping[str, Any]:
        """The fields of a run that may end early, with at most `largest_pairs` (None: the number in the config)."""
        return {self.level: level} | ({} if largest_pairs is None else {self.pairs: largest_pairs})


def _read_path(config: Any, path: str) -> Any:
    """Return the value of the field at a dotted path; None if the field does not exist."""
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def _replace_path(config: Any, path: Sequence[str], value: Any) -> Any:
    name, *rest = path
    return replace(config, **{name: _replace_path(getattr(config, name), rest, value) if rest else value})
