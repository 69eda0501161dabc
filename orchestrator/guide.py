"""Guides the user from a situation to a specification.

It picks the audit, asks its questions and writes a commented file.
"""

from __future__ import annotations

import json
import re
import secrets
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.errors import SpecError
from orchestrator.spec import audits
from orchestrator.spec.config_parts import walk
from orchestrator.spec.field_descriptions import OURS
from orchestrator.spec.fields import nearest, replace_fields
from orchestrator.spec.json_schema import schema_address
from orchestrator.spec.resolve import pin_one
from orchestrator.spec.short_names import find_paths
from orchestrator.spec.single_field import read_field
from tasks.contract.pinnable import Pinnable
from tasks.contract.situation import FEAR, HAVE, Asked, Fear, Have, Situation
from tasks.datasets.dataset import Dataset

WIDTH = 100  # column width of the file


@dataclass(frozen=True)
class Guide:
    """A situation and the audit that fits it."""

    audit: str
    situation: Situation

    def base_config(self) -> Any:
        """Return the configuration that the situation's fields and the user's answers modify."""
        audit = audits.find(self.audit).audit
        if self.situation.preset is None:
            return audit.config()
        return audit.cells(self.situation.preset)[0]


def find_guide(have: str, fear: str) -> Guide:
    """Return the audit for this situation. Raises SpecError with the allowed values if there is none."""
    guides = _guides()
    if have not in HAVE:
        raise SpecError(f"have is {have!r}; allowed: {', '.join(HAVE)}{nearest(have, HAVE)}")
    fears = fears_with(cast(Have, have))
    if fear not in fears:
        condition = ""
        if fear in FEAR:
            condition = f" with {have} alone"
        raise SpecError(f"fear is {fear!r}; allowed{condition}: {', '.join(fears)}{nearest(fear, fears)}")
    return guides[cast(Have, have), cast(Fear, fear)]


def fears_with(have: Have) -> dict[str, str]:
    """Return the fears that some audit addresses, given what the user has, as name -> description."""
    return {fear: words for fear, words in FEAR.items() if (have, fear) in _guides()}


def _guides() -> dict[tuple[Have, Fear], Guide]:
    """Return the audit for each situation. If there are several, the first one by name wins."""
    guides: dict[tuple[Have, Fear], Guide] = {}
    for name in audits.names():
        registered = audits.find_installed(name)  # an error in another package must not hide our audits
        for situation in () if registered is None else registered.audit.wording.situations:
            guides.setdefault((situation.have, situation.fear), Guide(name, situation))
    return guides


def with_full_names(guide: Guide, answers: Mapping[str, str]) -> dict[str, str]:
    """Return the answers keyed by full field paths. Short names are expanded."""
    paths, _ = find_paths(guide.base_config(), {**guide.situation.sets, **answers})
    return {paths[name]: answer for name, answer in answers.items()}


def check_answer(guide: Guide, field_question: Asked, answer: str) -> None:
    """Check a single answer: its type, its range, and whether the file or data set that it names exists.

    `_build_config` checks conditions that involve several answers. Raises SpecError or EngramError.
    """
    if not answer:
        if field_question.optional:
            return
        raise SpecError(f"{field_question.field} is empty; give a value, such as {field_question.example}")
    value = read_field(type(guide.base_config()), field_question.field, answer)
    for _, part in walk(value):
        if isinstance(part, Dataset | Pinnable):
            pin_one(part, {})


def _build_config(guide: Guide, answers: Mapping[str, str]) -> Any:
    """Build the configuration from all answers at once. Raises SpecError if they are inconsistent."""
    return replace_fields(guide.base_config(), _collect_settings(guide, answers))


def stand_in_of(guide: Guide, answers: Mapping[str, str]) -> str:
    """Return the stand-in that the verdict will name, such as `in a stand-in network, mlp1`.

    Returns an empty string if there is no stand-in. Raises SpecError if the answers are inconsistent.
    """
    name = audits.find(guide.audit).audit.wording.stand_in
    config = _build_config(guide, answers)
    return "" if name is None else name(config)


def _collect_settings(guide: Guide, answers: Mapping[str, str]) -> dict[str, Any]:
    """Collect the fields set by the situation and by these answers, in question order."""
    settings: dict[str, Any] = dict(guide.situation.sets)
    for field_question in guide.situation.asks:
        if answer := answers.get(field_question.field, ""):
            settings[field_question.field] = answer
            if answer != field_question.default:
                settings.update(field_question.sets)
    return settings


def fields_in_error(guide: Guide, answers: Mapping[str, str], message: str) -> list[Asked]:
    """Return the questions whose answers an error message refers to. Returns all questions if it names none.

    A message that quotes a value, such as `examples is 0`, refers to that field only, even if it mentions others.
    """
    asks = guide.situation.asks
    text = _without_paths(message, asks)
    quoted_questions = []
    for field_question in asks:
        if _quotes(text, field_question.field, answers.get(field_question.field, "")):
            quoted_questions.append(field_question)
    named_questions = []
    for field_question in asks:
        if _names(text, _written_forms(guide, field_question.field)):
            named_questions.append(field_question)
    return quoted_questions or named_questions or list(asks)


