"""Changes to the user's code since a run: which files changed, and whether the user accepted the change.

In `run.json`, `code` lists the files of each user-defined network and audit with which the run was planned, by digest.
`accepted` lists the changes that the user has accepted since. Results of the earlier and the accepted code share keys.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from orchestrator.errors import SpecError, StoreError
from orchestrator.planning import code
from orchestrator.planning.code import Code
from orchestrator.planning.identity import source_of
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.quantities import format_count
from orchestrator.run_folder.journal import Journal, check_key_format, has_current_keys, reopen_cell
from orchestrator.spec import audits
from orchestrator.spec.config_parts import plain
from orchestrator.spec.resolve import Cell
from orchestrator.store import Store
from orchestrator.store.provenance import now

SHOWN_FILES = 3


@dataclass(frozen=True)
class CodeChange:
    """User code that has changed since a run was planned.

    `keys` is the digest under which it entered the run's keys, `before` is the digest of the code that computed last,
    and `same` holds the digests of accepted versions. `files` names the changed, added and removed files. It is empty
    if the run has no record of them.
    """

    code: str
    run: str
    keys: str
    before: str
    now: str
    files: tuple[str, ...]
    same: tuple[str, ...] = ()

    def describe(self) -> str:
        """Describe the change: `network hospital:small: layers.py changed since run unique_feature-1f83d9ab`."""
        names = ", ".join(self.files[:SHOWN_FILES]) or "its source"
        hidden_count = len(self.files) - SHOWN_FILES
        if hidden_count > 0:
            names += f" and {format_count(hidden_count, 'more file')}"
        return f"{self.code}: {names} changed since run {self.run}"


def describe_code(codes: Iterable[Code]) -> dict[str, Any]:
    """Return the user's code as stored in `run.json`."""
    by_name = {}
    for source in codes:
        by_name[source.name] = {"digest": source.digest, "files": dict(source.files)}
    return {"code": by_name} if by_name else {}


def changes_of_run(journal: Journal) -> list[CodeChange]:
    """Return the user code that has changed since a run was planned, or since its last accepted change."""
    about = journal.about()
    if "config" not in about:
        return []
    config = reopen_cell(journal).config
    recorded = about.get("code", {})
    changes = []
    code_names = [source.name for source in code.code_of(config)]
    for name in dict.fromkeys((*recorded, *code_names)):
        present = code.read_code(name)
        earlier_digest = recorded.get(name, {}).get("digest") or code.pinned_digest(config, name)
        if earlier_digest is not None and earlier_digest != present.digest:
            changes.append(_change(journal.run, about, present, earlier_digest))
    return changes


def find_changes(cells: Iterable[Cell], store: Store) -> list[CodeChange]:
    """Return the changes to the code behind these pinned cells since its newest runs (see `_newest_changes`)."""
    codes: dict[str, Code] = {}
    for cell in cells:
        audit = audits.find(cell.audit).audit
        # Planning many jobs takes seconds, and only the user's own audits have tasks in the user's files.
        if source_of(audit.plan.__module__):
            plan = plan_of(cell)
        else:
            plan = None
        codes |= {source.name: source for source in code.code_of(cell.config, plan)}
    return _newest_changes(store, codes.values())


def _newest_changes(store: Store, codes: Iterable[Code]) -> list[CodeChange]:
    """Return each code's change since the newest run planned with it, if that run's keys have another digest."""
    codes_by_name = {source.name: source for source in codes}
    if not codes_by_name:
        return []
    abouts: list[tuple[str, dict[str, Any]]] = []
    runs = store.folder("runs")
    for folder in sorted(runs.iterdir()) if runs.is_dir() else ():
        try:
            about = Journal(folder).about()
        except StoreError:
            continue
        if codes_by_name.keys() & about.get("code", {}).keys() and has_current_keys(about):
            abouts.append((folder.name, about))
    changes = []
    for name, present in codes_by_name.items():
        runs_with_code = [(str(about.get("created", "")), run, about) for run, about in abouts if name in about["code"]]
        if not runs_with_code:
            continue
        _, run, about = max(runs_with_code, key=operator.itemgetter(0))
        change = _change(run, about, present, about["code"][name]["digest"])
        if change.keys != present.digest:
            changes.append(change)
    return changes


