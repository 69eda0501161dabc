"""The generated parts of `docs`: commands and options, rules of verdicts, and controls that the audits relate to.

`python -m orchestrator.cli.reference docs` writes them between the two markers of each page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from orchestrator.cli.commands import GROUPS, app
from orchestrator.spec import audits
from orchestrator.spec.json_schema import describe_specification
from tasks.contract.crosswalk import format_tables
from tasks.contract.rules import Rules

BEGIN = "<!-- from here on written by `make docs` -->\n"
RULES_BEGIN = "<!-- the rules, from here on written by `make docs` -->\n"
CONTROLS_BEGIN = "<!-- the controls, from here on written by `make docs` -->\n"
END = "<!-- up to here -->\n"

EXIT_CODES = {
    0: "done: every planned result was read and is intact",
    1: "an error, or a pause: the message says what to fix; from `engram verify`, something is damaged; from a run, "
    "its report could not be drawn",
    2: "bad usage or configuration",
    3: "finished, with failed jobs",
    4: "the answer is listed in `--fail-on`",
    130: "interrupted by Ctrl-C or SIGTERM",
}
# Variables without an option.
ENVIRONMENT = {
    "ENGRAM_DATA": "the folder of data sets that are given by name",
    "ENGRAM_FOREIGN_MEMORY": (
        "the memory limit for reading a third-party model, table or data set, such as `8GB`; by default half of the "
        "machine's memory"
    ),
    "ENGRAM_CACHE": "the folder of decoded images; by default `~/.cache/engram`",
    "ENGRAM_RUNS": "the folder for the files of runs if the store is a bucket; by default `./engram-runs`",
    "AWS_ENDPOINT_URL": "a server other than Amazon's for `s3://`; the usual AWS variables also apply",
    "AZURE_STORAGE_ACCOUNT_NAME": "the account of `az://`; the usual Azure storage variables also apply",
    "ENGRAM_BROWSER": "the Chromium, Chrome or Edge that prints for `engram report --pdf`",
    "COLUMNS": "the width of the terminal in columns",
    "NO_COLOR": "turns off colours in the terminal",
}


def write_pages(folder: Path) -> None:
    """Write the page of the commands, the rules of every audit with rules, and the schemas of all audits."""
    (folder / "schema").mkdir(exist_ok=True)
    commands = folder / "commands.md"
    commands.write_text(update_page(commands.read_text()))
    for name in audits.names():
        audit = audits.find(name).audit
        page = rules_page(folder, name)
        if audit.wording.rules is not None and page.exists():
            page.write_text(rewrite_rules(page.read_text(), audit.wording.rules, audit.config()))
        schema = json.dumps(describe_specification(name, audit), indent=1, ensure_ascii=False)
        (folder / "schema" / f"{name}.json").write_text(f"{schema}\n")
    law = folder / "law.md"
    law.write_text(rewrite_controls(law.read_text()))


def rules_page(folder: Path, name: str) -> Path:
    """Return the page with the rules of an audit: its reference if there is one, else its guide."""
    page = folder / f"{name}_reference.md"
    return page if page.exists() else folder / f"{name}.md"


def update_page(page: str) -> str:
    """The page with the text between its two markers replaced."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + "\n".join(_reference()) + "\n" + END + rest.partition(END)[2]


def _reference() -> Iterator[str]:
    """The lines of the page."""
    all_commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    commands: dict[str, Any] = {}
    for heading, names in GROUPS.items():
        yield from (f"## {heading}", "", "| command | |", "|---|---|")
        group_commands = dict(pair for name in names for pair in _walk_commands(name, all_commands[name]))
        for name, command in group_commands.items():
            yield f"| [`engram {name}`](#engram-{name.replace(' ', '-')}) | {_summary(command)} |"
        yield ""
        for name, command in group_commands.items():
            yield from _command_section(name, command)
        commands |= group_commands
    yield from ("## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    yield from ("", "## Environment", "", "| variable | meaning |", "|---|---|")
    yield from (f"| `{name}` | {meaning} |" for name, meaning in sorted(_environment(commands).items()))
    yield ""


def _walk_commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The command and its name, or its subcommands and their names."""
    if hasattr(command, "commands"):
        for below, subcommand in command.commands.items():
            yield from _walk_commands(f"{name} {below}", subcommand)
    else:
        yield name, command


def _command_section(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=f"engram {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield from (f"### `engram {name}`", "", "```text", " ".join(usage.split()), "```", "")
    yield from (" ".join(paragraph.split()) + "\n" for paragraph in (command.help or "").split("\n\n"))
    parameters = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if parameters:
        yield from ("| argument or option | meaning |", "|---|---|")
        yield from (f"| {_option_syntax(parameter)} | {_cell(parameter.help)} |" for parameter in parameters)
        yield ""


def _summary(command: Any) -> str:
    """The first paragraph of a command's help."""
    return _cell((command.help or "").split("\n\n")[0])


def _option_syntax(parameter: Any) -> str:
    """An argument, or an option with all its names and its value, as code."""
    if parameter.param_type_name == "argument":
        return _code(parameter.metavar or parameter.name.upper())
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    return _code(f"{names} {parameter.metavar}" if parameter.metavar else names)


def _environment(commands: Any) -> dict[str, str]:
    """The meaning of every environment variable; for a variable that replaces an option, the option's help."""
    options = [
        parameter for command in commands.values() for parameter in command.params if isinstance(parameter.envvar, str)
    ]
    option_meanings = {parameter.envvar: f"`{parameter.opts[0]}`: {_cell(parameter.help)}" for parameter in options}
    return ENVIRONMENT | option_meanings


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    """A text on one line, whose bars do not end a table's cell."""
    return " ".join((text or "").split()).replace("|", r"\|")


def rewrite_rules(page: str, rules: Rules[object], config: object) -> str:
    """The page with the rules, at the config's numbers, between its two markers.

    Raises ValueError if the page lacks the markers.
    """
    return _rewrite(page, RULES_BEGIN, rules.format_list(config))


def rewrite_controls(page: str) -> str:
    """The page with the tables of the controls that the audits relate to between its two markers."""
    attacks = {name: audits.find(name).audit.wording.attacks for name in audits.names()}
    return _rewrite(
        page,
        CONTROLS_BEGIN,
        format_tables({name: audit_attacks for name, audit_attacks in attacks.items() if audit_attacks}),
    )


def _rewrite(page: str, begin: str, lines: Iterable[str]) -> str:
    before, marker, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise ValueError(f"there is no {begin.strip()!r} with {END.strip()!r} below it; the page needs both")
    new_text = "\n".join(lines)
    return f"{before}{begin}\n{new_text}\n\n{END}{after}"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
