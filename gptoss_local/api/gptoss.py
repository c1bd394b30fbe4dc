"""Our own wire, below `/api/gptoss/`, except for saved chats: `talk.history` has their values."""

from typing import Literal

import msgspec

from gptoss_local.api.models import LoadStatus
from gptoss_local.base.quantities import OptionValue
from gptoss_local.base.types import Effort


class GpuMemory(msgspec.Struct):
    """A GPU that models can use; free are the bytes that nothing holds now."""

    name: str
    total_bytes: int
    free_bytes: int

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.free_bytes


class ClientUse(msgspec.Struct):
    """The prompt tokens of a program since the server's start, and those found in the cache."""

    name: str
    n_prompt: int = 0
    n_cached: int = 0

    @property
    def share(self) -> float:
        return self.n_cached / self.n_prompt if self.n_prompt else 0.0


class ServerStatus(msgspec.Struct):
    server_version: str
    pid: int
    uptime_s: float
    loading: list[LoadStatus]
    models_dir: str
    gpus: list[GpuMemory]
    clients: list[ClientUse] = []
    lan: list[str] = []


class MemoryUse(msgspec.Struct):
    """A model's part of all VRAM, or of RAM, in bytes; others have the rest.

    Attributes:
        context: Its cache, and what computing takes.
    """

    name: str
    total: int
    model: int
    context: int
    free: int


class ModelFit(msgspec.Struct):
    """The place of a model if it were loaded now, with the loaded ones making room.

    A model of the catalogue that is not here yet is planned as `gptoss convert` makes it; the last
    five fields are of such a one.

    Attributes:
        fits: `vram`: all of it; `split`: experts or layers in RAM; `ram`: no GPU is used.
        vram_share: Of the weights.
        n_ctx: Tokens of context it would have.
        tokens_s: The expected speed of its answers.
        memory: Of the cards, and of RAM if it has a part of the model.
        problem: Why it cannot be used here, or not be downloaded.
        headline: All of that in a sentence.
        file_bytes: Its size on disk.
        is_special: Made for one purpose, so that it is not suggested to start with.
    """

    name: str
    fits: Literal["vram", "split", "ram", "no"]
    vram_share: float = 0.0
    n_ctx: int = 0
    tokens_s: float = 0.0
    memory: list[MemoryUse] = []
    problem: str = ""
    headline: str = ""
    download_bytes: int = 0
    file_bytes: int = 0
    is_special: bool = False


class ModelFits(msgspec.Struct):
    """The answer of `GET /api/gptoss/fits`.

    Attributes:
        is_new: There is no model here but the embedded one.
        suggested: The model to download first; empty: none is quick enough here.
    """

    models: list[ModelFit]
    is_new: bool = False
    suggested: str = ""
    advice: str = ""


class HarmonyPiece(msgspec.Struct, kw_only=True):
    """One message as harmony has it; the last one may be open, even in its header.

    Its `tokens` include the tags; one that `is_dropped` is not in the next prompt.
    """

    author: str
    channel: str = ""
    recipient: str = ""
    content_type: str = ""
    text: str
    tokens: list[int]
    is_answer: bool = False
    is_dropped: bool = False


class Inspection(msgspec.Struct):
    """The answer of `POST /api/gptoss/inspect`; counts are of the prompt and of the answer."""

    n_tokens: int
    n_answer_tokens: int
    messages: list[HarmonyPiece]


class ToolFacts(msgspec.Struct):
    """A tool; `trust` says that no call of it is asked about, in this chat or always."""

    name: str
    description: str
    trust: Literal["", "chat", "always"]


class ToolGroup(msgspec.Struct):
    """Tools that are switched together; `problem` says why they do not answer."""

    name: str
    about: str
    description: str
    is_on: bool
    is_mcp: bool
    problem: str
    tools: list[ToolFacts]


class ToolGroups(msgspec.Struct):
    groups: list[ToolGroup]


class TestedServer(msgspec.Struct):
    """The answer of `POST /api/gptoss/mcp/test`; `about` is the server's own name and version."""

    about: str
    seconds: float
    tools: list[str]


class TokenCount(msgspec.Struct):
    n: int


class AttachedFile(msgspec.Struct):
    """A file as it stands in a message: the words of its chip, and the text."""

    label: str
    text: str


class NamedPreset(msgspec.Struct):
    name: str
    system: str
    effort: Effort | None
    options: dict[str, OptionValue]


class NamedPresets(msgspec.Struct):
    presets: list[NamedPreset]


class PageLink(msgspec.Struct):
    """The answer of `POST /api/gptoss/links`: the page's path on this server, with a secret."""

    path: str


class Lan(msgspec.Struct):
    """`path` is a link that gives one phone a key, once.

    `fingerprint` is the SHA-256 of the certificate, empty without TLS.
    """

    urls: list[str]
    path: str
    fingerprint: str


class PageToken(msgspec.Struct):
    """A browser sends it as `X-Gptoss-Token`, or the key of a phone as any other key."""

    token: str = ""
    key: str = ""
