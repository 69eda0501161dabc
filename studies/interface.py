"""The interface of a study: a name, a one-line question and `main(arguments)`.

A study is a module in this package with a function `main`. The module's name is the study's name, and the first line of
its docstring is the question.
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

from measurement.report import make_parser

FOLDER = Path(__file__).parent


def study_parser(module: str, docstring: str | None) -> argparse.ArgumentParser:
    """Create a study's command-line parser with the options that all studies share."""
    parser = make_parser(docstring, describe_command(module))
    parser.add_argument("--out", type=Path, help="write the result here, as Markdown")
    return parser


def describe_command(module: str) -> str:
    """Return the command that runs the study in this module."""
    return f"python -m studies {module.rpartition('.')[2]}"


def read_questions() -> dict[str, str]:
    """Return each study's question by name, in alphabetical order. No study is imported."""
    questions = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if "main" in functions and path.stem != "__main__":
            questions[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return questions
