"""What people say of a run's certificate: its title, who audited for whom, and why. No key knows of it.

It lies sealed in the run's folder, so that every page of the run shows it however often it is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from orchestrator.errors import Damaged, SpecError
from orchestrator.quantities import IN_A_LINE, printable
from orchestrator.run_folder.sealed import seal, unseal
from orchestrator.spec import spec_file
from orchestrator.spec.fields import nearest
from orchestrator.store import atomic_write

FILE = "details.json"
LONGEST = 200  # characters of one of them, so that the certificate stays one sheet


@dataclass(frozen=True)
class Details:
    """One line each; empty where nobody has said it."""

    title: str = ""
    auditor: str = ""
    client: str = ""
    purpose: str = ""

    def __bool__(self) -> bool:
        return any(asdict(self).values())


NAMES = tuple(field.name for field in fields(Details))


def read(folder: Path) -> Details:
    """The details of the run in this folder; empty ones where there are none. Raises Damaged if they are not as
    they were written.
    """
    path = folder / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Details()
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        return Details(**_parse_details(unseal(data), str(path)))
    except (ValueError, SpecError) as error:
        reason = str(error) if isinstance(error, SpecError) else f"{path}: {error}"
        raise Damaged(f"{reason}; delete the file and give the details again") from None


def give(folder: Path, given: Mapping[str, str]) -> Details:
    """Change those of the run's details that are given, and keep them; an empty text takes one away.

    Raises SpecError, in one line, for one that is no line of text, and StoreError where it cannot be written.
    """
    checked = _parse_details(given, "")
    path = folder / FILE
    details = replace(Details() if set(checked) == set(NAMES) else read(folder), **checked)
    if details:
        atomic_write.replace(folder, path, seal(asdict(details), indent=1) + b"\n")
    else:
        path.unlink(missing_ok=True)
    return details


def from_file(path: Path) -> dict[str, str]:
    """The details in a YAML file with some of their names. Raises SpecError, in one line, for anything else."""
    value = spec_file.load_yaml(path)
    if not isinstance(value, Mapping):
        content = "nothing" if value is None else f"a {type(value).__name__}"
        raise SpecError(f"{path} holds {content}; it must be a mapping with {', '.join(NAMES)}")
    return _parse_details(value, str(path))


def _parse_details(given: object, where: str) -> dict[str, str]:
    """These details, without blanks around them."""
    within = f"{where}: " if where else ""
    if not isinstance(given, Mapping):
        raise SpecError(f"{within}it must be a mapping with {', '.join(NAMES)}")
    checked = {}
    for name, value in given.items():
        if name not in NAMES:
            known = f"there are {', '.join(NAMES)}{nearest(str(name), NAMES)}"
            raise SpecError(f"{within}unknown key {printable(str(name)[:LONGEST])!r}; {known}")
        if not isinstance(value, str):
            raise SpecError(f"{within}{name} is {json.dumps(value, default=str)[:LONGEST]}; it must be text")
        line = value.strip()
        if sign := IN_A_LINE.search(line):
            raise SpecError(
                f"{within}{name} holds {printable(sign[0])}; it must be one line without control characters"
            )
        if len(line) > LONGEST:
            raise SpecError(f"{within}{name} has {len(line):,} characters; it must have at most {LONGEST}")
        checked[name] = line
    return checked
