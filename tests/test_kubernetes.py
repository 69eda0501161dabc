"""The manifests for KubeRay: valid by its schemas, with one cluster in both, and pods with everything an audit needs.

KUBERAY_CRDS names the folder of KubeRay's custom resource definitions, ray.io_rayclusters.yaml and ray.io_rayjobs.yaml
(ray-operator/config/crd/bases in its repository). Without it, the test with the schemas is skipped.
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
    result = []
    for group in groups:
        result.extend(group["template"]["spec"]["containers"])
    return result


def forbid_unknown_fields(schema: Any) -> Any:
    """The structural schema as JSON Schema without unknown fields, like `kubectl --validate=strict`."""
    if isinstance(schema, list):
        return [forbid_unknown_fields(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    strict = {}
    for key, value in schema.items():
        strict[key] = (
            {name: forbid_unknown_fields(element) for name, element in value.items()}
            if key == "properties"
            else forbid_unknown_fields(value)
        )
    if "properties" in strict and not strict.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict


def schema_errors(manifest: dict[str, Any], folder: Path) -> list[str]:
    definition = yaml.safe_load((folder / f"ray.io_{manifest['kind'].lower()}s.yaml").read_text())
    [version] = [
        entry for entry in definition["spec"]["versions"] if manifest["apiVersion"] == f"ray.io/{entry['name']}"
    ]
    schema = forbid_unknown_fields(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    errors = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    result = []
    for error in errors:
        result.append(f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")
    return result


@pytest.mark.parametrize("kind", MANIFESTS)
def test_kuberay_knows_every_field(kind: str) -> None:
    if not (folder := os.environ.get("KUBERAY_CRDS")):
        pytest.skip("KUBERAY_CRDS names no folder of KubeRay's custom resource definitions")
    manifest = read_manifest(kind)
    assert schema_errors(manifest, Path(folder)) == []
    invalid = copy.deepcopy(manifest)
    spec = invalid["spec"] if kind == "RayCluster" else invalid["spec"]["rayClusterSpec"]
    spec["workerGroupSpecs"][0]["maxReplicas"] = "eight"
    spec["headGroupSpec"]["templates"] = {}
    assert len(schema_errors(invalid, Path(folder))) == 2


def test_job_starts_the_same_cluster(cluster: dict[str, Any]) -> None:
    job = read_manifest("RayJob")["spec"]
    assert cluster == job["rayClusterSpec"]
    assert job["shutdownAfterJobFinishes"]
    assert job["backoffLimit"] >= 1


def test_command_of_a_job_can_be_planned(tmp_path: Path) -> None:
    program, run, *arguments = shlex.split(read_manifest("RayJob")["spec"]["entrypoint"])
    assert program == "engram"
    assert run == "run"
    assert arguments[-2:] == ["--address", "auto"]
    planning = Shell(tmp_path)("plan", *arguments[:-2])
    assert planning.returncode == 0, planning.stderr


def test_head_computes_nothing_and_gpu_pods_scale(cluster: dict[str, Any]) -> None:
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["enableInTreeAutoscaling"]
    assert 0 < cluster["autoscalerOptions"]["idleTimeoutSeconds"] <= 1800
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] == 0
        assert group["replicas"] == 0
        [container] = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] >= 1


def test_pods_have_image_and_environment_without_secrets(cluster: dict[str, Any]) -> None:
    assert len({container["image"] for container in containers(cluster)}) == 1
    for container in containers(cluster):
        environment = {}
        for variable in container["env"]:
            environment[variable["name"]] = variable["value"]
        assert environment["ENGRAM_STORE"].startswith("s3://")
        assert set(environment) >= {"AWS_REGION", "ENGRAM_RUNS", "MLFLOW_TRACKING_URI", "RAY_USAGE_STATS_ENABLED"}
        assert [name for name in environment if re.search("TOKEN|SECRET|KEY|PASSWORD", name)] == []
    assert cluster["authOptions"] == {"mode": "token"}


def test_image_has_the_manifests_ray_and_kuberays_tools(cluster: dict[str, Any]) -> None:
    locked = re.search(r"^ray==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked
    assert cluster["rayVersion"] == locked[1]
    assert "ray[default," in (ROOT / "pyproject.toml").read_text()  # its dashboard answers the probes, and takes jobs
    assert "wget" in (ROOT / "Dockerfile").read_text()
