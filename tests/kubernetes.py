"""What is said to Kubernetes: the manifests, their schema, and the rules of the pod security standard "restricted".

The rules are read here again, and somewhat more is asked: a root file system that is read-only, requests and limits,
and no token of the cluster.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

VOLUMES = ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
"""Kinds of volumes that the standard allows."""


def documents(text: str) -> list[dict[str, Any]]:
    """The objects that a file describes."""
    return [document for document in yaml.safe_load_all(text) if document is not None]


def validate(path: Path) -> None:
    """Have ``kubernetes-validate --strict`` find each object of a file as its schema says."""
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count(" passed ") == len(documents(path.read_text(encoding="utf-8"))) > 0, said


def pods(objects: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pods that the objects make, by what they run, which a label says."""
    templates = [made["spec"]["template"] for made in objects if "template" in made.get("spec", {})]
    labels = [template["metadata"]["labels"] for template in templates]
    parts = [found.get("part") or found["app.kubernetes.io/component"] for found in labels]
    return dict(zip(parts, [template["spec"] for template in templates], strict=True))


def faults(pod: dict[str, Any]) -> list[str]:
    """What of a pod breaks a rule."""
    return [*_pod_faults(pod), *(fault for one in _containers(pod) for fault in _container_faults(pod, one))]


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for kind in ("initContainers", "containers", "ephemeralContainers") for one in pod.get(kind, [])]


def _pod_faults(pod: dict[str, Any]) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield f"{name} is true"
    if pod.get("automountServiceAccountToken", True):
        yield "the token of the cluster is mounted"
    if pod.get("securityContext", {}).get("sysctls"):
        yield "sysctls are set"
    for volume in pod.get("volumes", []):
        if not set(volume) <= {"name", *VOLUMES}:
            yield f"the volume {volume['name']} is of a kind that is not allowed"


def _container_faults(pod: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    name, own = container["name"], container.get("securityContext", {})
    context = pod.get("securityContext", {}) | own
    if context.get("runAsNonRoot") is not True:
        yield f"{name} may run as root"
    if context.get("runAsUser", 1) == 0:
        yield f"{name} runs as root"
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield f"{name} has no seccomp profile"
    if own.get("privileged"):
        yield f"{name} is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name} may get more privileges"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []) or not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}:
        yield f"{name} has capabilities"
    if own.get("procMount", "Default") != "Default":
        yield f"{name} has another /proc"
    if own.get("readOnlyRootFilesystem") is not True:
        yield f"{name} may write to its image"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield f"{name} listens at the host"
    for kind in ("requests", "limits"):
        for what in ("cpu", "memory"):
            if what not in container.get("resources", {}).get(kind, {}):
                yield f"{name} has no {kind} of {what}"


def environment(container: dict[str, Any]) -> dict[str, Any]:
    """A container's variables that have a value of their own."""
    return {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}


def amount(quantity: str) -> float:
    """A quantity of Kubernetes as a number: of cores, or of bytes."""
    units = {"m": 1e-3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    unit = next((unit for unit in units if quantity.endswith(unit)), "")
    return float(quantity.removesuffix(unit)) * units.get(unit, 1)
