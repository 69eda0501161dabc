import json
import threading
from pathlib import Path

import pytest

from orchestrator.store.digests import Digests

GUARD = 60  # seconds that only a hang lasts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "digests.json"


def opened(path: Path) -> Digests:
    return Digests(path, path.parent)


def test_a_digest_is_remembered_and_forgotten(path: Path) -> None:
    known = opened(path)
    known["mnist"], known["digits"] = "aa", "bb"
    del known["mnist"]
    assert (dict(known), len(known)) == ({"digits": "bb"}, 1)
    assert dict(opened(path)) == {"digits": "bb"}
    with pytest.raises(KeyError):
        del known["mnist"]


def test_what_others_have_added_meanwhile_stays(path: Path) -> None:
    one, two = opened(path), opened(path)
    one["a"] = "1"
    two["b"] = "2"
    assert {"a": "1", "b": "2"} == dict(two) == dict(opened(path))


def test_of_many_that_add_at_one_time_nothing_is_lost(path: Path) -> None:
    def add(first: int) -> None:
        known = opened(path)
        for number in range(first, first + 20):
            known[str(number)] = str(number)

    threads = [threading.Thread(target=add, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert len(opened(path)) == 80


def test_a_changed_entry_is_not_taken_for_the_datas_identity(path: Path) -> None:
    opened(path)["mnist"] = "aa"
    text = path.read_text()
    for bad in ("", "[]", "null", text[:-2], text.replace('"aa"', '"ab"'), json.dumps({"digests": {"mnist": "aa"}})):
        path.write_text(bad)
        assert dict(opened(path)) == {}
    path.write_text(text)
    assert dict(opened(path)) == {"mnist": "aa"}


def test_what_cannot_be_written_is_known_to_this_process_alone(tmp_path: Path) -> None:
    known = Digests(tmp_path / "gone" / "digests.json", tmp_path)
    known["mnist"] = "aa"
    assert (dict(known), list(tmp_path.iterdir())) == ({"mnist": "aa"}, [])
    assert dict(Digests(tmp_path / "gone" / "digests.json", tmp_path)) == {}
