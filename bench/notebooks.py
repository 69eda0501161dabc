"""Executes the notebooks in examples/ in a copy of the folder and stores their outputs: `make notebooks [NAME]...`.

Paths of this machine in outputs are replaced, so that the outputs of two machines differ only in numbers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PUBLIC = "~/engram/examples"  # replaces the folder in which a notebook was executed
SECONDS = 1800  # timeout of a cell
# Widgets and timings of the kernel, which differ in every execution.
VOLATILE = ("execution", "language_info")


def execute(path: Path) -> Any:
    """Execute the notebook in a copy of its folder and return it with outputs."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "examples"
        shutil.copytree(path.parent, copy)
        resources = {"metadata": {"path": str(copy)}}
        client = NotebookClient(
            notebook, timeout=SECONDS, kernel_name="python3", resources=resources, coalesce_streams=True
        )
        client.execute()
        text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
        return json.loads(hide_paths(text, copy))


def hide_paths(text: str, folder: Path) -> str:
    """Return the text with public paths in place of this machine's."""
    for own, public in ((str(folder), PUBLIC), (str(ROOT), "~/engram"), (str(Path.home()) + os.sep, "~/")):
        text = text.replace(own, public)
    return re.sub(r"/tmp/ipykernel_\d+/\d+\.py", "notebook.py", text)


def store_outputs(path: Path) -> None:
    """Replace the outputs of the notebook in this file by new ones."""
    notebook = execute(path)
    for cell in notebook["cells"]:
        cell["metadata"] = {name: value for name, value in cell["metadata"].items() if name not in VOLATILE}
    notebook["metadata"]["language_info"] = {"name": "python"}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    names = sys.argv[1:] or sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))
    for name in names:
        store_outputs(EXAMPLES / f"{name}.ipynb")
