"""A start stops cleanly once it has used its limit of GPU hours or money."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.executors.calls import Call, Item
from orchestrator.scheduling.stop import Budget
from orchestrator.spec.specification import Execution
from orchestrator.spec.yaml_file import Prices, read_prices
from tasks.contract.resources import Resources
from tests.support.shell import Here


def call(gpus: float, cpus: int = 0) -> Call:
    return Call(1, "train", (Item("aa", "module:name", None),), gpus, resources=Resources(cpus=cpus))


def test_gpu_calls_charge_their_share() -> None:
    budget = Budget(Execution(max_gpu_hours=1.0, prices=Prices(gpu=2.0, cpu=0.5, currency="EUR")))
    budget.charge([call(0.25), call(0.25), call(0.0)], 3600.0)
    assert budget.gpu_hours == 0.5
    assert budget.cpu_hours == 1.0
    assert budget.cost == 1.5
    assert budget.spent is None
    budget.charge([call(1.0)], 1800.0)
    assert budget.spent == "used 1 GPU hours, limit 1 (--max-gpu-hours)"


def test_stated_processors_are_charged() -> None:
    budget = Budget(Execution(max_gpu_hours=10.0))
    budget.charge([call(4.0, cpus=16), call(0.0, cpus=8)], 1800.0)
    assert (budget.gpu_hours, budget.cpu_hours) == (2.0, 12.0)


def test_cost_limit_ends_the_run() -> None:
    budget = Budget(Execution(max_cost=1.0, prices=Prices(cpu=0.5, currency="EUR")))
    budget.charge([call(0.0)], 2 * 3600.0)
    assert budget.spent == "spent 1 EUR, limit 1 EUR (--max-cost)"
    unlimited = Budget(Execution())
    unlimited.charge([call(1.0)], 1e9)
    assert (unlimited.limited, unlimited.spent) == (False, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not contain any prices"),
        ("gpu: -1", "gpu is -1.0; it must be 0 or more"),
        ("gpu: .inf", "prices.yaml: gpu"),
        ("gpu: 0", "a price is missing"),
        ("gpus: 2", "unknown key 'gpus'; valid keys are gpu, cpu, currency; did you mean 'gpu'?"),
        ("gpu: many", "gpu is 'many'"),
        ("[1]", "does not contain any prices"),
    ],
)
def test_invalid_prices_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (file := tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(SpecError) as refused:
        read_prices(str(file))
    assert message in str(refused.value)


def test_run_over_budget_stops_cleanly_and_continues(tmp_path: Path) -> None:
    here = Here(tmp_path)
    (tmp_path / "prices.yaml").write_text("cpu: 3600\ncurrency: EUR\n")  # a second costs 1
    budget = ("--max-cost", "0.5", "--prices", "prices.yaml")
    fields = ("toys", "parts=4", "seconds=0.3", f"folder={tmp_path}", "--address", "none", "--together", "1")
    ended = here("run", *fields, *budget, code=130)
    assert " EUR, limit 0.5 EUR (--max-cost)" in ended.stderr
    first = (tmp_path / "computed.log").read_text().split()
    assert 1 <= len(first) < 4
    here("run", *fields)
    assert sorted("0123") == sorted((tmp_path / "computed.log").read_text().split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-cost", "5"), "max_cost and prices must be set together"),
        (("--prices", "absent.yaml", "--max-cost", "5"), "file absent.yaml does not exist"),
        (("--max-gpu-hours", "0"), "max_gpu_hours is 0.0; it must be above 0"),
        (("--max-gpu-hours", "nan"), "max_gpu_hours"),
    ],
)
def test_invalid_limits_are_refused_in_one_line(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    ended = Here(tmp_path)("run", "toys", "--address", "none", *options, code=2)
    (line,) = ended.stderr.strip().splitlines()
    assert message in line
