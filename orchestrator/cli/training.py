"""The command that checks a user's training program before a run."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.cli.options import AuditOrFile, Fields, Json, Preset, StoreOption, command_line_spec
from orchestrator.cli.store import command_store
from orchestrator.cli.terminal import emit, say, show_check
from orchestrator.errors import SpecError


def check_training(
    audit_or_file: AuditOrFile,
    fields: Fields = None,
    preset: Preset = None,
    store: StoreOption = None,
    json: Json = False,
) -> int:
    """Check your own training program: train three models, and report every problem in one line.

    Takes the same arguments as engram run. The first two models are stored, so that the run reuses them. The third one
    repeats the first. Reports whether the program returns what the audit needs, whether its scores depend on the rows
    and on the seed, how long a training takes, and how much memory it needs.
    """
    from orchestrator import training_check
    from orchestrator.runs.lifecycle import prepare_cells
    from orchestrator.spec import resolve

    spec = command_line_spec(audit_or_file, fields, preset, None, store)
    with command_store(store, create=True) as opened_store:
        cells = resolve.pin_cells(resolve.resolve_cells(spec), opened_store.digests())
        if len(cells) > 1:
            raise SpecError(f"preset {preset} has {len(cells)} cells; check one, and name its fields")
        cells, lines = prepare_cells(spec, cells, opened_store)
        for line in lines:
            say(line)
        say(training_check.describe_start(cells[0]))
        check = training_check.check_training(cells[0], opened_store)
    if json:
        emit({"ok": check.is_ok, "seconds": check.seconds, "findings": [asdict(finding) for finding in check.findings]})
    else:
        for finding in check.findings:
            show_check(finding.ok, f"{finding.name:<9} {finding.text}")
    return 0 if check.is_ok else 1
