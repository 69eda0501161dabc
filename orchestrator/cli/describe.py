"""The command that shows the presets and fields of an audit."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import completion
from orchestrator.cli.listing import Papers, list_audits, list_papers, paper_presets, usual_presets
from orchestrator.cli.options import Json, StoreOption
from orchestrator.cli.terminal import columns, emit, show
from orchestrator.errors import SpecError, StoreError
from orchestrator.store import store_location

if TYPE_CHECKING:
    from orchestrator.inspection.preview import DescribedPreset
    from orchestrator.spec.audits import RegisteredAudit
    from orchestrator.spec.field_descriptions import DescribedField

COLUMNS = 80
LONG = 150  # characters; longer lists of allowed values are shown only for a single field
Audit = Annotated[
    str | None,
    typer.Argument(
        metavar="[AUDIT]",
        help="An audit's name. [default: list all audits]",
        show_default=False,
        autocompletion=completion.names,
    ),
]
Everything = Annotated[
    bool, typer.Option("--all", help="Show all presets and fields, and the rules of the answers.", show_default=False)
]
JsonSchema = Annotated[
    bool, typer.Option("--schema", help="Print the JSON Schema of the audit's YAML files, for editors.")
]
PresetOrField = Annotated[
    str | None,
    typer.Argument(
        metavar="[PRESET|FIELD|CHOICE]",
        help="A preset, a field such as family.count, or an alternative. [default: show all]",
        autocompletion=completion.parts_of,
    ),
]


def show_audit(
    audit: Audit = None,
    part: PresetOrField = None,
    everything: Everything = False,
    papers: Papers = False,
    store: StoreOption = None,
    json: Json = False,
    schema: JsonSchema = False,
) -> None:
    """List the audits, or show the settings of one.

    Shows the presets with their requirements and cost, and the usual fields with their meaning. To see the details of a
    preset, a field or an alternative (such as documents of the audit text), pass its name. This command does not run
    anything.
    """
    from orchestrator.spec import audits

    if audit is None:
        _refuse_without_audit({"--all": everything, "--schema": schema})
        list_audits(papers, json)
        return
    if papers and not json:
        list_papers([audits.find(audit)])
        return
    if schema:
        _emit_schema(audit, part)
        return
    from orchestrator.spec import field_descriptions

    entry = audits.find(audit)
    described_fields = field_descriptions.describe_fields(entry.audit)
    usual = field_descriptions.usual_fields(entry.audit, described_fields)
    if part is not None:
        fields = field_descriptions.find_part(entry.audit, audit, part)
        names = (part,) if part in entry.audit.presets else ()
        presets = _describe_presets(entry, names, store)
        if json:
            emit(_shape(entry, fields, presets, set(usual.values())))
            return
        _print([line for preset in presets for line in _whole_preset(entry.name, preset)])
        _print([line for field in fields for line in _whole_field(field)])
    elif usual and not everything and not json:
        presets = _describe_presets(entry, usual_presets(entry.audit), store)
        _print(_summary(entry, usual, described_fields, presets))
    else:
        fields = list(described_fields.values())
        presets = _describe_presets(entry, tuple(entry.audit.presets), store)
        if json:
            emit(_shape(entry, fields, presets, set(usual.values())))
        else:
            _print(_overview(entry, fields, presets))


def _describe_presets(entry: RegisteredAudit, names: tuple[str, ...], store: str | None) -> list[DescribedPreset]:
    """Describe these presets. Their times are measured ones if there is a store, and estimated ones otherwise."""
    from orchestrator.inspection.preview import described_presets
    from orchestrator.store import is_there, open_store

    location = store_location(store)
    if not names:
        return []
    opened_store = None
    with suppress(StoreError):
        opened_store = open_store(location, create=False) if is_there(location) else None
    return list(described_presets(entry, opened_store, names))


def _refuse_without_audit(options: Mapping[str, bool]) -> None:
    """Raise SpecError if one of these options is given, because no audit is."""
    for name, is_given in options.items():
        if is_given:
            raise SpecError(f"{name} is given without an audit; name one: engram show AUDIT {name}")


def _emit_schema(audit: str, part: str | None) -> None:
    """Print the JSON Schema of the audit's specification files."""
    from orchestrator.spec import audits
    from orchestrator.spec.json_schema import describe_specification

    if part is not None:
        raise SpecError(
            f"--schema cannot be combined with {part}, because the schema describes the whole audit; remove {part}"
        )
    emit(describe_specification(audit, audits.find(audit).audit))