def _quotes(text: str, field: str, answer: str) -> bool:
    return bool(answer) and f"{_last(field)} is {answer}" in text.replace("'", "")


def _names(text: str, forms: Iterable[str]) -> bool:
    """Whether the text names a field in one of these forms."""
    return any(re.search(rf"(?<![\w.]){re.escape(form)}(?![\w.])", text) for form in forms)


def _written_forms(guide: Guide, field: str) -> tuple[str, ...]:
    """Return the ways to write a field: its full path, the last part, and the last part below an alternative's tag."""
    tags = [value for value in guide.situation.sets.values() if isinstance(value, str)]
    return field, _last(field), *(f"{tag}.{_last(field)}" for tag in tags)


def _last(field: str) -> str:
    return field.rpartition(".")[2]


def _without_paths(message: str, asks: Iterable[Asked]) -> str:
    """Remove the leading list of all fields that were set, such as `data, examples, network: `, from the message."""
    paths, colon, rest = message.partition(": ")
    question_fields = {field_question.field for field_question in asks}
    names = paths.split(", ")
    if colon and len(names) > 1 and question_fields & set(names):
        return rest
    return message


def document(guide: Guide, answers: Mapping[str, str], file: str) -> str:
    """Write the specification as YAML with a comment above each field. `engram run` reads this file.

    If probes must be sent to the model owner first and the situation has a secret, the secret is generated here.
    """
    situation = guide.situation
    settings = _collect_settings(guide, answers)
    if situation.secret and waits_for_table(guide, answers) and situation.secret not in settings:
        settings[situation.secret] = secrets.token_hex(16)
    lines = [f"# yaml-language-server: $schema={schema_address(guide.audit)}"]
    lines += [*_comment(f"I have: {HAVE[situation.have]}. I fear: {FEAR[situation.fear]}."), "#"]
    lines += [f"# {line}" for line in _commands(guide, answers, file)]
    if has_secret(guide, answers):
        lines += _comment("Keep this file private: its secret identifies the images.")
    lines += ["", f"audit: {guide.audit}"]
    if situation.preset is not None:
        lines += [f"preset: {situation.preset} # all fields not set below; engram show {guide.audit} lists them"]
    lines += ["", "set:"]
    for line in _fields(guide, settings):
        lines.append(line)
    return "\n".join(lines) + "\n"


def waits_for_table(guide: Guide, answers: Mapping[str, str]) -> bool:
    """Whether the model owner has to evaluate probes before the audit can run."""
    return bool(guide.situation.table) and not answers.get(guide.situation.table)


def table_settings(situation: Situation, table: str) -> list[str]:
    """Return the settings, in command-line syntax, with which a run reads the table returned by a model owner."""
    table_question = next(
        table_question for table_question in situation.asks if table_question.field == situation.table
    )
    settings = []
    for name, value in {**table_question.sets, situation.table: table}.items():
        settings.append(f"{name}={value}")
    return settings


def has_secret(guide: Guide, answers: Mapping[str, str]) -> bool:
    """Whether the file contains a secret, either given by the user or generated."""
    secret = guide.situation.secret
    return bool(secret) and (waits_for_table(guide, answers) or bool(answers.get(secret)))


def _commands(guide: Guide, answers: Mapping[str, str], file: str) -> Iterator[str]:
    if waits_for_table(guide, answers):
        if guide.situation.secret:
            yield f"engram probes {file} --commit    # first, if the owner wants to verify the draw"
        yield f"engram probes {file} --out probes"
        yield f"engram run {file} {' '.join(table_settings(guide.situation, '...'))}"
    else:
        yield f"engram run {file} --dry-run"
        yield f"engram run {file}"


def _fields(guide: Guide, settings: Mapping[str, Any]) -> Iterator[str]:
    from orchestrator.spec.field_descriptions import describe_fields

    fields = describe_fields(audits.find(guide.audit).audit)
    questions = {}
    for field_question in guide.situation.asks:
        questions[field_question.field] = field_question.question.rstrip("?")
    for name, value in settings.items():
        meaning = questions.get(name, fields[name].meaning)
        yield from _comment(meaning.removeprefix(OURS), "  ")
        typed_value = _number_or_text(guide, name, value)
        yield f"  {name}: {json.dumps(typed_value, ensure_ascii=False)}"


def _number_or_text(guide: Guide, field: str, value: Any) -> Any:
    """Convert a setting to a number or boolean if its field holds one. Otherwise, return it unchanged."""
    with suppress(SpecError):  # the field may belong to an alternative whose fields follow
        typed = read_field(type(guide.base_config()), field, value)
        if isinstance(typed, bool | int | float):
            return typed
        return value
    return value


def _comment(text: str, indent: str = "") -> Iterable[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
