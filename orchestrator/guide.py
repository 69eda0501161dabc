"""The guide from a situation to a specification: which audit answers, what it has to know, and the commented file."""

from __future__ import annotations

import json
import re
import secrets
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.errors import SpecError
from orchestrator.spec import audits
from orchestrator.spec.config_parts import walk
from orchestrator.spec.field_descriptions import OURS
from orchestrator.spec.fields import nearest, replace_fields
from orchestrator.spec.resolve import pin_one
from orchestrator.spec.short_names import find_paths
from orchestrator.spec.single_field import read_field
from tasks.contract.pinnable import Pinnable
from tasks.contract.situation import FEAR, HAVE, Asked, Fear, Have, Situation
from tasks.datasets.dataset import Dataset

WIDTH = 100  # columns of the file


@dataclass(frozen=True)
class Guide:
    """A situation, and the audit that is asked in it."""

    audit: str
    situation: Situation

    def base_config(self) -> Any:
        """The config that the situation's fields and the answers are set in."""
        audit = audits.find(self.audit).audit
        return audit.config() if self.situation.preset is None else audit.cells(self.situation.preset)[0]


def find_guide(have: str, fear: str) -> Guide:
    """The audit for this situation. Raises SpecError, naming what is allowed, where none answers in it."""
    chosen = _guides()
    if have not in HAVE:
        raise SpecError(f"have is {have!r}; allowed: {', '.join(HAVE)}{nearest(have, HAVE)}")
    fears = fears_with(cast(Have, have))
    if fear not in fears:
        why = f" with {have} alone" if fear in FEAR else ""
        raise SpecError(f"fear is {fear!r}; allowed{why}: {', '.join(fears)}{nearest(fear, fears)}")
    return chosen[cast(Have, have), cast(Fear, fear)]


def fears_with(have: Have) -> dict[str, str]:
    """What may be feared of somebody who has this, in words."""
    return {fear: words for fear, words in FEAR.items() if (have, fear) in _guides()}


def _guides() -> dict[tuple[Have, Fear], Guide]:
    """The audit for each situation; the first by name where there are several."""
    found: dict[tuple[Have, Fear], Guide] = {}
    for name in audits.names():
        registered = audits.find_installed(name)  # another package's error must not hide our audits
        for situation in () if registered is None else registered.audit.wording.situations:
            found.setdefault((situation.have, situation.fear), Guide(name, situation))
    return found


def with_full_names(guide: Guide, answers: Mapping[str, str]) -> dict[str, str]:
    """The answers by the full paths of their fields, which may be given by short names."""
    paths, _ = find_paths(guide.base_config(), {**guide.situation.sets, **answers})
    return {paths[name]: answer for name, answer in answers.items()}


def check_answer(guide: Guide, asked: Asked, answer: str) -> None:
    """Check one answer by itself: its type, its range, and whether the file or data set that it names exists.

    What several answers must fulfil together is checked by `build_config`. Raises SpecError or EngramError in one line.
    """
    if not answer:
        if asked.optional:
            return
        raise SpecError(f"{asked.field} is empty; it must be given, as {asked.example}")
    value = read_field(type(guide.base_config()), asked.field, answer)
    for _, part in walk(value):
        if isinstance(part, Dataset | Pinnable):
            pin_one(part, {})


def build_config(guide: Guide, answers: Mapping[str, str]) -> Any:
    """The config with all answers set at once. Raises SpecError if they do not fit together."""
    return replace_fields(guide.base_config(), collect_settings(guide, answers))


def stand_in_of(guide: Guide, answers: Mapping[str, str]) -> str:
    """The stand-in that the answer will name (`in a stand-in network, mlp1`); empty if there is none.

    Raises SpecError if the answers do not fit together.
    """
    name = audits.find(guide.audit).audit.wording.stand_in
    config = build_config(guide, answers)
    return "" if name is None else name(config)


def collect_settings(guide: Guide, answers: Mapping[str, str]) -> dict[str, Any]:
    """The fields that the situation and these answers set, in the order of the questions."""
    settings: dict[str, Any] = dict(guide.situation.sets)
    for asked in guide.situation.asks:
        if answer := answers.get(asked.field, ""):
            settings[asked.field] = answer
            if answer != asked.default:
                settings.update(asked.sets)
    return settings


