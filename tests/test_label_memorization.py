"""The README's example audit in one file: its estimator by hand, its null by simulation, its runs as by a user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tasks.contract.schemas import SUMMARY
from tasks.numerics import statistics
from tests.support.packages import EXAMPLE, offered_example
from tests.support.shell import ROOT, Here, refusals

RUN = ("run", EXAMPLE, "--address", "none")


@pytest.fixture(scope="module", autouse=True)
def audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module, as offered by a package."""
    with offered_example(tmp_path_factory.mktemp("package")):
        import label_memorization

        yield label_memorization


@pytest.fixture(scope="module")
def engram(tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A folder with a store, in which trainings that the presets share are run once."""
    return Here(tmp_path_factory.mktemp("runs"))


def rows(engram: Here, run: str, table: str = "summary") -> list[dict[str, Any]]:
    table_rows: list[dict[str, Any]] = engram.json("results", run, table)
    return table_rows


def a_share(networks: int, images: int, chance: np.random.Generator) -> Any:
    """The training images of each network, seven tenths of all, as (networks, images)."""
    ranks = chance.random((networks, images)).argsort(axis=1)
    return ranks < round(0.7 * images)


def test_mem_is_rate_difference_with_added_variances(audit: Any) -> None:
    #                   memorised  known  half of each  never held out
    member = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1], [0, 0, 0, 1]], bool)
    correct = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1], [0, 1, 0, 0]], bool)
    counted = audit.counts(member, correct)
    assert counted.tolist() == [[2, 2, 2, 4], [2, 2, 1, 3], [2, 2, 2, 0], [0, 2, 1, 0]]
    mem, error = audit.memorization(counted)
    assert mem[:3].tolist() == [1.0, 0.0, 0.0]
    assert pytest.approx(error[:3]) == [0.0, 0.0, 0.5]  # sqrt(1/4 / 2 + 1/4 / 2)
    assert np.isnan([mem[3], error[3]]).all()
    assert audit.share_high(counted, 0.25) == 1 / 3
    assert np.isnan(audit.share_high(counted[:, 3:], 0.25))


def test_network_that_knows_only_its_images_memorises_all(audit: Any) -> None:
    member = a_share(20, 50, np.random.default_rng(0))
    mem, error = audit.memorization(audit.counts(member, member))
    assert set(mem) == {1.0}
    assert set(error) == {0.0}


def test_intervals_cover_their_nulls_without_memorisation(audit: Any) -> None:
    """Some images are hard and some networks are poor; 200 sets of them."""
    chance = np.random.default_rng(1)
    networks = 12
    images = 100
    covered = []
    high = []
    null = []
    easy = chance.beta(5, 1, images)
    for _ in range(200):
        member = a_share(networks, images, chance)
        correct = chance.random((networks, images)) < easy - 0.1 * chance.random((networks, 1))
        gaps = []
        for its, right in zip(member, correct, strict=True):
            gaps.append(right[its].mean() - right[~its].mean())
        mean = statistics.mean(gaps)
        assert mean.low is not None
        assert mean.high is not None
        covered.append(mean.low <= 0 <= mean.high)
        counted = audit.counts(member, correct)
        high.append(audit.share_high(counted, 0.25))
        shifted = []
        for by in range(1, networks):
            shifted.append(audit.counts(np.roll(member, by, axis=0), correct))
        null.append(np.mean([audit.share_high(counted_shift, 0.25) for counted_shift in shifted]))
    assert np.mean(covered) >= 0.9
    assert np.mean(high) > 0.1  # although the networks memorise no label
    apart = statistics.mean(np.subtract(high, null))
    assert apart.low is not None
    assert apart.high is not None
    assert apart.low <= 0 <= apart.high


def test_smoke_preset_detects_memorisation_and_null_does_not(engram: Here) -> None:
    smoke_run = engram.json(*RUN, "--preset", "smoke")
    null = engram.json(*RUN, "--preset", "null")
    assert smoke_run["jobs"]["done"] == 16 * 2 + 3
    assert null["jobs"]["done"] == 16 + 3  # the networks are shared with the other run
    mean, *_ = rows(engram, smoke_run["run"])
    assert mean["metric"] == "mean mem"
    assert mean["n"] == 16
    assert mean["unit"] == "training"
    assert mean["null"] == 0.0
    assert mean["low"] > 0
    mean, *_ = rows(engram, null["run"])
    assert mean["low"] <= 0 <= mean["high"]
    assert engram.json(*RUN, "--preset", "null")["jobs"]["done"] == 0


def test_tables_and_summary_agree(engram: Here, audit: Any) -> None:
    run = engram.json(*RUN, "--preset", "smoke")["run"]
    images = rows(engram, run, "images")
    trainings = rows(engram, run, "trainings")
    assert len(images) == 200
    assert len(trainings) == 16
    assert {row["trained"] + row["held_out"] for row in images} == {16}
    assert sum(row["trained"] for row in images) == 16 * 140
    summed = {(row["metric"], row["setting"]): row for row in rows(engram, run)}
    estimated = [row for row in images if row["mem"] is not None]
    for row in estimated:
        rates = row["trained_correct"] / row["trained"], row["held_out_correct"] / row["held_out"]
        assert rates[0] - rates[1] == pytest.approx(row["mem"])
        assert row["high"] == (row["mem"] >= 0.25)
    share = summed["share of high mem", '{"from": 0.25}']
    assert share["estimate"] == pytest.approx(np.mean([row["high"] for row in estimated]))
    assert share["low"] < share["estimate"] < share["high"]
    gaps = [row["trained_accuracy"] - row["held_out_accuracy"] for row in trainings]
    assert summed["mean mem", "{}"]["estimate"] == pytest.approx(np.mean(gaps))
    assert set(SUMMARY.names) <= set(next(iter(summed.values())))  # in addition to the run and flat settings


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (("models=1",), 2, "models is 1; it must be at least 2"),
        (("share=1",), 2, "share is 1.0; it must be between 0 and 1"),
        (("unseen=true", "examples=0"), 2, "unseen is on and examples is 0; some images must remain"),
        (("unseen=true", "examples=800"), 1, "digits has the training images 0 to 1436, but not 800 to 1599"),
    ],
)
def test_invalid_settings_give_one_line_error(engram: Here, settings: tuple[str, ...], code: int, says: str) -> None:
    message = engram(*RUN, "--preset", "smoke", *settings, code=code).stderr
    assert says in message
    assert len(refusals(message)) == 1


def test_verdict_follows_from_the_mean_interval(audit: Any) -> None:
    import pyarrow as pa

    def answer(low: float | None, high: float | None) -> str:
        row = dict.fromkeys(SUMMARY.names) | {"metric": "mean mem", "setting": "{}", "estimate": 0.0, "n": 5}
        table = pa.Table.from_pylist([row | {"low": low, "high": high}], SUMMARY)
        return str(audit.verdict(audit.SMOKE, table).answer)

    assert answer(0.001, 0.3) == "memorised"
    assert answer(-0.1, 0.005) == "not detected"
    assert answer(-0.1, 0.1) == "undecided"
    assert answer(None, None) == "undecided"


def test_documentation_quotes_the_file_in_order() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding_an_audit.md").read_text(), flags=re.S)
    lines = iter((ROOT / "examples" / f"{EXAMPLE}.py").read_text().splitlines())
    quoted_lines = [line for line in block.splitlines() if line.strip() not in ("", "...")]  # for omitted lines
    assert len(quoted_lines) >= 20
    for line in quoted_lines:
        assert line in lines, line  # `in` consumes the file's lines up to this one
