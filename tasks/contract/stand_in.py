"""Stand-ins: built-in models that replace the user's model in an audit of the user's data."""

from __future__ import annotations

from tasks.contract.pinnable import PinnedName


def stand_in_trained(data: PinnedName | None, model: str, noun: str = "network") -> str:
    """Return `in a stand-in network, mlp1` if a built-in model is trained on the user's data, else an empty string."""
    name = _stand_in(data, model, noun)
    return name and f"in {name}"


def stand_in_compared(data: PinnedName | None, model: str, noun: str = "network") -> str:
    """Return `compared with a stand-in network, mlp1` if a given model is compared with a built-in one, else an empty
    string.
    """
    name = _stand_in(data, model, noun)
    return name and f"compared with {name}"


def _stand_in(data: PinnedName | None, model: str, noun: str) -> str:
    if data is None or not is_users_own(data.name) or is_users_own(model):
        return ""
    return f"a stand-in {noun}, {model}"


def is_users_own(name: str) -> bool:
    """Return whether the name of a data set or model refers to the user's files or code. Such names have a colon:
    `folder:scans`.
    """
    return ":" in name.partition("#")[0]


def begin_verdict(sentence: str, answer: str, stand_in: str) -> str:
    """Insert the stand-in after the answer in a verdict's sentence: `Memorised, in a stand-in network, mlp1: ...`."""
    lead = answer.capitalize()
    if not stand_in:
        return sentence
    if sentence.startswith(lead):
        return f"{lead}, {stand_in}{sentence.removeprefix(lead)}"
    return begin_sentence(sentence, stand_in)


def begin_sentence(sentence: str, stand_in: str) -> str:
    """Begin a certificate's sentence with the stand-in: `In a stand-in network, mlp1: ...`."""
    if stand_in:
        return f"{stand_in[0].upper()}{stand_in[1:]}: {sentence}"
    return sentence
