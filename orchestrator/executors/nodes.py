"""Whether every node of a cluster can do a run's work: the same code and versions, the store, and the data."""

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

ANSWER_SECONDS = 600.0  # for all nodes together: one may have to read large data for the first time
GONE = "went away"  # the answer of a node that has left the cluster, which is no problem
SAME = "install there what is installed here, such as the same image or requirements.lock"


@dataclass(frozen=True)
class Question:
    """What a node is asked: what this process is, a state of a random name in the store, and the pinned data."""

    identity: Mapping[str, str]
    store: str
    state: str
    data: tuple[Any, ...]

    def reply_state(self, node: str) -> str:
        """The name of the state by which a node proves that it can write."""
        return hashlib.sha256(f"{self.state} {node}".encode()).hexdigest()


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """In what two identities differ, in words; empty if in nothing."""
    return ", ".join(
        f"{name} {theirs.get(name, 'not installed')} (here {ours.get(name, 'not installed')})"
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name) != theirs.get(name)
    )


def answer_question(question: bytes, node: str) -> str:
    """On a node: what keeps it from working for the run, in one line; empty if nothing does."""
    asked: Question = pickle.loads(question)
    if differing := differences(asked.identity, identity()):
        return f"has other code: {differing}; {SAME}"
    try:
        store = open_store(asked.store, create=False)
        store.write_state(asked.reply_state(node), store.state(asked.state))
    except Absent:
        return f"sees another store at {asked.store} than this machine; the store must be one that all nodes share"
    except (EngramError, OSError) as error:
        return f"cannot use the store {asked.store}: {error}"
    for thing in asked.data:
        try:
            pin_one(thing, store.digests())
        except (EngramError, OSError) as error:
            return f"lacks data: {error}"
    return ""


def check_nodes(
    names: Mapping[str, str], store: Store, data: Sequence[Any], ask: Callable[[bytes], Mapping[str, str]]
) -> None:
    """Raise ClusterError, in one line, unless all nodes can work for a run with these data in this store.

    `names` are the nodes' names by their ids. `ask` sends the question to all of them and returns their answers by id;
    a node that it leaves out has not answered.
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
    found = [f"node {names[node]} {problem}" for node, problem in problems.items() if problem]
    if found:
        more = f" (and {len(found) - 1} more of {len(names)} nodes)" if len(found) > 1 else ""
        raise ClusterError(found[0] + more)


def _problem(node: str, answers: Mapping[str, str], store: Store, reply: str) -> str:
    if node not in answers:
        return f"did not answer within {ANSWER_SECONDS:.0f} s; is it alive, and does a worker start there?"
    if answers[node]:
        return "" if answers[node] == GONE else answers[node]
    with suppress(StoreError):
        store.state(reply)
        return ""
    return f"wrote into the store {store.location} what this machine, {socket.gethostname()}, does not find there"
