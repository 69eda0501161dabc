"""The manifests for KubeRay: its schemas take them, both describe one cluster, and pods get all that an audit needs.

KUBERAY_CRDS names the folder of KubeRay's custom resource definitions, ray.io_rayclusters.yaml and ray.io_rayjobs.yaml
(ray-operator/config/crd/bases in its repository); without it the test against the schemas is skipped.
"""

from __future__ import annotations

import copy
import os
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.shell import Shell

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = {"RayCluster": "raycluster.yaml", "RayJob": "rayjob.yaml"}


def read_manifest(kind: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "kubernetes" / MANIFESTS[kind]).read_text())
    return manifest


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    spec: dict[str, Any] = read_manifest("RayCluster")["spec"]
    return spec


def containers(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def forbid_unknown_fields(schema: Any) -> Any:
    """The structural schema as JSON Schema that refuses what it does not name, as `kubectl --validate=strict` does."""
    if isinstance(schema, list):
        return [forbid_unknown_fields(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    strict = {
        key: {name: forbid_unknown_fields(each) for name, each in value.items()}
        if key == "properties"
        else forbid_unknown_fields(value)
        for key, value in schema.items()
    }
    if "properties" in strict and not strict.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict


def schema_errors(manifest: dict[str, Any], folder: Path) -> list[str]:
    definition = yaml.safe_load((folder / f"ray.io_{manifest['kind'].lower()}s.yaml").read_text())
    [version] = [each for each in definition["spec"]["versions"] if manifest["apiVersion"] == f"ray.io/{each['name']}"]
    schema = forbid_unknown_fields(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    errors = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_kuberay_knows_every_field(kind: str) -> None:
    if not (folder := os.environ.get("KUBERAY_CRDS")):
        pytest.skip("KUBERAY_CRDS names no folder of KubeRay's custom resource definitions")
    manifest = read_manifest(kind)
    assert schema_errors(manifest, Path(folder)) == []
    wrong = copy.deepcopy(manifest)
    spec = wrong["spec"] if kind == "RayCluster" else wrong["spec"]["rayClusterSpec"]
    spec["workerGroupSpecs"][0]["maxReplicas"] = "eight"
    spec["headGroupSpec"]["templates"] = {}
    assert len(schema_errors(wrong, Path(folder))) == 2


def test_a_job_starts_the_cluster_that_can_be_had_by_itself(cluster: dict[str, Any]) -> None:
    job = read_manifest("RayJob")["spec"]
    assert cluster == job["rayClusterSpec"]
    assert job["shutdownAfterJobFinishes"]
    assert job["backoffLimit"] >= 1


def test_the_command_of_a_job_is_one_that_engram_plans(tmp_path: Path) -> None:
    program, run, *arguments = shlex.split(read_manifest("RayJob")["spec"]["entrypoint"])
    assert (program, run, arguments[-2:]) == ("engram", "run", ["--address", "auto"])
    planned = Shell(tmp_path)("plan", *arguments[:-2])
    assert planned.returncode == 0, planned.stderr


def test_the_head_computes_nothing_and_gpu_pods_come_with_the_jobs(cluster: dict[str, Any]) -> None:
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["enableInTreeAutoscaling"]
    assert 0 < cluster["autoscalerOptions"]["idleTimeoutSeconds"] <= 1800
    for group in cluster["workerGroupSpecs"]:
        assert (group["minReplicas"], group["replicas"]) == (0, 0)
        [container] = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] >= 1


def test_all_pods_have_the_image_and_environment_of_an_audit_and_no_secret(cluster: dict[str, Any]) -> None:
    assert len({container["image"] for container in containers(cluster)}) == 1
    for container in containers(cluster):
        environment = {each["name"]: each["value"] for each in container["env"]}
        assert environment["ENGRAM_STORE"].startswith("s3://")
        assert {"AWS_REGION", "ENGRAM_RUNS", "MLFLOW_TRACKING_URI", "RAY_USAGE_STATS_ENABLED"} <= set(environment)
        assert [name for name in environment if re.search("TOKEN|SECRET|KEY|PASSWORD", name)] == []
    assert cluster["authOptions"] == {"mode": "token"}


def test_the_image_has_the_ray_of_the_manifests_and_what_kuberay_calls_in_it(cluster: dict[str, Any]) -> None:
    locked = re.search(r"^ray==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked
    assert cluster["rayVersion"] == locked[1]
    assert "ray[default," in (ROOT / "pyproject.toml").read_text()  # its dashboard answers the probes, and takes jobs
    assert "wget" in (ROOT / "Dockerfile").read_text()
