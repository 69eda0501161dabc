"""Definition of an audit: its configuration, plan, measures, presets and verdict."""

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
from tasks.contract.objectives import Headline, Objective, Objectives, headline_of, undeclared_headline
from tasks.contract.power import Power, Resolution
from tasks.contract.rules import Rules
from tasks.contract.situation import Situation
from tasks.contract.stand_in import begin_verdict
from tasks.contract.verdict import ANSWERS, Answer, Meaning, Verdict


class UndeclaredAnswer(ValueError):
    """Raised if a verdict has an answer that its audit does not declare. The message is for the author of the audit."""


@dataclass(frozen=True)
class Wording:
    """The text of an audit.

    answers: The possible answers and their meanings.
    rules: The conditions that decide the answer, as printed on the certificate and the audit's page.
    certificate(config, summary, verdict): The answer for readers without a machine-learning background. If None,
        `tasks.contract.certificate` derives it from the verdict.
    names(config, read_table): The numbers of the items that were found, without private data. `read_table(name)` reads
        a table of the run. The text follows the first finding.
    symbols: Explanations of words and symbols in metrics and settings.
    subject(config): The subject in a few words, such as `letter A`, which distinguishes runs in a list.
    repeats: For each preset, the part of the paper that it repeats, or a text that begins with `ours: `.
    situations: The situations in which a user needs the audit.
    attacks: The attacks that the audit tries. `tasks.contract.crosswalk` uses them to find the related controls.
    summed_error(config, look): An upper limit on the number of false accusations in 100 audits of models without
        memory, over all looks so far. If None, each look adds the error of the rules.
    stand_in(config): The name of a built-in model that replaces the user's model (`tasks.contract.stand_in`). The first
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
    """The images, records or questions that a model's owner evaluates it on when the model itself is not shared.

    probes(config): Yields each set as (name, `Pixels`) or, for all sets together, one (name, `Records`), (name,
        `ProbeQuestions`) or (name, `ToEmbed`).
    config(config): Returns a config with the same sets but without the fields that they do not need, such as a model
        that is trained later.
    split(config): Returns the `Split` of the images, which only the auditor sees, before any outputs exist. None if all
        images are of one kind.
    draw(config): Returns the `Draw` that randomly selects the images that matter.
    secret: The config field that hides the draw from the owner. `nonce` and `nonce_by` are in the same part of the
        config.
    columns: Tells the owner which columns to return for records.
    """

    # Typed as Any, because the packages that define these types import this module.
    probes: Callable[[Any], Iterator[tuple[str, Any]]]
    config: Callable[[Any], Any] = lambda config: config
    split: Callable[[Any], Any] | None = None
    draw: Callable[[Any], Any] | None = None
    secret: str = ""
    columns: str = ""


@dataclass(frozen=True)
class Audit:
    """An audit method: its config type, plan, presets and verdict.

    config: The configuration type.
    plan(config): Returns the named roots. One of them is `summary`, with the SUMMARY schema.
    presets: Maps each preset to a config, or to a tuple of configs for a sweep with one cell per config.
    tiny(config): Returns the same config on embedded data, with data, epochs and members reduced so that it runs in
        seconds.
    verdict(config, summary): Returns the verdict.
    measures: The measures that the plan consists of, if any.
    handout: The data handed out to a model's owner. None if the audit accepts no returned outputs.
    objectives: The objectives of a search over the config. None if the audit trains nothing that could be varied.
    effect: The number that compares runs, always from the same summary row, regardless of the rule that decided. An
        audit whose questions have different numbers gives a function of the config. If None, it is the memorization of
        `objectives`.
    stopping: How a run ends early. None if the audit has no ranks to bet on.
    notes(config): Yields warnings about combinations of data sets, which are printed before any work starts. None if
        there are none.
    cached_images(config): Yields the files of images that its jobs may write to the cache folder
        (`tasks.datasets.cache_need.CachedImages`), besides those of the data sets. None if there are none.
    resolution(config): States whether a single memorised item could be detected. If not, the audit never clears.
    power(config): Yields the detection rates for effects of stated sizes. None if the audit states no power.
    limits(config): Returns the largest field values that the data of a pinned config allow; `scale=tiny` respects them.
        None if `examples` is the only such field.
    rows_field: The field of the data set whose records only a user's training program may hold, so that `records=COUNT`
        sets it. Empty if the audit runs no such programs.
    further_rows_fields: Fields of the other parts of this data set, which `records=COUNT` sets as well.
    reads_tables: Whether its data sets may be tables of features (`table:FILE#label=COLUMN`).
    usual: The fields that most users set, as they are typed (short names are possible), in the order in which
        `engram show` lists them. If empty, it lists all fields.
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
    effect: Objective | Callable[[Any], Objective] | None = None
    stopping: Stopping | None = None
    notes: Callable[[Any], Iterable[str]] | None = None
    cached_images: Callable[[Any], Iterable[Any]] | None = None  # Any, as in Handout
    resolution: Callable[[Any], Resolution | None] | None = None
    power: Callable[[Any], Iterable[Power]] | None = None
    limits: Callable[[Any], Mapping[str, int]] | None = None
    rows_field: str = ""
    further_rows_fields: tuple[str, ...] = ()
    reads_tables: bool = False
    usual: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.presets:
            if not self.cells(name):
                raise ValueError(f"preset {name!r} is an empty tuple; it must contain at least one config")
        for name in self.wording.repeats:
            if name not in self.presets:
                raise ValueError(f"repeats has {name!r}; it must be one of the presets: {', '.join(self.presets)}")

    def answer(self, config: Any, summary: pa.Table, circumstances: Circumstances = USUAL) -> Verdict | None:
        """Return the verdict, or None if the audit has none. The verdict names a stand-in model first.

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
        """Return the answer for readers without a machine-learning background, or None if there is no answer.

        If `read_table` is given, which reads a table of the run by name, the certificate lists the items that were
        found.
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
        """Return the detection rates for this config."""
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
        """Return an upper limit on the number of false accusations in 100 audits of models without memory.

        The limit covers all looks and all cells of a sweep. None if the rules state no error.
        """
        wording = self.wording
        stated = stated_error(wording.rules, config, wording.answers)
        return summed_error(look, stated, wording.summed_error, config)

    def _describe_look(self, config: Any, look: Look) -> str:
        if look == FIRST:
            return ""
        subject = "these models and data"
        if self.stopping is not None and self.stopping.has_pairs(config):
            subject = "these pairs"
        return describe_look(look, self.summed_error(config, look), subject)

    def compared(self, config: Any) -> Objective | None:
        """Return the number that compares runs with this config, or None if the audit declares none."""
        if callable(self.effect):
            return self.effect(config)
        return self.effect or (self.objectives.memorization if self.objectives else None)

    def headline(self, config: Any, summary: pa.Table) -> Headline | None:
        """Return the number that compares runs, or None if the summary lacks it.

        If the audit declares no number to compare, this is the first row.
        """
        objective = self.compared(config)
        if objective is None:
            return undeclared_headline(summary)
        return headline_of(objective, config, summary)

    def cells(self, preset: str) -> tuple[Any, ...]:
        """Return the configs of this preset, one per run."""
        cells = self.presets[preset]
        return cells if isinstance(cells, tuple) else (cells,)


