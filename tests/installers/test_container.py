"""The container's files: that they are valid, agree with each other, and name existing files.

Building and running the image takes a container engine and minutes; docs/containers.md lists the
steps that were run by hand.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft201909Validator

from gptoss_local.base.settings import Settings
from gptoss_local.cli import worker
from tests.conftest import free_port, run_server
from tests.dynamo.packages import PACKAGES
from tests.installers.container_files import (
    FOLDER,
    MARGIN_S,
    ROOT,
    added_on_the_page,
    image_variables,
    instructions,
    last,
    read,
)

SETTINGS = {f"GPTOSS_{name.upper()}" for name in Settings.__struct_fields__}
USER, GROUP = last("USER").split(":")
PORT = image_variables()["GPTOSS_PORT"]
HOME = image_variables()["GPTOSS_HOME"]
COMPOSE = read("compose.yaml")["services"]["gptoss"]
DYNAMO = read("compose.dynamo.yaml")
SERVICES: dict[str, Any] = DYNAMO["services"]
OBJECTS: list[Any] = [
    each
    for name in ("kubernetes.yaml", "kubernetes.dynamo.yaml")
    for each in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
]
WORKLOADS = {
    each["metadata"]["name"]: each["spec"] for each in OBJECTS if "template" in each.get("spec", {})
}
"""Deployments and the stateful set."""


def of_kind(kind: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in OBJECTS if each["kind"] == kind}


def pod_of(workload: str) -> Any:
    return WORKLOADS[workload]["template"]["spec"]


def containers(workload: str) -> list[Any]:
    return [*pod_of(workload).get("initContainers", []), *pod_of(workload)["containers"]]


def selected(labels: dict[str, str]) -> list[str]:
    """Return the workloads whose pods have these labels."""
    pods = {name: each["template"]["metadata"]["labels"] for name, each in WORKLOADS.items()}
    return [name for name, found in pods.items() if labels.items() <= found.items()]


def variables(container: Any) -> dict[str, str]:
    """Return the variables of the map that the container names, and its own."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= of_kind("ConfigMap")[source["configMapRef"]["name"]]["data"]
    return found | {each["name"]: each.get("value", "") for each in container.get("env", [])}


@pytest.mark.quick
@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_variables_are_settings(path: Path) -> None:
    assert set(re.findall(r"GPTOSS_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8"))) <= SETTINGS


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cuda.yaml", "compose.dynamo.yaml"])
def test_compose_files_follow_the_specification(name: str) -> None:
    """The schema is from the Compose Specification, Apache-2.0, as of 2021."""
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text(encoding="utf-8"))
    assert [error.message for error in Draft201909Validator(schema).iter_errors(read(name))] == []


@pytest.mark.quick
def test_compose_builds_this_image_and_gives_it_no_rights() -> None:
    assert COMPOSE["environment"]["GPTOSS_API_KEY"].startswith("${GPTOSS_API_KEY:?")
    assert "GPTOSS_INSECURE" not in COMPOSE["environment"]
    assert (COMPOSE["read_only"], COMPOSE["cap_drop"]) == (True, ["ALL"])
    assert COMPOSE["tmpfs"] == ["/tmp"]
    (volume,), (port,) = COMPOSE["volumes"], COMPOSE["ports"]
    assert volume.split(":")[1] == HOME
    assert re.fullmatch(rf"127\.0\.0\.1:.*:{PORT}", port)
    context = (FOLDER / COMPOSE["build"]["context"]).resolve()
    assert context == ROOT
    assert context / COMPOSE["build"]["dockerfile"] == FOLDER / "Containerfile"
    declared = {rest.partition("=")[0] for word, rest in instructions() if word == "ARG"}
    assert set(read("compose.cuda.yaml")["services"]["gptoss"]["build"]["args"]) <= declared


@pytest.mark.quick
def test_the_image_has_all_that_the_package_is_made_of() -> None:
    """`COPY . .` would do, and would send .git and .venv to the engine."""
    copied = {
        path
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for pattern in rest.split()[:-1]
        for path in ROOT.glob(pattern)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], project["project"]["readme"]}
    needed |= {*project["project"]["license-files"], "pyproject.toml", "installers/image.py"}
    assert {ROOT / name for name in needed} <= copied
    assert set((ROOT / "installers").glob("*.py")) <= copied


