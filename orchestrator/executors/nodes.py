"""Checks that every node in a cluster can work for a run: same code and versions, and access to the store and data."""

from __future__ import annotations

import hashlib
import pickle
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import Absent, ClusterError, EngramError, StoreError
from orchestrator.spec.resolve import pin_one
from orchestrator.store import Store, open_store
from orchestrator.store.provenance import identity

ANSWER_SECONDS = 600.0  # for all nodes together; one of them may have to read large data for the first time
NODE_GONE = "went away"  # answer of a node that has left the cluster, which is not a problem
INSTALL_HINT = "install the same versions there, for example with the same image or requirements.lock"


@dataclass(frozen=True)
class Question:
    """The question sent to a node: this process's identity, a random checkpoint in the store, and the pinned data."""

    identity: Mapping[str, str]
    store: str
    state: str
    data: tuple[Any, ...]

    def reply_state(self, node: str) -> str:
        """Return the name of the checkpoint with which a node proves that it can write."""
        return hashlib.sha256(f"{self.state} {node}".encode()).hexdigest()


def differences(own_identity: Mapping[str, str], other_identity: Mapping[str, str]) -> str:
    """Describe the differences between two identities. Returns an empty string if they are equal."""
    return ", ".join(
        f"{name} {other_identity.get(name, 'not installed')} (here {own_identity.get(name, 'not installed')})"
        for name in dict.fromkeys((*own_identity, *other_identity))
        if own_identity.get(name) != other_identity.get(name)
    )


def answer_question(question: bytes, node: str) -> str:
    """Runs on a node. Returns the problem that prevents it from working for the run, or an empty string."""
    request: Question = pickle.loads(question)
    if differing := differences(request.identity, identity()):
        return f"has different code: {differing}; {INSTALL_HINT}"
    try:
        store = open_store(request.store, create=False)
        store.write_state(request.reply_state(node), store.state(request.state))
    except Absent:
        return f"has a different store at {request.store} than this machine; all nodes must share the store"
    except (EngramError, OSError) as error:
        return f"cannot use the store {request.store}: {error}"
    for data_set in request.data:
        try:
            pin_one(data_set, store.digests())
        except (EngramError, OSError) as error:
            return f"lacks data: {error}"
    return ""


def check_nodes(
    names: Mapping[str, str], store: Store, data: Sequence[Any], ask: Callable[[bytes], Mapping[str, str]]
) -> None:
    """Raise ClusterError unless all nodes can work for a run with these data in this store.

    `names` maps node ids to names. `ask` sends the question to all nodes and returns their answers by id, omitting
    nodes that have not answered.
    """
    question = Question(identity(), store.location, secrets.token_hex(32), tuple(data))
    replies = {node: question.reply_state(node) for node in names}
    store.write_state(question.state, b"can every node read this?")
    try:
        answers = ask(pickle.dumps(question))
        problems = {node: _problem(node, answers, store, replies[node]) for node in names}
    finally:
        for state in (question.state, *replies.values()):
            with suppress(StoreError):
                store.remove_state(state)
    problem_lines = []
    for node, problem in problems.items():
        if problem:
            problem_lines.append(f"node {names[node]} {problem}")
    if problem_lines:
        other_problems = ""
        if len(problem_lines) > 1:
            other_problems = f" (and {len(problem_lines) - 1} more of {len(names)} nodes)"
        raise ClusterError(problem_lines[0] + other_problems)


def _problem(node: str, answers: Mapping[str, str], store: Store, reply: str) -> str:
    if node not in answers:
        return f"did not answer within {ANSWER_SECONDS:.0f} s; check that it is alive and that workers start there"
    if answers[node]:
        if answers[node] == NODE_GONE:
            return ""
        return answers[node]
    with suppress(StoreError):
        store.state(reply)
        return ""
    return f"wrote a file to the store {store.location} that this machine, {socket.gethostname()}, cannot find there"
