"""The container's files: that they are valid, agree with each other, and name existing files.

Building and running the image takes a container engine and minutes; docs/containers.md lists the
steps that were run by hand.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import image
import llama_wheel
import pytest
import yaml
from from_source import pinned_version
from jsonschema import Draft201909Validator
from steps import Log

from gptoss_local.base.settings import Settings
from tests.conftest import free_port, run_server
from tests.installers.container_files import (
    FOLDER,
    MARGIN_S,
    ROOT,
    image_variables,
    instructions,
    last,
    read,
)

VARIABLES = {f"GPTOSS_{name.upper()}" for name in Settings.__struct_fields__}


@pytest.fixture
def kubernetes() -> dict[str, Any]:
    """The objects by their kind."""
    text = (FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.fixture
def pod(kubernetes: dict[str, Any]) -> Any:
    return kubernetes["Deployment"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_variables_are_settings(path: Path) -> None:
    assert set(re.findall(r"GPTOSS_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8"))) <= VARIABLES


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cuda.yaml", "compose.dynamo.yaml"])
def test_compose_files_follow_the_specification(name: str) -> None:
    """The schema is from the Compose Specification, Apache-2.0, as of 2021."""
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text(encoding="utf-8"))
    assert [error.message for error in Draft201909Validator(schema).iter_errors(read(name))] == []


def test_compose_asks_for_a_key_and_needs_no_rights() -> None:
    service = read("compose.yaml")["services"]["gptoss"]
    assert service["environment"]["GPTOSS_API_KEY"].startswith("${GPTOSS_API_KEY:?")
    assert "GPTOSS_INSECURE" not in service["environment"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["tmpfs"] == ["/tmp"]
    (volume,) = service["volumes"]
    assert volume.split(":")[1] == image_variables()["GPTOSS_HOME"]
    (port,) = service["ports"]
    assert port.startswith("127.0.0.1:")
    assert port.endswith(f":{image_variables()['GPTOSS_PORT']}")
    grace_s = float(service["environment"]["GPTOSS_GRACE_S"])
    assert int(service["stop_grace_period"].removesuffix("s")) >= grace_s + MARGIN_S


def test_compose_builds_this_image() -> None:
    service = read("compose.yaml")["services"]["gptoss"]
    context = (FOLDER / service["build"]["context"]).resolve()
    assert context == ROOT
    assert context / service["build"]["dockerfile"] == FOLDER / "Containerfile"
    declared = {rest.partition("=")[0] for word, rest in instructions() if word == "ARG"}
    assert set(read("compose.cuda.yaml")["services"]["gptoss"]["build"]["args"]) <= declared


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


def test_the_image_serves_as_a_user_without_rights() -> None:
    words = [word for word, _ in instructions()]
    user, group = last("USER").split(":")
    assert user.isdigit()  # Kubernetes cannot know that a name is not root's
    assert group.isdigit()
    assert "USER" not in words[: len(words) - words[::-1].index("FROM")]
    assert json.loads(last("ENTRYPOINT")) == ["tini", "--", "gptoss"]
    assert json.loads(last("CMD")) == ["serve"]
    assert last("VOLUME") == image_variables()["GPTOSS_HOME"] == image_variables()["HOME"]
    assert last("EXPOSE") == image_variables()["GPTOSS_PORT"]
    assert not {"GPTOSS_API_KEY", "GPTOSS_INSECURE"} & set(image_variables())


def test_the_health_check_finds_out_whether_a_server_answers(tmp_path: Path) -> None:
    words = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert words.pop(0) == "python3"
    proxies = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}

    def check(port: str) -> int:
        command = [sys.executable, *words]
        environment = os.environ | proxies | {"GPTOSS_PORT": port}
        return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL).returncode

    assert check(str(free_port())) != 0
    with run_server(tmp_path, api_key="a-key") as server:
        assert check(server.url.rpartition(":")[2]) == 0


def test_kubernetes_objects_belong_together(kubernetes: dict[str, Any], pod: Any) -> None:
    assert set(kubernetes) == {"PersistentVolumeClaim", "Deployment", "Service"}
    versions = {kind: each["apiVersion"] for kind, each in kubernetes.items()}
    assert versions == {"PersistentVolumeClaim": "v1", "Deployment": "apps/v1", "Service": "v1"}
    deployment, service = kubernetes["Deployment"]["spec"], kubernetes["Service"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == service["selector"] == labels
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert set(mounts) == {image_variables()["GPTOSS_HOME"], "/tmp"}
    claim = mounts[image_variables()["GPTOSS_HOME"]]["persistentVolumeClaim"]["claimName"]
    assert claim == kubernetes["PersistentVolumeClaim"]["metadata"]["name"]
    # Two servers must not write one volume, as a rolling update would let them.
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    (port,) = container["ports"]
    assert str(port["containerPort"]) == image_variables()["GPTOSS_PORT"]
    assert [each["targetPort"] for each in service["ports"]] == [port["name"]]


def test_kubernetes_runs_it_without_rights(pod: Any) -> None:
    (container,) = pod["containers"]
    user, group = map(int, last("USER").split(":"))
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (user, group, group)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # A service called gptoss would otherwise set GPTOSS_PORT to an address, which is refused.
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False


def test_kubernetes_probes_and_ends_it_in_time(pod: Any) -> None:
    (container,) = pod["containers"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["GPTOSS_API_KEY"] is None  # it comes from a secret
    (key,) = [each["valueFrom"] for each in container["env"] if "valueFrom" in each]
    assert set(key) == {"secretKeyRef"}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    _, wait_s = container["lifecycle"]["preStop"]["exec"]["command"]
    needed_s = int(wait_s) + float(values["GPTOSS_GRACE_S"]) + MARGIN_S
    assert pod["terminationGracePeriodSeconds"] >= needed_s


def test_a_wheel_that_is_there_is_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image's second step finds the wheel of the first one, also for GPUs."""
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=OFF")
    version = pinned_version((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for architectures in ((), image.ALL):
        args = llama_wheel.cmake_args(architectures)
        assert "-DGGML_NATIVE=OFF" in args
        folder = llama_wheel.wheel_folder(tmp_path, version, args)
        folder.mkdir(parents=True)
        (folder / "llama.whl").touch()
        found = image.get_wheel(Log(tmp_path / "log"), tmp_path, architectures)
        assert found == folder / "llama.whl"
    assert f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(image.ALL)}" in args


@pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler")
def test_the_driver_to_link_with_stays_a_dependency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it defines nothing, and some compilers drop libraries that nothing refers to."""
    for name in ("LD_LIBRARY_PATH", "LDFLAGS"):
        monkeypatch.setenv(name, "")  # and so put back afterwards
    image.add_driver(Log(tmp_path / "log"), tmp_path / "driver")
    flags = os.environ["LDFLAGS"].split()
    assert os.environ["LD_LIBRARY_PATH"] == str(tmp_path / "driver")
    (tmp_path / "user.c").write_text("int cuInit(int); int f(void) { return cuInit(0); }")
    library = tmp_path / "driver" / "libcuda.so.1"
    command = ["c++", "-shared", "-fPIC", *flags, "-x", "c", "user.c", "-x", "none", str(library)]
    subprocess.run([*command, "-o", "user.so"], cwd=tmp_path, check=True)
    assert b"libcuda.so.1\0" in (tmp_path / "user.so").read_bytes()