@pytest.mark.quick
def test_the_image_serves_as_a_user_without_rights() -> None:
    words = [word for word, _ in instructions()]
    assert USER.isdigit()  # Kubernetes cannot know that a name is not root's
    assert GROUP.isdigit()
    assert "USER" not in words[: len(words) - words[::-1].index("FROM")]
    assert json.loads(last("ENTRYPOINT")) == ["tini", "--", "gptoss"]
    assert json.loads(last("CMD")) == ["serve"]
    assert last("VOLUME") == HOME == image_variables()["HOME"]
    assert last("EXPOSE") == PORT
    assert not {"GPTOSS_API_KEY", "GPTOSS_INSECURE"} & set(image_variables())


def test_the_health_check_finds_out_whether_a_server_answers(tmp_path: Path) -> None:
    words = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert words.pop(0) == "python3"
    proxies = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}

    def check(port: str) -> int:
        environment = os.environ | proxies | {"GPTOSS_PORT": port}
        command = [sys.executable, *words]
        return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL).returncode

    assert check(str(free_port())) != 0
    with run_server(tmp_path, api_key="a-key") as server:
        assert check(server.url.rpartition(":")[2]) == 0


@pytest.mark.quick
@pytest.mark.parametrize("name", WORKLOADS)
def test_kubernetes_runs_them_without_rights(name: str) -> None:
    pod = pod_of(name)
    ids = {"runAsUser": int(USER), "runAsGroup": int(GROUP), "fsGroup": int(GROUP)}
    assert pod["securityContext"].items() >= (ids | {"runAsNonRoot": True}).items()
    # A service called gptoss would otherwise set GPTOSS_PORT to an address, which is refused.
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


@pytest.mark.quick
def test_kubernetes_objects_belong_together() -> None:
    claims, services = of_kind("PersistentVolumeClaim"), of_kind("Service")
    deployment, service = WORKLOADS["gptoss"], services["gptoss"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == service["selector"] == labels
    ((container,), pod) = containers("gptoss"), pod_of("gptoss")
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert set(mounts) == {HOME, "/tmp"}
    assert mounts[HOME]["persistentVolumeClaim"]["claimName"] in claims
    # Two servers must not write one volume, as a rolling update would let them.
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    (port,) = container["ports"]
    assert str(port["containerPort"]) == PORT
    assert [each["targetPort"] for each in service["ports"]] == [port["name"]]
    (key,) = [each["valueFrom"] for each in container["env"] if "valueFrom" in each]
    assert set(key) == {"secretKeyRef"}
    assert variables(container)["GPTOSS_API_KEY"] == ""  # it comes from the secret
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}


@pytest.mark.quick
def test_answers_have_their_grace_before_a_kill() -> None:
    for service in (COMPOSE, SERVICES["worker"]):
        grace_s = float(service["environment"]["GPTOSS_GRACE_S"])
        assert int(service["stop_grace_period"].removesuffix("s")) >= grace_s + MARGIN_S
    for name in ("gptoss", "dynamo-worker"):
        container = containers(name)[-1]
        stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {"command": ["", "0"]})
        grace_s = int(stop["command"][1]) + float(variables(container)["GPTOSS_GRACE_S"])
        assert pod_of(name)["terminationGracePeriodSeconds"] >= grace_s + MARGIN_S


@pytest.mark.quick
def test_the_page_tells_gptoss_where_dynamo_is() -> None:
    """By the same command in both, as their services have the same name and port."""
    compose, kubernetes = added_on_the_page()
    assert compose == kubernetes
    service = of_kind("Service")["dynamo"]["spec"]
    assert [str(each["port"]) for each in service["ports"]] == [PORT]
    (workload,) = selected(service["selector"])
    (frontend,), (_, started) = containers(workload), containers("dynamo-worker")
    assert f"--url http://dynamo:{PORT} " in compose
    for command in (SERVICES["dynamo"]["command"], frontend["args"]):
        assert command[command.index("--http-port") + 1] == PORT
    for command in (SERVICES["worker"]["command"], started["args"]):
        assert compose.endswith(f"--model {command[command.index('--name') + 1]}")


