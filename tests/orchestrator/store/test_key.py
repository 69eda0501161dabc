"""Only hexadecimal digits name a result: a key is part of a path."""

from __future__ import annotations

import pytest

from orchestrator.errors import StoreError
from orchestrator.store.entry import valid_key


@pytest.mark.parametrize("key", ["0123abcd", "f" * 64, "9" * 128])
def test_a_key_is_taken_as_it_is(key: str) -> None:
    assert key == valid_key(key)


@pytest.mark.parametrize(
    "key", ["", "abcdef0", "f" * 129, "ABCDEF01", "abcdefg0", "../abcdef01", "abcdef01\n", "abcd ef01", "١٢٣٤٥٦٧٨"]
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(StoreError) as caught:
        valid_key(key)
    assert f"{key!r} is not a key: keys are 8 or more hexadecimal digits" == str(caught.value)
