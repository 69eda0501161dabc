import random

import pytest

from orchestrator.errors import Unwritable
from orchestrator.store import entry

KEY, OTHER = "ab" * 32, "cd" * 32


def sealed(data: bytes = b"weights", key: str = KEY) -> bytes:
    return b"".join(entry.seal_state(key, data))


class Refusing:
    """A store whose states cannot be removed."""

    def remove_state(self, key: str) -> None:
        raise Unwritable(f"cannot write {key}: Read-only file system (EROFS)")


class Removing:
    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove_state(self, key: str) -> None:
        self.removed.append(key)


@pytest.mark.parametrize("data", [b"", b"weights", random.Random(1).randbytes(10_000)])
def test_a_sealed_state_comes_back(data: bytes) -> None:
    assert data == entry.unseal_state(KEY, memoryview(sealed(data)))


def test_the_bytes_of_a_state_are_those_of_its_format() -> None:
    expected = (
        b"engram state 1\n"
        + bytes.fromhex("e80971838b417a5d7661b4513acd9f7ad8416ffb5163a5ff1e20011793ca3341")
        + b"weights"
    )
    assert expected == sealed()


def test_any_changed_bit_any_cut_and_another_key_are_seen() -> None:
    sound = sealed()
    flipped = [bytes(b ^ ((at == i) << bit) for at, b in enumerate(sound)) for i in range(len(sound)) for bit in (0, 7)]
    for data in (*flipped, *(sound[:end] for end in range(len(sound))), sound + b"!", sealed(key=OTHER)):
        with pytest.raises(entry.CorruptState, match="do not match"):
            entry.unseal_state(KEY, memoryview(data))


def test_a_damaged_state_is_removed_and_that_is_said() -> None:
    store = Removing()
    error = entry.remove_damaged_state(store, KEY, ValueError("its bytes are odd"))  # type: ignore[arg-type]
    assert f"state {KEY} was damaged: its bytes are odd; it is removed" == str(error)
    assert [KEY] == store.removed


def test_a_damaged_state_that_cannot_be_removed_is_said_too() -> None:
    error = entry.remove_damaged_state(Refusing(), KEY, ValueError("odd"))  # type: ignore[arg-type]
    assert "odd; it cannot be removed (cannot write" in str(error)