@pytest.mark.quick
def test_the_version_of_dynamo_is_the_one_that_is_tested() -> None:
    version = SERVICES["gptoss"]["build"]["args"]["DYNAMO"]
    assert set(PACKAGES) == {f"ai-dynamo=={version}", f"ai-dynamo-runtime=={version}", "uvloop"}
    text = (FOLDER / "Containerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"DYNAMO=(\d\S*)", text)) == {version}
    for package in PACKAGES:
        assert package in worker._INSTALL
        assert package.partition("==")[0] in text


@pytest.mark.quick
def test_compose_keeps_dynamo_from_others_and_without_rights() -> None:
    for name in ("dynamo", "worker"):
        service = SERVICES[name]
        for key in ("read_only", "tmpfs", "cap_drop", "security_opt", "restart"):
            assert service[key] == COMPOSE[key], (name, key)
        assert service["networks"] == ["dynamo"]
        assert "ports" not in service
        assert service["image"] == SERVICES["gptoss"]["image"]
        assert service["pull_policy"] == "never"
    assert DYNAMO["networks"]["dynamo"]["internal"] is True
    # The server keeps its own network, as its port would be closed in the other.
    assert set(SERVICES["gptoss"]["networks"]) == {"default", "dynamo"}
    options = DYNAMO["volumes"]["discovery"]["driver_opts"]["o"].split(",")
    assert {f"uid={USER}", f"gid={GROUP}", "mode=0700"} <= set(options)


@pytest.mark.quick
def test_compose_finds_workers_and_their_health() -> None:
    frontend, started = SERVICES["dynamo"], SERVICES["worker"]
    for name in ("DYN_DISCOVERY_BACKEND", "DYN_FILE_KV", "DYN_REQUEST_PLANE", "DYN_EVENT_PLANE"):
        assert frontend["environment"][name] == started["environment"][name]
    for service in (frontend, started):
        assert f"discovery:{service['environment']['DYN_FILE_KV']}" in service["volumes"]
    assert COMPOSE["volumes"][0] in started["volumes"]  # where gptoss puts pulled models
    # The image's health check asks this port of the loopback interface.
    assert started["environment"]["DYN_SYSTEM_PORT"] == PORT
    assert started["environment"]["DYN_SYSTEM_HOST"] == "0.0.0.0"
    assert started["scale"] == 2


@pytest.mark.quick
def test_kubernetes_lets_only_those_in_that_need_it() -> None:
    policies = {name: each["spec"] for name, each in of_kind("NetworkPolicy").items()}
    everyone, frontend = policies.pop("dynamo"), policies.pop("dynamo-frontend")
    assert not policies
    dynamo = [name for name in WORKLOADS if name != "gptoss"]
    assert selected(everyone["podSelector"]["matchLabels"]) == dynamo
    ((source,),) = (rule["from"] for rule in everyone["ingress"])
    assert source == {"podSelector": everyone["podSelector"]}
    assert selected(frontend["podSelector"]["matchLabels"]) == ["dynamo-frontend"]
    (rule,) = frontend["ingress"]
    (source,) = rule["from"]
    assert selected(source["podSelector"]["matchLabels"]) == ["gptoss"]
    assert rule["ports"] == [{"port": "http"}]


@pytest.mark.quick
def test_kubernetes_finds_workers_through_etcd_and_probes_them() -> None:
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
    pull, started = containers("dynamo-worker")
    assert pull["args"] == ["pull", started["args"][2]]  # the model
    assert started["args"][-1] == "$(POD_IP)"
    (source,) = [each["valueFrom"] for each in started["env"] if each["name"] == "POD_IP"]
    assert source == {"fieldRef": {"fieldPath": "status.podIP"}}
    (port,) = started["ports"]
    assert str(port["containerPort"]) == found["DYN_SYSTEM_PORT"]
    for container in (started, *containers("dynamo-frontend")):
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] == port["name"]
