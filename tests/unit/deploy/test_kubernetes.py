"""``deploy/kubernetes.yaml`` is as Kubernetes's schemas say, and its pods may do no more than they need."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.settings import ProxySettings
from tests import kubernetes

FILE = Path(__file__).parents[3] / "deploy" / "kubernetes.yaml"
DOCKERFILE = FILE.with_name("Dockerfile")
OBJECTS = kubernetes.documents(FILE.read_text(encoding="utf-8"))
PODS = kubernetes.pods(OBJECTS)
BOTH = pytest.mark.parametrize("part", ["topom", "proxy"])


def container(part: str) -> dict[str, Any]:
    [only] = PODS[part]["containers"]
    return dict(only)


def test_it_is_as_the_schemas_say() -> None:
    kubernetes.validate(FILE)


def test_a_name_that_no_schema_has_is_found(tmp_path: Path) -> None:
    odd = tmp_path / "odd.yaml"
    odd.write_text(FILE.read_text(encoding="utf-8").replace("runAsNonRoot:", "runAsNobody:"), encoding="utf-8")
    with pytest.raises(AssertionError, match="runAsNobody"):
        kubernetes.validate(odd)


@BOTH
def test_a_pod_keeps_the_restricted_rules(part: str) -> None:
    assert kubernetes.faults(PODS[part]) == []


def _set(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(pod: dict[str, Any]) -> None:
        place: Any = pod
        for step in path[:-1]:
            place = place.setdefault(step, {}) if isinstance(step, str) else place[step]
        place[path[-1]] = to

    return change


BREACHES = {
    "may run as root": _set("securityContext", "runAsNonRoot", to=False),
    "runs as root": _set("containers", 0, "securityContext", "runAsUser", to=0),
    "no seccomp profile": _set("securityContext", "seccompProfile", to={"type": "Unconfined"}),
    "is privileged": _set("containers", 0, "securityContext", "privileged", to=True),
    "may get more privileges": _set("containers", 0, "securityContext", "allowPrivilegeEscalation", to=True),
    "has capabilities": _set("containers", 0, "securityContext", "capabilities", "add", to=["NET_ADMIN"]),
    "has another /proc": _set("containers", 0, "securityContext", "procMount", to="Unmasked"),
    "may write to its image": _set("containers", 0, "securityContext", "readOnlyRootFilesystem", to=False),
    "listens at the host": _set("containers", 0, "ports", 0, "hostPort", to=6380),
    "no limits of memory": _set("containers", 0, "resources", "limits", to={"cpu": "1"}),
    "no requests of cpu": _set("containers", 0, "resources", "requests", to={"memory": "1Gi"}),
    "hostNetwork": _set("hostNetwork", to=True),
    "token of the cluster": _set("automountServiceAccountToken", to=True),
    "sysctls": _set("securityContext", "sysctls", to=[{"name": "net.core.somaxconn", "value": "1"}]),
    "not allowed": _set("volumes", to=[{"name": "host", "hostPath": {"path": "/"}}]),
}


@pytest.mark.parametrize("fault", BREACHES)
def test_a_breach_of_a_rule_is_found(fault: str) -> None:
    pod = copy.deepcopy(PODS["proxy"])
    BREACHES[fault](pod)
    assert [found for found in kubernetes.faults(pod) if fault in found]


@BOTH
def test_requests_go_by_readyz_and_restarts_by_livez(part: str) -> None:
    """A proxy that was fenced, and a topom without its store, are not ready but alive: a restart would mend nothing."""
    port = {"topom": "http", "proxy": "metrics"}[part]
    probes = {name: container(part)[name]["httpGet"] for name in ("readinessProbe", "livenessProbe")}
    assert probes == {
        "readinessProbe": {"path": "/readyz", "port": port},
        "livenessProbe": {"path": "/livez", "port": port},
    }
    alive = container(part)["livenessProbe"]
    assert alive["failureThreshold"] * alive["periodSeconds"] >= 60
    assert port in {one["name"] for one in container(part)["ports"]}


@BOTH
def test_a_process_can_write_where_its_settings_say(part: str) -> None:
    """Its root file system is read-only."""
    written = {
        value
        for name, value in kubernetes.environment(container(part)).items()
        if name in ("SLOTFERRY_TOPOM_DATA", "SLOTFERRY_PROXY_TABLE_FILE")
    }
    mounted = {one["mountPath"]: one["name"] for one in container(part)["volumeMounts"]}
    volumes = {one["name"] for one in PODS[part]["volumes"]}
    assert written
    assert all(any(path.startswith(f"{folder}/") for folder in mounted) for path in written)
    assert set(mounted.values()) == volumes


@BOTH
def test_a_process_finds_its_secrets_in_files_of_its_own(part: str) -> None:
    told = kubernetes.environment(container(part))
    [mount] = [one["mountPath"] for one in container(part)["volumeMounts"] if one["name"] == "secrets"]
    [volume] = [one["secret"] for one in PODS[part]["volumes"] if one["name"] == "secrets"]
    files = {value for name, value in told.items() if name.endswith("_FILE") and "TOKEN" in name}
    assert {f"{mount}/{item['path']}" for item in volume["items"]} == files
    assert {item["key"] for item in volume["items"]} == {"topom": {"token", "tokens"}, "proxy": {"proxy-token"}}[part]
    assert volume["defaultMode"] & 0o7 == 0, "nobody but the process's group reads them"


@BOTH
def test_a_pod_runs_as_the_user_of_the_image(part: str) -> None:
    [user] = re.findall(r"^USER (\d+)$", DOCKERFILE.read_text(encoding="utf-8"), re.M)
    context = PODS[part]["securityContext"]
    assert {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user)}


def test_a_proxy_closes_its_largest_sessions_before_its_memory_is_used_up() -> None:
    resources = container("proxy")["resources"]
    workers = kubernetes.amount(resources["requests"]["cpu"])
    assert kubernetes.amount(resources["limits"]["memory"]) >= 1.5 * workers * ProxySettings().sessions_limit_bytes
