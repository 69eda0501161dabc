from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import importlib.util, sys
location = {worker!r}
spec = importlib.util.spec_from_file_location("by_value", location)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
{before}
worker.pin({root!r})
import orchestrator.calls, tasks.job, ours_no_more
print(orchestrator.calls.__file__, tasks.job.__file__, ours_no_more.__file__)
"""


def pinned(folder: Path, before: str = "") -> list[str]:
    """What the names mean in a process whose path begins with a folder of modules named like ours."""
    (folder / "orchestrator.py").write_text("raise RuntimeError('the wrong module')\n")
    (folder / "tasks.py").write_text("mine = True\n")
    (folder / "ours_no_more.py").touch()
    location = ROOT / "orchestrator" / "executors" / "worker.py"
    script = SCRIPT.format(worker=str(location), root=str(ROOT), before=before)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert "" == ended.stderr
    return ended.stdout.split()


def test_modules_of_the_working_directory_do_not_shadow_ours(tmp_path: Path) -> None:
    calls, job, theirs = pinned(tmp_path)
    assert [str(ROOT / "orchestrator" / "calls.py"), str(ROOT / "tasks" / "job.py")] == [calls, job]
    assert tmp_path / "ours_no_more.py" == Path(theirs)


def test_what_was_wrongly_loaded_before_is_dropped(tmp_path: Path) -> None:
    assert str(ROOT / "tasks" / "job.py") == pinned(tmp_path, before="import tasks; assert tasks.mine")[1]
