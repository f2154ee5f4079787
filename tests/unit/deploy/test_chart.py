"""The Helm chart has every setting, and what Helm makes of it is as the schemas and the restricted rules say."""

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import SecretStr

from proxy.settings import ProxySettings
from slotferry import __version__
from slots.settings import Settings
from tests import helm, kubernetes
from topom.term.settings import TopomSettings

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "slotferry"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
CLASSES: dict[str, type[Settings]] = {"topom": TopomSettings, "proxy": ProxySettings}
BOTH = pytest.mark.parametrize("part", CLASSES)
OWN_DEFAULTS = {
    "topom": {"listen", "data", "store", "store_servers"},
    "proxy": {"listen", "metrics", "topom", "table_file"},
}
"""Settings whose default in the chart is another than the process's."""
MORE_SECRETS = {"users"}
"""Settings that have secrets within."""
EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example/slotferry", "tag": "1"},
    "imagePullSecrets": [{"name": "registry"}],
    "topom": {
        "replicas": 1,
        "volume": {"enabled": True, "storageClassName": "fast"},
        "settings": {"store": "sqlite", "store_servers": "", "url": "http://topom.example:8380"},
        "secrets": {"token": {"name": "a", "key": "b"}, "redis_password": {"name": "c", "key": "d"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "redis", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "env": [{"name": "TZ", "value": "Europe/Paris"}],
        "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    },
    "proxy": {
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        "settings": {
            "tls_listen": "0.0.0.0:6390",
            "tls_certificate": "/tls/tls.crt",
            "tls_key": "/tls/tls.key",
            "cluster_mode": True,
            "workers": 3,
            "topom": ["http://topom.example:8380"],
            "any_server_commands": ["FT._LIST", 'A"B\\C<&'],
            "users": [{"name": "reports", "password_sha256": "ab" * 32, "databases": [0, 3], "read_only": True}],
        },
        "env": [{"name": "TZ", "value": "Europe/Paris"}],
        "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    },
}
TOKEN = "0123456789abcdef" * 2
SEVERAL = pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as it is", "with everything"])


def is_secret(name: str, annotation: Any) -> bool:
    return annotation is SecretStr or SecretStr in get_args(annotation) or name in MORE_SECRETS


def settings_file(objects: list[dict[str, Any]], part: str) -> str:
    [text] = [one["data"][f"{part}.toml"] for one in objects if f"{part}.toml" in one.get("data", {})]
    return str(text)


def variables(objects: list[dict[str, Any]], part: str) -> dict[str, Any]:
    [container] = kubernetes.pods(objects)[part]["containers"]
    return {one["name"]: one for one in container["env"]}


def told_by_kubernetes(variables: dict[str, Any]) -> dict[str, str]:
    """What a pod's variables are, with a name and an address for it."""
    known = {"metadata.name": "shop-topom-0", "status.podIP": "10.1.2.3", "requests.cpu": "1"}
    told: dict[str, str] = {}
    for name, one in variables.items():
        if "value" in one:
            told[name] = one["value"].replace("$(POD)", told.get("POD", ""))
        else:
            [source] = one["valueFrom"].values()
            told[name] = known[source.get("fieldPath") or source["resource"]]
    return told


@BOTH
def test_it_has_every_setting(part: str) -> None:
    fields = CLASSES[part].model_fields
    secrets = [name for name, field in fields.items() if is_secret(name, field.annotation)]
    assert list(VALUES[part]["secrets"]) == secrets, "secrets come from Secrets"
    assert list(VALUES[part]["settings"]) == [name for name in fields if name not in secrets], "in the class's order"


@BOTH
def test_defaults_are_those_of_the_process(part: str) -> None:
    fields = CLASSES[part].model_fields
    differing = {
        name
        for name, value in VALUES[part]["settings"].items()
        if json.loads(json.dumps(fields[name].get_default(call_default_factory=True), default=str)) != value
    }
    assert differing == OWN_DEFAULTS[part]


@BOTH
def test_pods_are_held_to_the_same_as_in_the_file_without_helm(part: str) -> None:
    plain = kubernetes.pods(kubernetes.documents((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")))
    pod = kubernetes.pods(helm.objects(CHART, {}))[part]
    for name in ("securityContext", "terminationGracePeriodSeconds", "automountServiceAccountToken"):
        assert pod[name] == plain[part][name]
    for name in ("securityContext", "resources", "livenessProbe", "lifecycle"):
        assert pod["containers"][0].get(name) == plain[part]["containers"][0].get(name)
    assert (
        pod["containers"][0]["readinessProbe"]["httpGet"] == plain[part]["containers"][0]["readinessProbe"]["httpGet"]
    )


@SEVERAL
def test_what_it_makes_is_as_the_schemas_say(values: dict[str, Any], tmp_path: Path) -> None:
    made = tmp_path / "made.yaml"
    made.write_text(helm.render(CHART, values), encoding="utf-8")
    kubernetes.validate(made)


@SEVERAL
@BOTH
def test_pods_keep_the_restricted_rules(values: dict[str, Any], part: str) -> None:
    assert kubernetes.faults(kubernetes.pods(helm.objects(CHART, values))[part]) == []


@SEVERAL
@BOTH
def test_a_process_understands_its_settings(
    values: dict[str, Any], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = helm.objects(CHART, values)
    for name in [name for name in os.environ if name.startswith("SLOTFERRY_")]:
        monkeypatch.delenv(name)
    tokens = {"token": f"{TOKEN}\n", "tokens": "proxy:fleet:a-secret-of-the-proxies\n", "redis_password": "inner"}
    for name, content in tokens.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for name, value in told_by_kubernetes(variables(objects, part)).items():
        monkeypatch.setenv(name, value.replace("/run/secrets/slotferry", str(tmp_path)))
    text = settings_file(objects, part)
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    loaded = CLASSES[part].load(tmp_path / "settings.toml")
    told = tomllib.loads(text)
    assert set(told) >= set(VALUES[part]["settings"])
    given = VALUES[part]["settings"] | values.get(part, {}).get("settings", {})
    if not given.get("topom", True):
        given["topom"] = [f"http://shop-topom-{number}.shop-topom:8380" for number in range(3)]
    users = given.pop("users", [])
    assert {name: told[name] for name in given} == given
    assert loaded.model_dump(mode="json", include={"listen", "log_level"}) == {
        "listen": given["listen"],
        "log_level": "info",
    }
    assert told.get("users", []) == users
    assert loaded.model_dump()["token"].get_secret_value() == TOKEN


@SEVERAL
@BOTH
def test_secrets_are_files_that_come_from_secrets(values: dict[str, Any], part: str) -> None:
    objects = helm.objects(CHART, values)
    [secrets] = [one["projected"] for one in kubernetes.pods(objects)[part]["volumes"] if one["name"] == "secrets"]
    found = {
        one["secret"]["items"][0]["path"]: (one["secret"]["name"], one["secret"]["items"][0]["key"])
        for one in secrets["sources"]
    }
    given = VALUES[part]["secrets"] | values.get(part, {}).get("secrets", {})
    assert found == {name: (said["name"], said["key"]) for name, said in given.items() if said}
    assert secrets["defaultMode"] & 0o7 == 0, "nobody but the process's group reads them"
    told = variables(objects, part)
    [container] = kubernetes.pods(objects)[part]["containers"]
    [mount] = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "secrets"]
    for name in CLASSES[part].secrets():
        variable = f"SLOTFERRY_{part.upper()}_{name.upper()}_FILE"
        assert told.get(variable, {}).get("value") == (f"{mount}/{name}" if name in found else None)
    assert not found.keys() & tomllib.loads(settings_file(objects, part)).keys()
    if part == "topom":
        assert told["SLOTFERRY_TOKEN_FILE"]["value"] == f"{mount}/token"


def test_what_a_pod_knows_of_itself_is_told_unless_it_is_set() -> None:
    usual, changed = helm.objects(CHART, {}), helm.objects(CHART, EVERYTHING)
    assert variables(usual, "topom")["SLOTFERRY_TOPOM_URL"]["value"] == "http://$(POD).shop-topom:8380"
    assert "SLOTFERRY_PROXY_WORKERS" in variables(usual, "proxy")
    assert "SLOTFERRY_TOPOM_URL" not in variables(changed, "topom")
    assert "SLOTFERRY_PROXY_WORKERS" not in variables(changed, "proxy")
    assert "SLOTFERRY_PROXY_CLUSTER_ANNOUNCE_HOST" not in variables(usual, "proxy")
    address = variables(changed, "proxy")["SLOTFERRY_PROXY_CLUSTER_ANNOUNCE_HOST"]["valueFrom"]["fieldRef"]
    assert address == {"fieldPath": "status.podIP"}


def test_ports_follow_the_settings() -> None:
    objects = helm.objects(CHART, {"topom": {"settings": {"listen": "0.0.0.0:9000"}}})
    [container] = kubernetes.pods(objects)["topom"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 9000}]
    assert "http://shop-topom-0.shop-topom:9000" in tomllib.loads(settings_file(objects, "proxy"))["topom"]
    both = helm.objects(CHART, EVERYTHING)
    [service] = [one for one in both if one["kind"] == "Service" and one["metadata"]["name"] == "shop"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["redis", "redis-tls"]


def test_pods_are_made_anew_for_other_settings() -> None:
    def marks(values: dict[str, Any]) -> dict[str, str]:
        templates = [
            one["spec"]["template"] for one in helm.objects(CHART, values) if "template" in one.get("spec", {})
        ]
        return {
            one["metadata"]["labels"]["app.kubernetes.io/component"]: one["metadata"]["annotations"][
                "slotferry/settings"
            ]
            for one in templates
        }

    usual = marks({})
    assert marks({"topom": {"settings": {"ha": "topom"}}})["topom"] != usual["topom"]
    assert marks({"topom": {"settings": {"ha": "topom"}}})["proxy"] == usual["proxy"]
    assert marks({"topom": {"replicas": 5}})["proxy"] != usual["proxy"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"topom": {"settings": {"store": "sqlite"}}}, "set topom.replicas to 1"),
        ({"topom": {"replicas": 1, "settings": {"store": "sqlite"}}}, "set topom.volume.enabled"),
        ({"topom": {"settings": {"store_servers": ""}}}, "store_servers is empty"),
        ({"proxy": {"settings": {"metrics": ""}}}, "metrics is empty"),
        ({"proxy": {"settings": {"listen": ""}}}, "no client could connect"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(helm.Refused, match=why):
        helm.render(CHART, values)


def test_its_version_is_the_projects() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


def test_values_say_where_each_setting_is_explained() -> None:
    head = (CHART / "values.yaml").read_text(encoding="utf-8").split("\n\n")[0]
    assert [path for path in re.findall(r"configs/\w+\.toml", head) if not (ROOT / path).exists()] == []
    assert len(re.findall(r"configs/\w+\.toml", head)) == 2


def test_where_topom_has_a_certificate_everything_comes_by_tls() -> None:
    files = {"tls_certificate": "/tls/tls.crt", "tls_key": "/tls/tls.key", "tls_ca": "/tls/ca.crt"}
    values = {"topom": {"settings": files}, "proxy": {"settings": {"topom_tls_ca": "/tls/ca.crt"}}}
    rendered = helm.objects(CHART, values)
    told = variables(rendered, "topom")
    assert told["SLOTFERRY_TOPOM_URL"]["value"] == "https://$(POD).shop-topom:8380"
    assert told["SLOTFERRY_TOPOM"]["value"] == "https://$(POD).shop-topom:8380"
    assert told["SLOTFERRY_TLS_CA"]["value"] == "/tls/ca.crt"
    assert "https://shop-topom-0.shop-topom:8380" in tomllib.loads(settings_file(rendered, "proxy"))["topom"]
    schemes = {}
    for part in CLASSES:
        [container] = kubernetes.pods(rendered)[part]["containers"]
        schemes[part] = {
            container[probe]["httpGet"].get("scheme", "HTTP") for probe in ("livenessProbe", "readinessProbe")
        }
    assert schemes == {"topom": {"HTTPS"}, "proxy": {"HTTP"}}
