"""The first sentence of a certificate: whether the audit trained models itself, or examined a given one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

NOT_DEPLOYED = (
    "It did not examine a deployed model. Another model that is trained in the same way on the same data will probably "
    "behave similarly, but only an audit of its own file or outputs can show what it memorised."
)
MOST_NAMED = 4  # files


def describe_trained(count: int, more: str = "", *, in_pairs: bool = False, at_most: bool = False) -> str:
    """Describe models, or pairs of models, that the audit trained; `more` continues the sentence on them.

    `at_most` if the run could end before that number.
    """
    nouns = ("pair of models", "pairs of models") if in_pairs else ("model", "models")
    number = f"at most {count:,}" if at_most else f"{count:,}"
    return f"The audit trained {number} {nouns[count != 1]} with this training recipe{more}. {NOT_DEPLOYED}"


def describe_files(paths: Sequence[str]) -> str:
    """Describe model files that the audit examined."""
    noun = "model file" if len(paths) == 1 else "model files"
    return f"The audit examined the {noun} {_list_names(paths)}."


def describe_tables(paths: Sequence[str], content: str = "answers") -> str:
    """Describe a model that its owner kept, of which the audit examined tables with this content."""
    names = _list_names(paths)
    if len(paths) == 1:
        return f"The audit examined the {content} of one model, which its owner returned as a table ({names})."
    if not paths:
        return f"The audit examines the {content} of a model, which its owner returns as a table."
    return f"The audit examined the {content} of {len(paths)} models, which their owner returned as tables ({names})."


def _list_names(paths: Sequence[str]) -> str:
    names = [PurePath(path).name for path in paths]
    if len(names) > MOST_NAMED:
        names = [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more"]
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