def _shape(
    entry: RegisteredAudit, fields: list[DescribedField], presets: list[DescribedPreset], usual_paths: Set[str]
) -> dict[str, Any]:
    return {
        "audit": entry.name,
        "question": entry.question,
        "rules": _rules(entry),
        "fields": [vars(field) | {"usual": field.path in usual_paths} for field in fields],
        "presets": [vars(preset) for preset in presets],
    }


def _rules(entry: RegisteredAudit) -> list[dict[str, str]]:
    rules = entry.audit.wording.rules
    config = entry.audit.config
    if rules is None:
        return []
    result = []
    for case in rules.format_cases(config()):
        result.append(
            {"answer": case.answer.lower(), "rule": f"{case.scope[1:]}: {case.rule}" if case.scope else case.rule}
        )
    return result


def _print(lines: list[str]) -> None:
    if lines:
        show("\n".join(lines))


def _summary(
    entry: RegisteredAudit,
    usual: Mapping[str, str],
    fields: Mapping[str, DescribedField],
    presets: list[DescribedPreset],
) -> list[str]:
    """Return the usual presets and fields of an audit, and its possible answers.

    `usual` maps the fields, as they are typed, to their paths.
    """
    audit = entry.audit
    lines = [*_wrap_text(f"{entry.name}: {entry.question}", ""), ""]
    lines.append(_heading("Presets", len(presets), len(audit.presets)))
    lines += [line for preset in presets for line in _preset(preset)]
    lines += ["", f"{_heading('Usual fields', len(usual), len(fields))}, with their defaults"]
    for name, path in usual.items():
        lines += _usual_field(name, fields[path], fields.get(path.rpartition(".")[0]))
    if audit.wording.rules is not None:
        answers = list(dict.fromkeys(case.answer.lower() for case in audit.wording.rules.format_cases(audit.config())))
        lines += ["", *_wrap_text(f"Answers: {', '.join(answers)}", "")]
    name = entry.name
    lines += ["", f"engram run {name} --preset {presets[0].name} --dry-run"] if presets else []
    hints = {
        f"engram show {name} NAME": "details of a preset, field or alternative",
        f"engram show {name} --all": "all presets and fields, and the rules of the answers",
    }
    if paper_presets(audit):
        hints[f"engram show {name} --papers"] = "the tables and figures of the paper"
    width = max(map(len, hints))
    for command, meaning in hints.items():
        lines += _wrap_text(f"{command:<{width}}  {meaning}", "", " " * (width + 2))
    return lines


def _heading(noun: str, shown: int, total: int) -> str:
    """Return the noun, with the numbers of shown and existing items if they differ."""
    return noun if shown == total else f"{noun} ({shown} of {total})"


def _usual_field(name: str, field: DescribedField, parent: DescribedField | None) -> Iterator[str]:
    """Describe a field under the name that users type: its default, its meaning and its alternatives."""
    from orchestrator.spec.field_descriptions import OURS

    default = f" = {field.default}" if field.default not in ("", "required") else ""
    yield from _wrap_text(f"{name}{default}{_condition(name, field, parent)}", "  ", "      ")
    meaning = field.meaning.removeprefix(OURS)
    yield from _wrap_text(meaning[:1].upper() + meaning[1:], "      ")
    for tag, description in field.choices.items():
        yield from _wrap_text(f"{tag}: {description}", "      ", "          ")


def _condition(name: str, field: DescribedField, parent: DescribedField | None) -> str:
    """Return the alternatives that have the field, unless all have it or its name selects one."""
    kinds = field.of.split(", ")
    is_selected = "." in name and name != field.path
    if parent is None or is_selected or not field.of or set(kinds) >= set(parent.choices):
        return ""
    return f" (with {parent.path}={' or '.join(kinds)})"


def _overview(entry: RegisteredAudit, fields: list[DescribedField], presets: list[DescribedPreset]) -> list[str]:
    """Return the presets, then the top-level configuration fields, each with the names of its nested fields."""
    lines = [*_wrap_text(f"{entry.name}: {entry.question}", ""), "", "Presets"]
    lines += [line for preset in presets for line in _preset(preset)]
    lines += ["", "Fields, with their defaults"]
    for field in fields:
        if "." not in field.path:
            lines += _field(field if len(field.allowed) < LONG else replace(field, allowed=""))
    if entry.audit.wording.rules is not None:
        heading = "Answers: the first one whose condition is true applies; the numbers are the defaults"
        lines += ["", *_wrap_text(heading, "")]
        for case in entry.audit.wording.rules.format_cases(entry.audit.config()):
            lines += _wrap_text(f"{case.answer}{case.scope}: {case.rule}", "  ", "      ")
    example = next((field.below[0] for field in fields if field.below), None)
    nested_hint = ""
    if example:
        nested_hint = f", also of a nested field such as {example}"
    choice = next((tag for field in fields for tag in field.choices), None)
    choice_hint = ""
    if choice:
        choice_hint = f"; engram show {entry.name} {choice} lists the fields of that choice"
    closing = f"engram show {entry.name} NAME shows the details of a preset or field{nested_hint}{choice_hint}"
    return [*lines, "", *_wrap_text(closing, "")]


