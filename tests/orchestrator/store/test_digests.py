import json
import threading
from pathlib import Path

import pytest

from orchestrator.store.digests import Digests

GUARD = 60  # seconds that only a hang lasts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "digests.json"


def open_digests(path: Path) -> Digests:
    return Digests(path, path.parent)


def test_digest_is_remembered_and_removed(path: Path) -> None:
    digests = open_digests(path)
    digests["mnist"], digests["digits"] = "aa", "bb"
    del digests["mnist"]
    assert dict(digests) == {"digits": "bb"}
    assert len(digests) == 1
    assert dict(open_digests(path)) == {"digits": "bb"}
    with pytest.raises(KeyError):
        del digests["mnist"]


def test_concurrently_added_digests_are_kept(path: Path) -> None:
    one = open_digests(path)
    two = open_digests(path)
    one["a"] = "1"
    two["b"] = "2"
    assert {"a": "1", "b": "2"} == dict(two) == dict(open_digests(path))


def test_concurrent_additions_are_all_kept(path: Path) -> None:
    def add(first: int) -> None:
        digests = open_digests(path)
        for number in range(first, first + 20):
            digests[str(number)] = str(number)

    threads = [threading.Thread(target=add, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert len(open_digests(path)) == 80


def test_invalid_digest_file_counts_as_empty(path: Path) -> None:
    open_digests(path)["mnist"] = "aa"
    text = path.read_text()
    for bad in ("", "[]", "null", text[:-2], text.replace('"aa"', '"ab"'), json.dumps({"digests": {"mnist": "aa"}})):
        path.write_text(bad)
        assert dict(open_digests(path)) == {}
    path.write_text(text)
    assert dict(open_digests(path)) == {"mnist": "aa"}


def test_unwritable_digest_is_known_to_this_process(tmp_path: Path) -> None:
    digests = Digests(tmp_path / "gone" / "digests.json", tmp_path)
    digests["mnist"] = "aa"
    assert dict(digests) == {"mnist": "aa"}
    assert list(tmp_path.iterdir()) == []
    assert dict(Digests(tmp_path / "gone" / "digests.json", tmp_path)) == {}
