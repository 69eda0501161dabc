"""MLflow lists runs by what was asked, and cells by what tells them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.inspection.disclosure import Disclosure
from orchestrator.run_folder.journal import Journal, cell_description
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import open_store
from orchestrator.tracking import note


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (Spec("unique_feature", "quickstart", {"seed": "1"}), "letter A, quickstart, seed=1"),
        (Spec("unique_feature", "smoke", {"feature": "words:JANE DOE"}), "words '<4 and 3 letters>', smoke"),
        (Spec("forgetting", "quickstart"), "digits-on-photos forgotten, quickstart"),
        (Spec("forgetting", "quickstart", {"query.secret": "ab" * 16}), "digits-on-photos forgotten, quickstart"),
        (
            Spec("toys", "few", {"first": "1", "at": "2", "parts": "3", "label": f"given.csv@{'ab' * 32}"}),
            "toys, few, label=given.csv, first=1, at=2, 1 more",
        ),
        (Spec("density", "quickstart"), "vae of digits, quickstart"),
        (Spec("toys", "few"), "toys, few"),
    ],
)
def test_a_run_is_named_by_what_was_asked_without_what_is_private(tmp_path: Path, spec: Spec, name: str) -> None:
    (cell,) = resolve_cells(spec)
    Journal(tmp_path / "some").create(cell_description(cell), None)
    found = note.run_name(Disclosure().journal(tmp_path / "some"))
    assert found.startswith(name)
    assert ("JANE" not in found, "=<" not in found) == (True, True)


def test_a_sweep_is_named_by_what_it_varies_and_its_cells_by_their_settings(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    spec = Spec("toys", "few", {"first": "1"}, sweep={"parts": ["3", "4"]})
    report = start(resolve_cells(spec), store, Execution(address="none", mlflow="off", report=False))
    sweep = Journal(store.folder("runs", report.run))
    assert "toys, few, first=1, sweep of parts" == note.run_name(sweep)
    assert ["parts=3", "parts=4"] == list(note.cell_names(sweep, None).values())
    assert "toys, few, first=1, parts=3" == note.run_name(sweep.sibling(report.cells[0].run))
