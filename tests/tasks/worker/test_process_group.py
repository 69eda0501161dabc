"""Processes that compute a job together end together, whatever ends one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from tasks.contract.job import Inputs, single_table, task
from tasks.worker import compute_context, process_group
from tasks.worker.compute_context import ComputeContext
from tasks.worker.job_services import ProgramDied
from tasks.worker.process_group import GROUP_MARK, compute_together
from tasks.worker.ranks import add_over_ranks, current_ranks, join_rows, row_counts, share_rows
from tests.support.waiting import HANGING, wait_until

PARENT = """
import sys
from tests.tasks.worker.test_process_group import run_together
run_together({"ends": "sleep", "folder": sys.argv[1]})
"""


@task(version=1, spreads=True)
def add_up(config: dict[str, str], inputs: Inputs) -> pa.Table:
    """Add up numbers over the ranks. The second rank first ends in the way that the config names."""
    rank = current_ranks().rank
    if "folder" in config:
        Path(config["folder"], str(rank)).write_text(str(os.getpid()))
    match rank, config["ends"]:
        case 1, "raise":
            raise LookupError("no such row")
        case 1, "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case _, "sleep":
            time.sleep(HANGING)
    rows = torch.arange(5.0)[share_rows(0, 5)]
    sums = [rows.sum(), torch.ones(2, 3).t() * (rank + 1), torch.tensor(rank)]
    add_over_ranks(sums)
    joined = join_rows(rows[None], 1, row_counts(5))
    return pa.table(
        {
            "sums": [float(value.sum()) for value in sums],
            "joined": [joined.tolist()[0]] * 3,
            "drawn": torch.rand(3).tolist(),
            "variable": [os.environ.get("ENGRAM_TEST", "")] * 3,
            "folder": [os.getcwd()] * 3,
        }
    )


def add_up_or_fail(
    configs: Sequence[dict[str, str]], inputs: Sequence[Inputs]
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield the sums of the first rank. The second one yields an error, as for a file that only it cannot read."""
    for index, config in enumerate(configs):
        if current_ranks().rank:
            yield index, OSError("cannot be read")
        else:
            yield index, add_up(config, inputs[index])


@task(version=1, spreads=True, many=add_up_or_fail)
def fail_in_one_rank(config: dict[str, str], inputs: Inputs) -> pa.Table:
    return single_table(add_up_or_fail, config, inputs)


def run_together(config: dict[str, str]) -> pa.Table:
    """Compute the sums in two processes."""
    with compute_context.use_context(ComputeContext(processes=2)):
        ((_, outcome),) = compute_together(f"{__name__}:add_up", [config], [()])
    assert isinstance(outcome, pa.Table)
    return outcome


def living_ranks() -> list[str]:
    """The processes of this machine that this process has started as ranks."""
    living = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path("/proc", name, "cmdline").read_bytes()
            parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"run_rank" in command and int(parent) == os.getpid():
            living.append(name)
    return living


@pytest.mark.slow
def test_ranks_add_up_and_serve_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = run_together({"ends": "never"})
    assert table.select(["sums", "joined"]).to_pydict() == {
        "sums": [10.0, 18.0, 1.0],
        "joined": [[0.0, 1.0, 2.0, 3.0, 4.0]] * 3,
    }
    ranks = living_ranks()
    assert len(ranks) == 2
    # The same processes compute the next jobs, which find neither random state nor settings of earlier ones.
    monkeypatch.setenv("ENGRAM_TEST", "changed")
    monkeypatch.chdir(tmp_path)
    first = run_together({"ends": "never"})
    assert living_ranks() == ranks
    assert first["variable"].to_pylist() == ["changed"] * 3
    assert first["folder"].to_pylist() == [str(tmp_path)] * 3
    assert first["drawn"] == run_together({"ends": "never"})["drawn"]
    # A process reads the number of threads only once.
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert process_group._take_idle(2) is None
    assert not living_ranks()


@pytest.mark.parametrize("ends", ["raise", "kill"])
def test_first_error_ends_all_ranks(ends: str) -> None:
    if ends == "raise":
        with pytest.raises(LookupError, match="no such row") as raised:
            run_together({"ends": ends})
        assert raised.value.__notes__[0].startswith("Raised by rank 1:\nTraceback")
    else:
        with pytest.raises(ProgramDied, match="process 1 of 2 that train one model together was ended by SIGKILL"):
            run_together({"ends": ends})
    assert not living_ranks()


def test_error_of_one_rank_ends_others_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "AGREEING", 0.5)
    with compute_context.use_context(ComputeContext(processes=2)), pytest.raises(OSError, match="cannot be read"):
        list(compute_together(f"{__name__}:fail_in_one_rank", [{"ends": "never"}], [()]))
    assert not living_ranks()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="the guard reads /proc")
def test_ranks_and_their_folder_end_with_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env=environment)
    wait_until(lambda: all((tmp_path / rank).exists() and (tmp_path / rank).read_text() for rank in "01"))
    pids = [int((tmp_path / rank).read_text()) for rank in "01"]
    assert all(GROUP_MARK.encode() in Path(f"/proc/{pid}/environ").read_bytes() for pid in pids)
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    wait_until(lambda: not list((tmp_path / "temporary").glob("engram-group-*")))