def _preset(preset: DescribedPreset) -> Iterator[str]:
    yield from _wrap_text(f"{preset.name}: {_cost(preset)}", "  ", "      ")
    if preset.repeats:
        yield from _wrap_text(preset.repeats, "      ")


def _cost(preset: DescribedPreset) -> str:
    """Return the cells, trainings and time of a preset, or the data and packages that are missing."""
    if preset.cells > 1:
        cells = f"{preset.cells} cells, "
    else:
        cells = ""
    absent = [name for name, is_available in preset.data.items() if not is_available]
    packages = []
    for package, is_installed in preset.extras.items():
        if not is_installed:
            packages.append(package)
    absences = "; ".join((*_missing(absent), *((_describe_packages(packages),) if packages else ())))
    if preset.price is None:
        return cells + (absences or "cannot be planned with the data on this machine")
    if preset.links != preset.trainings:
        links = f" in {preset.links} links"
    else:
        links = ""
    cost = f"{cells}{preset.trainings} trainings{links}, {preset.price['time']}"
    if absences:
        return f"{cost}; {absences}"
    return cost


def _missing(absent: list[str]) -> Iterator[str]:
    """Describe the data sets missing from ENGRAM_DATA and the missing hub models."""
    models = [name for name in absent if name.startswith("hub:")]
    data = [name for name in absent if name not in models]
    if data:
        yield f"data missing: {', '.join(data)} (ENGRAM_DATA)"
    if models:
        yield f"models missing: {', '.join(models)}"


def _describe_packages(packages: Iterable[str]) -> str:
    """Return a note such as `packages missing: timm (pip install 'engram-audit[deja_vu]')`."""
    from tasks.contract.extras import EXTRAS, install_command

    names = tuple(packages)
    return f"packages missing: {', '.join(names)} ({install_command(e for e in EXTRAS if e.package in names)})"


def _whole_preset(audit: str, preset: DescribedPreset) -> Iterator[str]:
    yield from _preset(preset)
    availability = ", ".join(f"{name} ({'available' if here else 'missing'})" for name, here in preset.data.items())
    packages = ", ".join(f"{name} ({'' if here else 'not '}installed)" for name, here in preset.extras.items())
    yield from _wrap_text(f"needs: {availability or 'no data'}{'; ' if packages else ''}{packages}", "      ")
    for name, values in preset.settings.items():
        yield from _wrap_text(f"{name} = {' | '.join(values)}", "      ", "          ")
    yield from _wrap_text(f"engram run {audit} --preset {preset.name}", "      ")


def _field(field: DescribedField) -> Iterator[str]:
    """Describe a field: default, meaning, allowed values, published values and the names of nested fields."""
    if field.default == "required":
        default = " (required)"
    elif field.default:
        default = f" = {field.default}"
    else:
        default = ""
    yield from _wrap_text(field.path + default, "  ", "      ")
    if field.meaning:
        yield from _wrap_text(field.meaning, "      ")
    yield from _wrap_text(_takes(field), "      ")
    if field.published:
        values = "; ".join(field.published)
        yield from _wrap_text(f"published: {values}", "      ")
    for tag, meaning in field.choices.items():
        yield from _wrap_text(f"{tag}: {meaning}", "      ", "          ")
    if field.below and not field.choices:
        names = [path.removeprefix(f"{field.path}.") for path in field.below]
        yield from _wrap_text(f"fields: {', '.join(name for name in names if '.' not in name)}", "      ")


def _takes(field: DescribedField) -> str:
    """Return the type and the allowed values, such as `whole number, at least 0`."""
    kind = f"of {field.of}: " if field.of else ""
    return kind + (f"{field.type}, {field.allowed}" if field.allowed else field.type)


def _whole_field(field: DescribedField) -> Iterator[str]:
    yield from _field(field)
    for value, presets in (field.published or {}).items():
        if len(field.published or {}) > 1:
            yield from _wrap_text(f"{value or 'empty'} in {', '.join(presets)}", "          ")


def _wrap_text(text: str, indent: str, next_indent: str | None = None) -> list[str]:
    """Wrap text to COLUMNS, or to the terminal width if that is smaller. Words longer than a line are broken."""
    return textwrap.wrap(
        text,
        min(COLUMNS, columns(sys.stdout)),
        initial_indent=indent,
        subsequent_indent=indent if next_indent is None else next_indent,
        break_on_hyphens=False,
    )