def _change(run: str, about: Mapping[str, Any], present: Code, earlier_digest: str) -> CodeChange:
    accepted = []
    for entry in about.get("accepted", ()):
        if entry["code"] == present.name:
            accepted.append(entry)
    if accepted:
        keys = accepted[-1]["keys"]
    else:
        keys = earlier_digest
    files = about.get("code", {}).get(present.name, {}).get("files", {})
    names = []
    for name in sorted({*files, *present.files}):
        if files.get(name) != present.files.get(name):
            names.append(name)
    if earlier_digest == present.digest and accepted:
        names = accepted[-1]["files"]
    accepted_digests = tuple(dict.fromkeys((earlier_digest, *(entry["now"] for entry in accepted))))
    return CodeChange(
        present.name, run, keys, earlier_digest, present.digest, tuple(names) if files else (), accepted_digests
    )


def accept(cell: Cell, changes: Sequence[CodeChange]) -> Cell:
    """Return the pinned cell with the code entering keys under the digests from before these changes."""
    code_names = {source.name for source in code.code_of(cell.config)}
    concerned = [change for change in changes if change.code in code_names or change.code.startswith(code.AUDIT)]
    if not concerned:
        return cell
    entries = []
    for change in concerned:
        entry = {**asdict(change), "files": list(change.files), "time": now()}
        del entry["same"]
        entries.append(entry)
    earlier = {change.code: (change.keys, change.same) for change in concerned}
    return replace(cell, stand_ins=code.stand_ins(cell.config, earlier), accepted=tuple(entries))


def note_accepted(journal: Journal, cell: Cell, plan: Plan) -> None:
    """Record the accepted changes and the current code in a run's folder."""
    about = journal.about()
    earlier_entries = list(about.get("accepted", ()))
    recorded = set()
    for entry in earlier_entries:
        recorded.add((entry["code"], entry["keys"], entry["now"]))
    new_entries = []
    for entry in cell.accepted:
        if (entry["code"], entry["keys"], entry["now"]) not in recorded:
            new_entries.append(entry)
    if not new_entries and about.get("stand_ins", {}) == cell.stand_ins:
        return
    content = {
        "config": plain(cell.config),
        "accepted": [*earlier_entries, *new_entries],
        "stand_ins": dict(cell.stand_ins),
    }
    journal.rewrite({**about, **content, **describe_code(code.code_of(cell.config, plan))})


def check_code(journal: Journal, store: Store, same_code: bool) -> None:
    """Refuse to resume a run whose code has changed, unless the user accepts the change. Acceptance is recorded.

    Raises SpecError with the names of the changed files. A run that has all its results is never refused.
    """
    planned_keys = set(journal.tasks())
    stored_keys = planned_keys & store.keys()
    if stored_keys == planned_keys:
        return
    check_key_format(journal)
    changes = changes_of_run(journal)
    if not changes:
        return
    if not same_code:
        described = "; ".join(change.describe() for change in changes)
        count = f"{len(stored_keys)} of its {len(planned_keys)} jobs"
        raise SpecError(
            f"{described}; {count} were computed with the earlier code: restore it, start a new run with "
            f"`engram run {journal.about()['audit']}`, or accept the change with --same-code"
        )
    cell = reopen_cell(journal)
    pinned = replace(cell, config=code.pin_code_again(cell.config, [change.code for change in changes]))
    accepted = accept(pinned, changes)
    accepted = replace(accepted, stand_ins={**cell.stand_ins, **accepted.stand_ins})
    plan = plan_of(accepted)
    if set(plan.jobs) != planned_keys:
        raise SpecError(
            f"run {journal.run} cannot continue with the present code: it plans other jobs, or a model's weights "
            f"have also changed; start a new run with `engram run {cell.audit}`"
        )
    note_accepted(journal, accepted, plan)


def describe_accepted(about: Mapping[str, Any]) -> list[str]:
    """Return one line per code change that the user has accepted in a run."""
    lines = []
    for entry in about.get("accepted", ()):
        files = ", ".join(entry["files"]) or "its source"
        lines.append(
            f"{entry['code']}: {files} changed, and results of the earlier code were kept; the user accepted the "
            f"change as equivalent ({entry['keys'][:12]} before, {entry['now'][:12]} after, {entry['time'][:10]})"
        )
    return lines
