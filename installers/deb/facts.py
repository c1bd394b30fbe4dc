"""Gather what the package says of itself, and write it as Debian's files want it."""

import email.utils
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from from_source import ROOT
from steps import Command, SetupError, answer_of

PYTHON = Path("/usr/bin/python3")
"""Debian's, whichever is first on PATH."""

_DESCRIPTION = """\
 gptoss answers questions with OpenAI's open models gpt-oss-20b and
 gpt-oss-120b, which stay on this machine. It has a chat for the terminal and
 one for the browser, and serves the APIs of Ollama, OpenAI and Anthropic.
 .
 This package computes on the CPU. It holds a Python environment of its own
 in /usr/lib/gptoss, with llama.cpp. Models are not part of it, except for a
 tiny one to try everything with.
"""


@dataclass(frozen=True)
class Facts:
    """Name what distinguishes one package from another.

    Attributes:
        version: Of gptoss.
        release: Of the distribution, `debian12`; it is part of the package's version.
        codename: Of the distribution.
        python: The `3.11` of its Python.
        architecture: The `amd64` of its packages.
        maintainer: A name and an address.
        epoch: The time of the commit, in seconds.
    """

    version: str
    release: str
    codename: str
    python: str
    architecture: str
    maintainer: str
    epoch: int

    @property
    def debian_version(self) -> str:
        """The version, in which 1.0rc1 comes before 1.0."""
        return re.sub(r"(?<=\d)(a|b|rc|\.dev)(?=\d)", r"~\1", self.version) + f"-1~{self.release}"

    @property
    def changelog(self) -> str:
        date = email.utils.formatdate(self.epoch)
        return (
            f"gptoss ({self.debian_version}) {self.codename}; urgency=medium\n\n"
            f"  * Version {self.version}; see changelog.gz.\n\n"
            f" -- {self.maintainer}  {date.replace('-0000', '+0000')}\n"
        )

    def control(self, libraries: str, n_bytes: int) -> str:
        """Return the control file; `libraries` are the packages of shared libraries."""
        major, minor = self.python.split(".")
        python = f"python3 (>= {self.python}), python3 (<< {major}.{int(minor) + 1})"
        return (
            f"Package: gptoss\n"
            f"Version: {self.debian_version}\n"
            f"Architecture: {self.architecture}\n"
            f"Maintainer: {self.maintainer}\n"
            f"Installed-Size: {-(-n_bytes // 1024)}\n"
            f"Depends: {python}, {libraries}, ca-certificates\n"
            f"Section: misc\n"
            f"Priority: optional\n"
            f"Description: local runner for gpt-oss models\n{_DESCRIPTION}"
        )


def gather(version: str) -> Facts:
    """Return the facts of this release of Debian or Ubuntu, and of this commit.

    `SOURCE_DATE_EPOCH`, `DEBFULLNAME` and `DEBEMAIL` replace the commit's time and author.

    Raises:
        SetupError: another system, an older release, or no commit.
    """
    architecture = _ask(["dpkg", "--print-architecture"], "Build it on Debian or Ubuntu.")
    release = platform.freedesktop_os_release()
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    python = _ask([PYTHON, "-c", code], "apt install python3")
    if int(python.partition(".")[2]) < 11:
        hint = "Build it on Debian 12, Ubuntu 24.04 or newer."
        raise SetupError(f"{PYTHON} is Python {python}; gptoss needs 3.11.", hint)
    variables = os.environ
    name, address = variables.get("DEBFULLNAME"), variables.get("DEBEMAIL")
    return Facts(
        version=version,
        release=release["ID"] + release.get("VERSION_ID", ""),
        codename=release.get("VERSION_CODENAME", "unstable"),
        python=python,
        architecture=architecture,
        maintainer=f"{name} <{address}>" if name and address else _commit("%an <%ae>"),
        epoch=int(variables.get("SOURCE_DATE_EPOCH") or _commit("%ct")),
    )


def _commit(field: str) -> str:
    hint = "Without git, set SOURCE_DATE_EPOCH, DEBFULLNAME and DEBEMAIL."
    return _ask(["git", "-C", ROOT, "log", "-1", f"--format={field}"], hint)


def _ask(command: Command, hint: str) -> str:
    if answer := answer_of(command):
        return answer.strip()
    raise SetupError(f"This failed: {' '.join(map(str, command))}", hint)
