"""Run a study of error rates, or list the studies.

python -m studies                     # list names and questions
python -m studies NAME [options]      # --help lists the options
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence

from studies.interface import read_questions


def main(arguments: Sequence[str]) -> None:
    questions = read_questions()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(list_studies(questions))
        return
    name, *options = arguments
    if name not in questions:
        raise SystemExit(describe_unknown(name, list(questions)))
    importlib.import_module(f"studies.{name}").main(options)


def list_studies(questions: Mapping[str, str]) -> str:
    """Return the usage, followed by one line per study."""
    width = max(map(len, questions))
    lines = [f"{name:{width}}  {question}" for name, question in questions.items()]
    return "\n".join(["usage: python -m studies NAME [options]", "", *lines])


def describe_unknown(name: str, names: Sequence[str]) -> str:
    """Return a line about a name that no study has, with the most similar names."""
    similar = difflib.get_close_matches(name, names)
    hint = "`python -m studies` lists all studies."
    if similar:
        hint = f"Did you mean {' or '.join(similar)}?"
    return f"There is no study {name}. {hint}"


if __name__ == "__main__":
    main(sys.argv[1:])
