"""The container's files for Dynamo: that they agree with each other, and with the page.

tests/dynamo/test_compose.py runs the processes of the compose file, without containers.
"""

import re
from typing import Any

import pytest
import yaml

from gptoss_local.cli import worker
from tests.dynamo.packages import PACKAGES
from tests.installers.container_files import (
    FOLDER,
    MARGIN_S,
    added_on_the_page,
    image_variables,
    last,
    read,
)

pytestmark = pytest.mark.quick

COMPOSE = read("compose.dynamo.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]
TEXT = (FOLDER / "kubernetes.dynamo.yaml").read_text(encoding="utf-8")
OBJECTS: list[Any] = list(yaml.safe_load_all(TEXT))
WORKLOADS = {
    each["metadata"]["name"]: each["spec"] for each in OBJECTS if "template" in each.get("spec", {})
}
"""Deployments and the stateful set."""
PORT = image_variables()["GPTOSS_PORT"]


def of_kind(kind: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in OBJECTS if each["kind"] == kind}


def containers(workload: str) -> list[Any]:
    pod = WORKLOADS[workload]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def labels_of(workload: str) -> dict[str, str]:
    labels: dict[str, str] = WORKLOADS[workload]["template"]["metadata"]["labels"]
    return labels


def selected(labels: dict[str, str]) -> list[str]:
    return [name for name in WORKLOADS if labels.items() <= labels_of(name).items()]


def variables(container: Any) -> dict[str, str]:
    """The variables of the map that the container names, and its own."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= of_kind("ConfigMap")[source["configMapRef"]["name"]]["data"]
    return found | {each["name"]: each.get("value", "") for each in container.get("env", [])}


def test_the_page_tells_gptoss_where_the_frontend_is() -> None:
    """By the same command in both, as their services have the same name and port."""
    compose, kubernetes = added_on_the_page()
    assert compose == kubernetes
    service = of_kind("Service")["dynamo"]["spec"]
    assert [str(each["port"]) for each in service["ports"]] == [PORT]
    (workload,) = selected(service["selector"])
    (frontend,), (_, started) = containers(workload), containers("dynamo-worker")
    assert "dynamo" in SERVICES
    assert f"--url http://dynamo:{PORT} " in compose
    for command in (SERVICES["dynamo"]["command"], frontend["args"]):
        assert command[command.index("--http-port") + 1] == PORT
    for command in (SERVICES["worker"]["command"], started["args"]):
        assert compose.endswith(f"--model {command[command.index('--name') + 1]}")


def test_the_version_of_dynamo_is_the_one_that_is_tested() -> None:
    version = SERVICES["gptoss"]["build"]["args"]["DYNAMO"]
    assert set(PACKAGES) == {f"ai-dynamo=={version}", f"ai-dynamo-runtime=={version}", "uvloop"}
    text = (FOLDER / "Containerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"DYNAMO=(\d\S*)", text)) == {version}
    for package in PACKAGES:
        assert package in worker._INSTALL
        assert package.partition("==")[0] in text


def test_compose_keeps_dynamo_from_others_and_without_rights() -> None:
    hardened = read("compose.yaml")["services"]["gptoss"]
    for name in ("dynamo", "worker"):
        service = SERVICES[name]
        for key in ("read_only", "tmpfs", "cap_drop", "security_opt", "restart"):
            assert service[key] == hardened[key], (name, key)
        assert service["networks"] == ["dynamo"]
        assert "ports" not in service
        assert service["image"] == SERVICES["gptoss"]["image"]
        assert service["pull_policy"] == "never"
    assert COMPOSE["networks"]["dynamo"]["internal"] is True
    # The server keeps its own network, as its port would be closed in the other.
    assert set(SERVICES["gptoss"]["networks"]) == {"default", "dynamo"}
    user, group = last("USER").split(":")
    options = COMPOSE["volumes"]["discovery"]["driver_opts"]["o"].split(",")
    assert {f"uid={user}", f"gid={group}", "mode=0700"} <= set(options)


def test_compose_finds_workers_and_their_health() -> None:
    frontend, started = SERVICES["dynamo"], SERVICES["worker"]
    for name in ("DYN_DISCOVERY_BACKEND", "DYN_FILE_KV", "DYN_REQUEST_PLANE", "DYN_EVENT_PLANE"):
        assert frontend["environment"][name] == started["environment"][name]
    for service in (frontend, started):
        assert f"discovery:{service['environment']['DYN_FILE_KV']}" in service["volumes"]
    (data,) = read("compose.yaml")["services"]["gptoss"]["volumes"]
    assert data in started["volumes"]  # where gptoss puts the models that it pulls
    # The image's health check asks this port of the loopback interface.
    assert started["environment"]["DYN_SYSTEM_PORT"] == PORT
    assert started["environment"]["DYN_SYSTEM_HOST"] == "0.0.0.0"
    assert started["scale"] == 2
    grace_s = float(started["environment"]["GPTOSS_GRACE_S"])
    assert int(started["stop_grace_period"].removesuffix("s")) >= grace_s + MARGIN_S


def test_kubernetes_lets_only_those_in_that_need_it() -> None:
    policies = {name: each["spec"] for name, each in of_kind("NetworkPolicy").items()}
    everyone, frontend = policies.pop("dynamo"), policies.pop("dynamo-frontend")
    assert not policies
    assert selected(everyone["podSelector"]["matchLabels"]) == list(WORKLOADS)
    ((source,),) = (rule["from"] for rule in everyone["ingress"])
    assert source == {"podSelector": everyone["podSelector"]}
    assert selected(frontend["podSelector"]["matchLabels"]) == ["dynamo-frontend"]
    (rule,) = frontend["ingress"]
    server = next(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")))
    assert rule["from"] == [{"podSelector": {"matchLabels": server["metadata"]["labels"]}}]
    assert rule["ports"] == [{"port": "http"}]


@pytest.mark.parametrize("name", WORKLOADS)
def test_kubernetes_runs_them_without_rights(name: str) -> None:
    pod = WORKLOADS[name]["template"]["spec"]
    user, group = map(int, last("USER").split(":"))
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (user, group, group)
    assert (pod["enableServiceLinks"], pod["automountServiceAccountToken"]) == (False, False)
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {v["metadata"]["name"] for v in WORKLOADS[name].get("volumeClaimTemplates", [])}
    for container in containers(name):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_kubernetes_finds_workers_through_etcd() -> None:
    (etcd,) = containers("dynamo-etcd")
    (port,) = of_kind("Service")["dynamo-etcd"]["spec"]["ports"]
    address = f"http://dynamo-etcd:{port['port']}"
    assert f"--advertise-client-urls={address}" in etcd["command"]
    assert f"--listen-client-urls=http://0.0.0.0:{port['port']}" in etcd["command"]
    mounts = {mount["mountPath"] for mount in etcd["volumeMounts"]}
    assert mounts == {a.partition("=")[2] for a in etcd["command"] if a.startswith("--data-dir=")}
    for name in ("dynamo-frontend", "dynamo-worker"):
        found = variables(containers(name)[-1])
        assert (found["DYN_DISCOVERY_BACKEND"], found["ETCD_ENDPOINTS"]) == ("etcd", address)
    for key in ("DYN_REQUEST_PLANE", "DYN_EVENT_PLANE"):
        assert found[key] == SERVICES["worker"]["environment"][key]


def test_kubernetes_probes_workers_and_lets_them_finish() -> None:
    pull, started = containers("dynamo-worker")
    found = variables(started)
    assert pull["args"] == ["pull", started["args"][2]]  # the model
    assert started["args"][-1] == "$(POD_IP)"
    (source,) = [each["valueFrom"] for each in started["env"] if each["name"] == "POD_IP"]
    assert source == {"fieldRef": {"fieldPath": "status.podIP"}}
    (port,) = started["ports"]
    assert str(port["containerPort"]) == found["DYN_SYSTEM_PORT"]
    for container in (started, *containers("dynamo-frontend")):
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] == port["name"]
    needed_s = float(found["GPTOSS_GRACE_S"]) + MARGIN_S
    pod = WORKLOADS["dynamo-worker"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= needed_s