@dataclass(frozen=True)
class Stopping:
    """How a run of the audit ends early.

    `level` and `pairs` are dotted paths of config fields: the error rate, which is 0 for a full-length run, and the
    maximum number of pairs. A smaller number of pairs must select the first pairs of a larger number. `table` names the
    root whose job reads one table per pair, in order, and writes one row per pair with the columns `evidence` and
    `decided`. The row of a pair may depend only on that pair and earlier ones.
    """

    level: str
    pairs: str
    table: str

    def is_asked(self, config: Any) -> bool:
        """Return whether the run may end early. False if the question lacks these fields."""
        return bool(self.error_rate(config))

    def error_rate(self, config: Any) -> float:
        """Return the error rate of a run that may end early, or 0 for a full-length run."""
        return float(_read_path(config, self.level) or 0.0)

    def has_pairs(self, config: Any) -> bool:
        """Return whether the question compares pairs."""
        return _read_path(config, self.pairs) is not None

    def planned(self, config: Any) -> int:
        """Return the maximum number of pairs."""
        return int(_read_path(config, self.pairs))

    def first(self, config: Any, pairs: int) -> Any:
        """Return the config restricted to the first `pairs` pairs."""
        return _replace_path(config, self.pairs.split("."), pairs)

    def settings(self, level: float, largest_pairs: int | None) -> Mapping[str, Any]:
        """Return the fields of a run that may end early.

        `largest_pairs` limits the number of pairs; None keeps the number in the config.
        """
        return {self.level: level} | ({} if largest_pairs is None else {self.pairs: largest_pairs})


def _read_path(config: Any, path: str) -> Any:
    """Return the value of the field at a dotted path, or None if the field does not exist."""
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def _replace_path(config: Any, path: Sequence[str], value: Any) -> Any:
    name, *rest = path
    return replace(config, **{name: _replace_path(getattr(config, name), rest, value) if rest else value})
