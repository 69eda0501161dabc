"""Notes in a run's folder that are not part of any key: delivery to MLflow, certificate details, and stamps.

Each start verifies every planned result before it reports the run as finished. Reading 100,000 files takes seconds on
disk and an hour in a bucket. The run's folder therefore stores a stamp of each verified result, and a later start
rereads only results whose stamp has changed. `engram store verify`, and every reader of a result, read all bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from orchestrator.errors import Damaged, SpecError
from orchestrator.quantities import IN_A_LINE, printable
from orchestrator.run_folder import run_files
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.run_files import seal, unseal
from orchestrator.spec.fields import nearest
from orchestrator.spec.yaml_file import load_yaml
from orchestrator.store import atomic_write
from orchestrator.store.regular_file import regular_bytes, regular_text

RECEIPT_FILE = "mlflow.json"
DETAILS_FILE = "details.json"
LONGEST_DETAIL = 200  # characters per detail, so that the certificate stays on one sheet


@dataclass(frozen=True)
class Receipt:
    """Record of a run's delivery to MLflow.

    `position`, `state` and `fingerprint` identify the delivered content. They are empty until delivery is complete.

    position: of the log, in bytes. fingerprint: of the files. artifacts: their digests by path. jobs: whether the
    trainings that log metrics were delivered, too.
    """

    uri: str
    experiment: str
    experiment_id: str
    run_id: str
    address: str
    position: int = 0
    state: str = ""
    fingerprint: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    jobs: bool = False


def read_receipt(folder: Path) -> Receipt | None:
    """Return the receipt of the run in this folder.

    Returns None if it is missing or unreadable. The whole run is then delivered again.
    """
    with suppress(OSError, ValueError, TypeError):
        return Receipt(**json.loads(regular_text(folder / RECEIPT_FILE)))
    return None


def write_receipt(folder: Path, receipt: Receipt) -> None:
    atomic_write.replace(folder, folder / RECEIPT_FILE, (json.dumps(asdict(receipt), indent=1) + "\n").encode())


@dataclass(frozen=True)
class Details:
    """Details for a certificate, one line each. Details that are not given are empty."""

    title: str = ""
    auditor: str = ""
    client: str = ""
    purpose: str = ""

    def __bool__(self) -> bool:
        return any(asdict(self).values())


DETAIL_NAMES = tuple(field.name for field in fields(Details))


def read_details(folder: Path) -> Details:
    """Return the details of the run in this folder, which are empty if none were given.

    Raises Damaged if their file is damaged.
    """
    path = folder / DETAILS_FILE
    try:
        data = regular_bytes(path)
    except FileNotFoundError:
        return Details()
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        return Details(**_parse_details(unseal(data), str(path)))
    except (ValueError, SpecError) as error:
        if isinstance(error, SpecError):
            reason = str(error)
        else:
            reason = f"{path}: {error}"
        raise Damaged(f"{reason}; delete the file and give the details again") from None


def give_details(folder: Path, details_to_change: Mapping[str, str]) -> Details:
    """Change some details of a run and store them. An empty text removes a detail.

    Raises SpecError for a value that is not a line of text, and StoreError if the file cannot be written.
    """
    checked = _parse_details(details_to_change, "")
    path = folder / DETAILS_FILE
    details = replace(Details() if set(checked) == set(DETAIL_NAMES) else read_details(folder), **checked)
    if details:
        atomic_write.replace(folder, path, seal(asdict(details), indent=1) + b"\n")
    else:
        path.unlink(missing_ok=True)
    return details


def load_details(path: Path) -> dict[str, str]:
    """Load details from a YAML file. Raises SpecError if it contains anything else."""
    value = load_yaml(path)
    if not isinstance(value, Mapping):
        if value is None:
            content = "nothing"
        else:
            content = f"a {type(value).__name__}"
        raise SpecError(f"{path} contains {content}; it must be a mapping with {', '.join(DETAIL_NAMES)}")
    return _parse_details(value, str(path))


def _parse_details(content: object, path: str) -> dict[str, str]:
    """Return these details, checked and stripped."""
    prefix = f"{path}: " if path else ""
    if not isinstance(content, Mapping):
        raise SpecError(f"{prefix}it must be a mapping with {', '.join(DETAIL_NAMES)}")
    checked = {}
    for name, value in content.items():
        if name not in DETAIL_NAMES:
            valid_keys = f"valid keys are {', '.join(DETAIL_NAMES)}{nearest(str(name), DETAIL_NAMES)}"
            raise SpecError(f"{prefix}unknown key {printable(str(name)[:LONGEST_DETAIL])!r}; {valid_keys}")
        if not isinstance(value, str):
            raise SpecError(f"{prefix}{name} is {json.dumps(value, default=str)[:LONGEST_DETAIL]}; it must be text")
        line = value.strip()
        if sign := IN_A_LINE.search(line):
            raise SpecError(
                f"{prefix}{name} contains {printable(sign[0])}; it must be one line without control characters"
            )
        if len(line) > LONGEST_DETAIL:
            raise SpecError(f"{prefix}{name} has {len(line):,} characters; it must have at most {LONGEST_DETAIL}")
        checked[name] = line
    return checked


VERIFIED_FILE = "verified.stamps"  # not .json, because other machines fetch JSON files to list the runs


@dataclass(frozen=True)
class Verified:
    """Stamps of verified results by key, and of verified table parts by table and name. "" if there is no stamp."""

    results: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_verified(journal: Journal) -> Verified:
    """Return the record of the run's last verification. It is empty if missing or damaged."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        content = run_files.unseal(regular_bytes(journal.folder / VERIFIED_FILE), must_be_sealed=True)
        return Verified(content["results"], content["tables"])
    return Verified()


def record_verified(journal: Journal, verified: Verified) -> None:
    """Store the verification record for later starts. It only saves time, so errors are ignored."""
    with suppress(OSError), atomic_write.put_in_place(journal.folder / VERIFIED_FILE) as draft:
        draft.write_bytes(run_files.seal(asdict(verified)))