def fields_in_error(guide: Guide, answers: Mapping[str, str], message: str) -> list[Asked]:
    """The questions whose answers an error is about; all of them if it names none.

    A message that quotes a value, such as `examples is 0`, is about that field alone, whatever else it mentions.
    """
    asks = guide.situation.asks
    text = _without_paths(message, asks)
    quoted = [asked for asked in asks if _quotes(text, asked.field, answers.get(asked.field, ""))]
    named = [asked for asked in asks if _names(text, _written_forms(guide, asked.field))]
    return quoted or named or list(asks)


def _quotes(text: str, field: str, answer: str) -> bool:
    return bool(answer) and f"{_last(field)} is {answer}" in text.replace("'", "")


def _names(text: str, forms: Iterable[str]) -> bool:
    """Whether a text names a field in one of these forms."""
    return any(re.search(rf"(?<![\w.]){re.escape(form)}(?![\w.])", text) for form in forms)


def _written_forms(guide: Guide, field: str) -> tuple[str, ...]:
    """The whole path of a field, the last part of it, and this part below the tag of a selected alternative."""
    tags = [value for value in guide.situation.sets.values() if isinstance(value, str)]
    return field, _last(field), *(f"{tag}.{_last(field)}" for tag in tags)


def _last(field: str) -> str:
    return field.rpartition(".")[2]


def _without_paths(message: str, asks: Iterable[Asked]) -> str:
    """The message without the list of all fields that were set, `data, examples, network: `, at its beginning."""
    paths, colon, rest = message.partition(": ")
    known = {asked.field for asked in asks}
    names = paths.split(", ")
    return rest if colon and len(names) > 1 and known & set(names) else message


def document(guide: Guide, answers: Mapping[str, str], file: str) -> str:
    """The specification as YAML with a comment above each field, which `engram run` reads.

    Where probes are handed out first, a secret is drawn for it if the situation has one.
    """
    situation = guide.situation
    settings = collect_settings(guide, answers)
    if situation.secret and waits_for_table(guide, answers) and situation.secret not in settings:
        settings[situation.secret] = secrets.token_hex(16)
    lines = [*_comment(f"I have: {HAVE[situation.have]}. I fear: {FEAR[situation.fear]}."), "#"]
    lines += [f"# {line}" for line in _commands(guide, answers, file)]
    if has_secret(guide, answers):
        lines += _comment("Keep this file to yourself: its secret says which pictures are which.")
    lines += ["", f"audit: {guide.audit}"]
    if situation.preset is not None:
        lines += [f"preset: {situation.preset} # what is not set below; engram show {guide.audit} lists all"]
    lines += ["", "set:"]
    for line in _fields(guide, settings):
        lines.append(line)
    return "\n".join(lines) + "\n"


def waits_for_table(guide: Guide, answers: Mapping[str, str]) -> bool:
    """Whether probes have to be handed out before anything can be run."""
    return bool(guide.situation.table) and not answers.get(guide.situation.table)


def has_secret(guide: Guide, answers: Mapping[str, str]) -> bool:
    """Whether the file holds a secret: one that was answered, or one that is drawn for it."""
    secret = guide.situation.secret
    return bool(secret) and (waits_for_table(guide, answers) or bool(answers.get(secret)))


def _commands(guide: Guide, answers: Mapping[str, str], file: str) -> Iterator[str]:
    if waits_for_table(guide, answers):
        if guide.situation.secret:
            yield f"engram probes {file} --commit    # first, where the owner need not trust you with the draw"
        yield f"engram probes {file} --out probes"
        yield f"engram run {file} {guide.situation.table}=..."
    else:
        yield f"engram plan {file}"
        yield f"engram run {file}"


def _fields(guide: Guide, settings: Mapping[str, Any]) -> Iterator[str]:
    from orchestrator.spec.field_descriptions import describe_fields

    fields = describe_fields(audits.find(guide.audit).audit)
    questions = {asked.field: asked.question.rstrip("?") for asked in guide.situation.asks}
    for name, value in settings.items():
        meaning = questions.get(name, fields[name].meaning)
        yield from _comment(meaning.removeprefix(OURS), "  ")
        yield f"  {name}: {value if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)}"


def _comment(text: str, before: str = "") -> Iterable[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{before}# ", subsequent_indent=f"{before}# ")
