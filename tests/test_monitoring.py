"""What operators see: the queries of Grafana's panels against a real Prometheus, and Ray's own pages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from orchestrator.executors.metrics import METRICS, RUN, Metrics
from orchestrator.executors.ray import RayExecutor
from orchestrator.planning.plan import Plan
from orchestrator.scheduling.driver import Driver
from orchestrator.scheduling.stop import Stop
from orchestrator.store import Store
from tasks.contract.job import Job
from tests.orchestrator.executors import jobs
from tests.support.ports import free_port
from tests.support.shell import ROOT, Shell
from tests.support.waiting import HANGING, wait_until

PANELS = json.loads((ROOT / "dashboards" / "grafana" / "engram.json").read_text())["panels"]
NAME = re.compile(r"ray_engram_\w+")
OF_RAY = {"Component", "NodeAddress", "SessionName", "Version", "WorkerId", "instance", "job", "le", "otel_scope_name"}
RUN_NAME = "jobs-0a1b2c3d"
OWN_LABEL = f'{{run="{RUN_NAME}"}}'  # the cluster is shared with other tests


def queries() -> dict[str, str]:
    """The query of each panel, restricted to the run of this test."""
    result = {}
    for panel in PANELS:
        for target in panel["targets"]:
            result[panel["title"]] = target["expr"].replace("$__rate_interval", "10m").replace("$run", RUN_NAME)
    return result


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """Starts Prometheus, which reads a port each second. Returns its address."""
    command = shutil.which("prometheus")
    if command is None:
        pytest.skip("prometheus is not installed (apt-get install prometheus)")
    started: list[subprocess.Popen[bytes]] = []

    def start(port: int) -> str:
        config = tmp_path / "prometheus.json"
        address = f"127.0.0.1:{free_port()}"
        ray = {"job_name": "ray", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        config.write_text(
            json.dumps({"global": {"scrape_interval": "5s", "scrape_timeout": "5s"}, "scrape_configs": [ray]})
        )
        data = tmp_path / "prometheus"
        options = [f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address={address}"]
        started.append(subprocess.Popen([command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return f"http://{address}"

    yield start
    for process in started:
        process.kill()
        process.wait()


def ask(server: str, query: str) -> list[dict[str, Any]]:
    """The series that a query returns now."""
    try:
        with urllib.request.urlopen(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as answer:
            return list(json.load(answer)["data"]["result"])
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query}: {error.read().decode()}") from error
    except OSError:  # not up yet
        return []


@pytest.mark.slow
def test_every_panel_has_data_without_secret_labels(
    ray_cluster: Any,
    store: Store,
    prometheus: Callable[[int], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_metrics_report_interval_ms", "1000")
    executor = RayExecutor(store.location, address=ray_cluster.address)
    ray = pytest.importorskip("ray")
    server = prometheus(ray.nodes()[0]["MetricsExportPort"])
    drivers = []

    def drive(first: int) -> None:
        """Train twice, fail once, lose a result and compute it again."""
        lost_job = Job(jobs.double, jobs.Number(first))
        plan = Plan.from_roots(
            {
                "summary": (
                    *(Job(jobs.on_cpu, jobs.Number(0.01 * (first + index))) for index in range(2)),
                    Job(jobs.fail, jobs.Number(first)),
                    Job(jobs.double, jobs.Number(first + 1), inputs=(lost_job,)),
                )
            }
        )
        driver = Driver(store, lambda: executor, lambda _: None, Stop(), metrics=metrics)
        drivers.append(driver)
        driver.drive(plan, {key for key in plan.jobs if key not in {k for keys in plan.roots.values() for k in keys}})

    def counts() -> dict[str, float]:
        outcome_series = ask(server, f"sum by (outcome) (ray_engram_jobs_total{OWN_LABEL})")
        result = {}
        for point in outcome_series:
            result[point["metric"]["outcome"]] = float(point["value"][1])
        return result

    metrics = Metrics(RUN_NAME)
    try:
        drive(1)
        wait_until(lambda: counts() == {"done": 4, "failed": 1, "missing": 1})
        drive(10)  # rates need a counter to grow
        wait_until(lambda: counts() == {"done": 8, "failed": 2, "missing": 2})
        answers: dict[str, list[float]] = {}

        def all_answer() -> bool:
            for title, query in queries().items():
                answers[title] = [float(point["value"][1]) for point in ask(server, query)]
            return all(any(value > 0 for value in values) for title, values in answers.items() if title != "Queue")

        wait_until(all_answer)
        assert answers["Queue"] == [0.0, 0.0]  # of jobs that are sent, and that wait: the run has ended
        assert pytest.approx(answers["Time for which trainings keep their GPU busy"]) == [0.5]
        assert [float(sample["value"][1]) for sample in ask(server, f"sum(ray_engram_models_total{OWN_LABEL})")] == [
            4.0
        ]
        (total_seconds,) = ask(server, f"sum(ray_engram_job_seconds_total{OWN_LABEL})")
        recorded_seconds = sum(sum(seconds) for driver in drivers for seconds in driver.progress.seconds.values())
        assert recorded_seconds == pytest.approx(float(total_seconds["value"][1]))
        for name, metric in METRICS.items():
            series = ask(server, metric.exported + OWN_LABEL)
            assert series, name
            for sample in series:
                labels = sample["metric"]
                assert labels.keys() <= {"__name__", *RUN, *metric.labels} | OF_RAY
                assert labels["run"] == RUN_NAME
                assert labels["audit"] == "jobs"
                assert not any(store.location in value for value in labels.values())
    finally:
        metrics.set_queue(0, 0)
        for driver in drivers:
            driver.close()


def test_every_metric_has_a_panel_and_documentation() -> None:
    queried = {name for query in queries().values() for name in NAME.findall(query)}
    assert {metric.exported for metric in METRICS.values()} == queried
    page = (ROOT / "docs" / "monitoring.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| (.*) \|$", page, flags=re.M)
    assert [
        (
            metric.exported.removesuffix("_bucket"),
            ", ".join(f"`{label}`" for label in metric.labels) or "",
            metric.description,
        )
        for metric in METRICS.values()
    ] == rows


def test_without_a_cluster_ray_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray")
    Metrics(RUN_NAME).set_queue(1, 2)
    assert "ray" not in sys.modules


@pytest.mark.slow
def test_dashboard_requires_its_token_and_status_links_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    run = shell.start("run", "toys", "parts=2", "trouble=wait", "at=0", f"folder={tmp_path}", "--dashboard")
    shell.await_begun(1, run)
    pages = shell.json("status")["ray"]
    assert pages.keys() == {"driver", "nodes"}
    root = pages["driver"].partition("#")[0]
    assert b"<title>" in urllib.request.urlopen(root).read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{root}nodes?view=summary")
    assert refused.value.code == 401
    (line,) = [line for line in shell("status").stdout.splitlines() if "nodes" in line]
    assert pages["nodes"] in line
    shell.go()
    output = "".join(run.communicate(timeout=HANGING))
    assert run.returncode == 0, output
    token = re.search(rf"{re.escape(pages['driver'])}; it requires the token (\w+)", output)
    assert token is not None, output
    assert "ray" not in shell.json("status")
    assert not any(token[1] in path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("address", ["none", "10.0.0.1:6379"])
def test_dashboard_is_refused_without_a_private_cluster(tmp_path: Path, address: str) -> None:
    (line,) = (
        Shell(tmp_path)("run", "toys", "--dashboard", "--address", address, code=2).stderr.strip().splitlines()[-1:]
    )
    assert f"dashboard cannot be combined with address {address}" in line
