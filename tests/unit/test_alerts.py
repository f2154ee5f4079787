"""The alerts for Prometheus: each goes off when it should, by Prometheus's own judgement, and none when all is well."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from proxy.supervisor.workermetrics import WORKER_METRICS
from tests import promtool

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
MINUTES = 150
TOPOM, PROXY = 'job="topom",instance="{}"', 'job="proxy",instance="{}"'

WELL = {
    "slotferry_topom_leads{a}": "1x150",
    "slotferry_topom_leads{b}": "0x150",
    "slotferry_topom_term{a}": "7x150",
    'slotferry_topom_store_errors_total{a,operation="write",kind="failed"}': "0x150",
    'slotferry_topom_store_errors_total{a,operation="write",kind="conflict"}': "0+5x150",
    'slotferry_topom_loop_failures_total{a,loop="detector"}': "2x150",
    'slotferry_topom_servers{a,condition="alive"}': "6x150",
    'slotferry_topom_servers{a,condition="failed"}': "0x150",
    "slotferry_topom_masters_not_replaced{a}": "0x150",
    'slotferry_topom_master_changes_total{a,kind="failover",outcome="done"}': "1x150",
    'slotferry_topom_master_changes_total{a,kind="planned",outcome="done"}': "0+1x150",
    "slotferry_topom_servers_twice{a}": "0x150",
    'slotferry_topom_proxies{a,state="lost"}': "0x150",
    'slotferry_topom_proxies{a,state="online"}': "2x150",
    "slotferry_topom_protection{a}": "0x150",
    "slotferry_topom_protection_lifted{a}": "0x150",
    "slotferry_topom_paused{a}": "1x50 0x100",
    'slotferry_topom_slots{a,state="offline"}': "0x150",
    'slotferry_topom_slots{a,state="prepared"}': "0x150",
    'slotferry_topom_slots{a,state="rest"}': "1024x150",
    "slotferry_topom_batches{a}": "2x150",
    "slotferry_topom_copies_not_level{a}": "0x150",
    "slotferry_topom_keys_moved_total{a}": "0+1000x150",
    "slotferry_topom_slots_moved_total{a}": "0+1x150",
    'slotferry_topom_build_info{a,version="1"}': "1x150",
    'slotferry_topom_build_info{b,version="1"}': "1x150",
    "slotferry_proxy_topom_connected{x}": "1x150",
    "slotferry_proxy_epoch{x}": "0+20x150",
    "slotferry_proxy_epoch{y}": "0+20x150",
    "slotferry_proxy_workers{x}": "2x150",
    "slotferry_proxy_workers_ready{x}": "2x150",
    "slotferry_proxy_worker_restarts_total{x}": "3x150",
    "slotferry_proxy_groups_stood_down{x}": "0x150",
    "slotferry_proxy_servers_with_leftover_connections{x}": "0x150",
    'slotferry_proxy_held{x,worker="0"}': "0x150",
    'slotferry_proxy_refused_total{x,worker="0"}': "4x150",
    'slotferry_proxy_requests_total{x,worker="0"}': "0+60000x150",
    'slotferry_proxy_errors_total{x,worker="0"}': "0+600x150",
    'slotferry_proxy_authentications_failed_total{x,worker="0"}': "0+6x150",
    'slotferry_proxy_command_seconds_bucket{x,command="get",le="0.01"}': "0+60000x150",
    'slotferry_proxy_command_seconds_bucket{x,command="get",le="+Inf"}': "0+60000x150",
    'slotferry_proxy_command_seconds_bucket{x,command="blpop",le="0.01"}': "0x150",
    'slotferry_proxy_command_seconds_bucket{x,command="blpop",le="+Inf"}': "0+60000x150",
}
"""Series by their name and labels, with their values minute by minute. ``a`` and ``b`` are topoms, ``x`` and ``y``
proxies."""

ILL = {
    "SlotferryNoTopom": {"slotferry_topom_leads{a}": "_x150", "slotferry_topom_leads{b}": "_x150"},
    "SlotferryNoLeader": {"slotferry_topom_leads{a}": "0x150"},
    "SlotferryLeadersChange": {"slotferry_topom_term{a}": "7+1x150"},
    "SlotferryStoreFails": {'slotferry_topom_store_errors_total{a,operation="write",kind="failed"}': "0+2x150"},
    "SlotferryLoopFailed": {'slotferry_topom_loop_failures_total{a,loop="detector"}': "0+1x150"},
    "SlotferryServersDown": {'slotferry_topom_servers{a,condition="suspected"}': "1x150"},
    "SlotferryMasterNotReplaced": {"slotferry_topom_masters_not_replaced{a}": "1x150"},
    "SlotferryFailover": {
        'slotferry_topom_master_changes_total{a,kind="failover",outcome="done"}': "0x145 1x5",
    },
    "SlotferryMasterChangeFailed": {
        'slotferry_topom_master_changes_total{a,kind="forced",outcome="failed"}': "0x145 1x5",
    },
    "SlotferryServerTwice": {"slotferry_topom_servers_twice{a}": "1x150"},
    "SlotferryProxyLost": {'slotferry_topom_proxies{a,state="lost"}': "1x150"},
    "SlotferryProtection": {"slotferry_topom_protection{a}": "1x150"},
    "SlotferryProtectionLifted": {"slotferry_topom_protection_lifted{a}": "1x150"},
    "SlotferryPaused": {"slotferry_topom_paused{a}": "0x50 1x100"},
    "SlotferrySlotsOffline": {'slotferry_topom_slots{a,state="offline"}': "3x150"},
    "SlotferrySlotsLocked": {'slotferry_topom_slots{a,state="prepared"}': "3x150"},
    "SlotferryMoveStands": {
        "slotferry_topom_keys_moved_total{a}": "5x150",
        "slotferry_topom_slots_moved_total{a}": "5x150",
    },
    "SlotferryCopyNotLevel": {"slotferry_topom_copies_not_level{a}": "0x147 1x3"},
    "SlotferryReplicaDiffers": {'slotferry_topom_digest_differences{a,server="127.0.0.1:1"}': "7x150"},
    "SlotferryVersionsDiffer": {
        'slotferry_topom_build_info{b,version="1"}': "_x150",
        'slotferry_topom_build_info{b,version="2"}': "1x150",
    },
    "SlotferryProxyWithoutTopom": {"slotferry_proxy_topom_connected{x}": "0x150"},
    "SlotferryProxyBehind": {"slotferry_proxy_epoch{y}": "0+20x100 2000x50"},
    "SlotferryWorkersMissing": {"slotferry_proxy_workers_ready{x}": "1x150"},
    "SlotferryWorkersDie": {"slotferry_proxy_worker_restarts_total{x}": "0x145 1x5"},
    "SlotferryGroupsNotServed": {"slotferry_proxy_groups_stood_down{x}": "1x150"},
    "SlotferryLeftoverConnections": {"slotferry_proxy_servers_with_leftover_connections{x}": "1x150"},
    "SlotferryRequestsHeld": {'slotferry_proxy_held{x,worker="0"}': "5x150"},
    "SlotferryClientsRefused": {'slotferry_proxy_refused_total{x,worker="0"}': "0x147 9x3"},
    "SlotferryErrors": {'slotferry_proxy_errors_total{x,worker="0"}': "0+6000x150"},
    "SlotferryLoginsFail": {'slotferry_proxy_authentications_failed_total{x,worker="0"}': "0+600x150"},
    "SlotferrySlow": {
        'slotferry_proxy_command_seconds_bucket{x,command="get",le="0.01"}': "0x150",
        'slotferry_proxy_command_seconds_bucket{x,command="get",le="0.5"}': "0+60000x150",
    },
}
"""For each alert, what is other than in :data:`WELL` when it goes off."""


def series(values: dict[str, str]) -> list[dict[str, str]]:
    """As promtool wants them."""

    def full(name: str) -> str:
        return re.sub(
            r"\{(\w)\b",
            lambda match: "{" + (TOPOM if match[1] in "ab" else PROXY).format(match[1]),
            name,
        )

    return [{"series": full(name), "values": shown} for name, shown in values.items()]


def firing(values: dict[str, str], alerts: dict[str, bool]) -> dict[str, object]:
    """A test of promtool: whether each of these alerts goes off at the end."""
    return {
        "interval": "1m",
        "input_series": series(values),
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) > bool 0',
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
            for name, fires in alerts.items()
        ],
    }


@pytest.mark.long
async def test_each_goes_off_when_it_should_and_none_when_all_is_well(tmp_path: Path) -> None:
    tests = [firing(WELL, dict.fromkeys(ILL, False))]
    tests += [firing(WELL | changed, {name: True}) for name, changed in ILL.items()]
    file = tmp_path / "alerts.test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    await asyncio.to_thread(promtool.run, "test", "rules", str(file))


def test_every_alert_is_tried_and_leads_to_what_to_do() -> None:
    text = ALERTS.read_text()
    assert re.findall(r"^ +- alert: (\w+)$", text, re.MULTILINE) == list(ILL)
    runbooks = re.findall(r"^ +runbook: (docs/[\w-]+\.md)#(\S+)$", text, re.MULTILINE)
    assert len(runbooks) == len(ILL)
    for page, anchor in runbooks:
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_alerts_name_figures_that_there_are() -> None:
    sources = "".join(
        path.read_text()
        for path in (
            *(ROOT / "proxy").rglob("*metrics.py"),
            *(ROOT / "topom").rglob("*.py"),
            ROOT / "proxy" / "supervisor" / "figures.py",
            ROOT / "slots" / "version.py",
        )
    )
    named = set(re.findall(r"slotferry_(?:topom|proxy)_(\w+?)(?:_total|_bucket)?\b", ALERTS.read_text()))
    assert len(named) > 20
    for name in named - WORKER_METRICS.keys() - {"build_info"}:
        assert re.search(rf'"(?:slotferry_(?:topom|proxy)_)?{name}"|}}{name}"', sources), name


def test_what_prometheus_objects_to_is_seen() -> None:
    with pytest.raises(AssertionError, match="help"):
        promtool.check("# TYPE slotferry_requests counter\nslotferry_requests 1\n")
