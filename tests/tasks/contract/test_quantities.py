"""Quantities with a unit: every written form is read, and printed forms are read back as the same number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.contract.quantities import ByteCount, Duration
from tasks.contract.resources import Resources


@pytest.mark.parametrize(
    ("written", "count", "printed"),
    [
        ("64GB", 64 * 10**9, "64GB"),
        ("64 gb", 64 * 10**9, "64GB"),
        ("512MiB", 2**29, "512MiB"),
        ("1.5TB", 15 * 10**11, "1500GB"),
        ("2G", 2 * 10**9, "2GB"),
        ("8Gi", 2**33, "8GiB"),
        ("1001", 1001, "1001"),
        ("3B", 3, "3"),
        ("0", 0, "0"),
        (2**20, 2**20, "1MiB"),
        (5e6, 5 * 10**6, "5MB"),
    ],
)
def test_sizes_are_read_and_printed(written: str | float, count: int, printed: str) -> None:
    assert ByteCount.parse(written) == count
    assert str(ByteCount.parse(written)) == printed


@pytest.mark.parametrize(
    ("written", "seconds", "printed"),
    [
        ("6h", 21600, "6h"),
        ("90s", 90, "1m30s"),
        ("3h50m", 13800, "3h50m"),
        ("1d", 86400, "1d"),
        ("0.5s", 0.5, "0.5s"),
        ("30", 30, "30s"),
        ("0", 0, "0s"),
        (3661.25, 3661.25, "3661.25s"),
    ],
)
def test_durations_are_read_and_printed(written: str | float, seconds: float, printed: str) -> None:
    assert Duration.parse(written) == seconds
    assert str(Duration.parse(written)) == printed


@given(st.integers(0, 10**15))
def test_printed_sizes_are_read_back(count: int) -> None:
    assert ByteCount.parse(str(ByteCount(count))) == count


@given(st.floats(0, 1e9))
def test_printed_durations_are_read_back(seconds: float) -> None:
    assert Duration.parse(str(Duration(seconds))) == seconds


@pytest.mark.parametrize("written", ["", "GB", "-1GB", "64XB", "1.5B", "64GBs", 0.5, float("inf"), True])
def test_invalid_sizes_are_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="is not a size in bytes; write it like 64GB or 512MiB"):
        ByteCount.parse(written)


@pytest.mark.parametrize("written", ["", "6x", "-6h", "30m6h", float("inf"), float("nan"), True])
def test_invalid_durations_are_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="is not a duration; write it like 3h50m, 90s or 1d"):
        Duration.parse(written)


def test_resources_accept_text_and_numbers() -> None:
    written = Resources(memory="64GB", time="6h")  # type: ignore[arg-type]
    assert written == Resources(memory=64 * 10**9, time=21600.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="-1 is not a size in bytes"):
        Resources(memory=-1)  # type: ignore[arg-type]
