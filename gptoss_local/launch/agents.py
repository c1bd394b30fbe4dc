"""The programs that `gptoss launch` knows: how each is found, set up for this server, and started.

One function per program says what it needs, and one row of `AGENTS` the rest. Settings go by
environment and arguments where the program takes them so; a file is changed only where it must be.
The API key goes by environment alone: arguments can be read by every user of a machine.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gptoss_local.launch.merge import Default, Item
from gptoss_local.launch.settings_file import SettingsFile

KEY_VARIABLE = "GPTOSS_API_KEY"
"""The variable that files and arguments name instead of the key."""


class AgentName(StrEnum):
    """The names that can follow `gptoss launch`."""

    aider = "aider"
    claude = "claude"
    cline = "cline"
    codex = "codex"
    continue_ = "continue"
    copilot = "copilot"
    crush = "crush"
    droid = "droid"
    goose = "goose"
    gptme = "gptme"
    llm = "llm"
    opencode = "opencode"
    oterm = "oterm"
    pi = "pi"
    qwen = "qwen"


@dataclass(frozen=True)
class Target:
    """The server and model that a program is to talk to.

    Attributes:
        url: Of the server, without a path.
        model: Name of a model, as the server lists it.
        n_ctx: Tokens of context that the model has.
        api_key: What the server asks for; empty: nothing.
    """

    url: str
    model: str
    n_ctx: int
    api_key: str = ""

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def token(self) -> str:
        """The key, or a word for programs that want one; also in place of the user's real keys."""
        return self.api_key or "gptoss"

    @property
    def n_output(self) -> int:
        """Most tokens of one answer, for programs that ask: they keep as much of n_ctx free."""
        return self.n_ctx // 4


@dataclass(frozen=True)
class Setup:
    """The way a program is started.

    Attributes:
        environment: Variables besides the user's.
        arguments: Go before the user's.
        alone: Arguments of a start without any of the user's.
        file: Settings that it takes from a file only.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    file: SettingsFile | None = None


@dataclass(frozen=True)
class Agent:
    """A row of the table.

    Attributes:
        title: What it is called.
        program: The command that starts it.
        install: How to get it, a command or a page.
        n_ctx: Tokens of context that it should have; see `AGENTS`.
        setup: What it needs to know of the server.
        is_tried: Whether a test runs the program; else it is set up as its pages say.
    """

    title: str
    program: str
    install: str
    n_ctx: int
    setup: Callable[[Target], Setup]
    is_tried: bool = True

    def find(self) -> Path | None:
        """Find where the program is, by PATH or in the usual places."""
        home = Path.home()
        places = [home / place for place in _PLACES] + [Path("/opt/homebrew/bin")]
        places += [Path("/usr/local/bin"), Path(os.environ.get("APPDATA", home), "npm")]
        found = shutil.which(self.program) or shutil.which(
            self.program, path=os.pathsep.join(map(str, places))
        )
        return Path(found).absolute() if found else None


_PLACES = (
    *(".local/bin", "bin", ".npm-global/bin", ".bun/bin", ".volta/bin", ".cargo/bin", "go/bin"),
    *(".claude/local", ".opencode/bin", ".continue/bin"),
)


def _aider(server: Target) -> Setup:
    return Setup(
        {"OLLAMA_API_BASE": server.url, "OLLAMA_API_KEY": server.token},
        ("--model", f"ollama_chat/{server.model}", "--no-show-model-warnings"),
    )


def _claude(server: Target) -> Setup:
    models = ("OPUS_MODEL", "SONNET_MODEL", "HAIKU_MODEL")
    return Setup(
        {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_AUTH_TOKEN": server.token,
            "ANTHROPIC_API_KEY": "",  # or else it asks which of the two to use
            **{f"ANTHROPIC_DEFAULT_{name}": server.model for name in models},
            "ANTHROPIC_SMALL_FAST_MODEL": server.model,
            "CLAUDE_CODE_SUBAGENT_MODEL": server.model,
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it changes, so that no prefix would be reused
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(server.n_ctx),  # else it assumes a million
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(server.n_output),
        },
        ("--model", server.model),
    )


def _cline(server: Target) -> Setup:
    folder = os.environ.get("CLINE_DATA_DIR") or Path(
        os.environ.get("CLINE_DIR") or Path.home() / ".cline", "data"
    )
    provider = {
        "settings": {
            "provider": "ollama",
            "baseUrl": server.openai_url,
            "model": server.model,
            "contextWindow": server.n_ctx,
        },
        "updatedAt": Default("2026-11-25T00:00:00.000Z"),  # must be there; Cline writes its own
        "tokenSource": Default("manual"),
    }
    wanted = {"version": Default(1), "providers": {"ollama": provider}}
    return Setup(
        {"OLLAMA_API_KEY": server.token},
        ("-P", "ollama", "-m", server.model),
        file=SettingsFile(Path(folder, "settings", "providers.json"), wanted),
    )


def _codex(server: Target) -> Setup:
    provider = {"name": "gptoss", "base_url": server.openai_url, "wire_api": "responses"}
    if server.api_key:
        provider["env_key"] = KEY_VARIABLE
    settings: dict[str, str | int] = {
        "model": server.model,
        "model_context_window": server.n_ctx,
        "model_provider": "gptoss",
        **{f"model_providers.gptoss.{name}": value for name, value in provider.items()},
    }
    pairs = [f"{name}={json.dumps(value)}" for name, value in settings.items()]  # TOML as well
    return Setup({}, tuple(word for pair in pairs for word in ("-c", pair)))


def _continue(server: Target) -> Setup:
    folder = os.environ.get("CONTINUE_GLOBAL_DIR") or Path.home() / ".continue"
    model = {
        "name": f"{server.model} (gptoss)",
        "provider": "openai",
        "model": server.model,
        "apiBase": server.openai_url,
        "apiKey": f"${{{{ secrets.{KEY_VARIABLE} }}}}" if server.api_key else "gptoss",
        "roles": Default(["chat", "edit", "apply"]),
        "capabilities": Default(["tool_use"]),
        "defaultCompletionOptions": {"contextLength": server.n_ctx},
    }
    wanted = {
        "name": Default("Local"),
        "version": Default("1.0.0"),
        "schema": Default("v1"),
        "models": Item("name", model, is_first=True),  # it takes the first one
    }
    path = Path(folder, "config.yaml")
    return Setup({}, ("--config", str(path)), file=SettingsFile(path, wanted))


def _copilot(server: Target) -> Setup:
    return Setup(
        {
            "COPILOT_OFFLINE": "true",
            "COPILOT_MODEL": server.model,
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_WIRE_API": "responses",
            "COPILOT_PROVIDER_BASE_URL": server.openai_url,
            "COPILOT_PROVIDER_API_KEY": server.token,
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(server.n_ctx - server.n_output),
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(server.n_output),
        }
    )


def _crush(server: Target) -> Setup:
    folder = os.environ.get("CRUSH_GLOBAL_CONFIG") or Path.home() / ".config" / "crush"
    model = {
        "id": server.model,
        "name": server.model,
        "context_window": server.n_ctx,
        "default_max_tokens": server.n_output,
    }
    provider = {
        "name": "gptoss",
        "type": "openai-compat",
        "base_url": f"{server.openai_url}/",
        "api_key": f"${KEY_VARIABLE}",
        "models": Item("id", model),
    }
    chosen = {"provider": "gptoss", "model": server.model}
    wanted = {"providers": {"gptoss": provider}, "models": {"large": chosen, "small": chosen}}
    return Setup(
        {KEY_VARIABLE: server.token}, file=SettingsFile(Path(folder, "crush.json"), wanted)
    )


def _droid(server: Target) -> Setup:
    model = {
        "id": f"custom:{server.model}-gptoss",
        "model": server.model,
        "displayName": f"{server.model} (gptoss)",
        "provider": "generic-chat-completion-api",
        "baseUrl": server.openai_url,
        "apiKey": f"${{{KEY_VARIABLE}}}",
        "maxOutputTokens": server.n_output,
    }
    wanted = {
        "customModels": Item("id", model),
        "sessionDefaultSettings": {"model": model["id"]},
    }
    file = SettingsFile(Path.home() / ".factory" / "settings.json", wanted)
    return Setup({KEY_VARIABLE: server.token}, file=file)


def _goose(server: Target) -> Setup:
    return Setup(
        {
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": server.model,
            "GOOSE_CONTEXT_LIMIT": str(server.n_ctx),
            "OPENAI_HOST": server.url,
            "OPENAI_API_KEY": server.token,
        },
        alone=("session",),
    )


def _gptme(server: Target) -> Setup:
    environment = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": server.token}
    return Setup(environment, ("-m", f"local/{server.model}"))


def _llm(server: Target) -> Setup:
    environment = {
        "OLLAMA_HOST": server.url,
        "OLLAMA_API_KEY": server.token,
        "LLM_MODEL": f"ollama/{server.model}",
    }
    return Setup(environment, alone=("chat",))


def _opencode(server: Target) -> Setup:
    limit = {"context": server.n_ctx, "output": server.n_output}
    options = {"baseURL": server.openai_url}
    if server.api_key:
        options["apiKey"] = f"{{env:{KEY_VARIABLE}}}"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "gptoss",
        "options": options,
        "models": {server.model: {"name": server.model, "limit": limit}},
    }
    chosen = f"gptoss/{server.model}"
    config = {"provider": {"gptoss": provider}, "model": chosen, "small_model": chosen}
    return Setup({"OPENCODE_CONFIG_CONTENT": json.dumps(config)})  # joined with the user's own


def _oterm(server: Target) -> Setup:
    return Setup({"OLLAMA_URL": server.url, "OLLAMA_API_KEY": server.token})


def _pi(server: Target) -> Setup:
    folder = os.environ.get("PI_CODING_AGENT_DIR") or Path.home() / ".pi" / "agent"
    model = {
        "id": server.model,
        "reasoning": True,
        "input": ["text"],
        "contextWindow": server.n_ctx,
        "maxTokens": server.n_output,
    }
    provider = {
        "baseUrl": server.openai_url,
        "api": "openai-completions",
        "apiKey": KEY_VARIABLE,  # it reads the variable of this name
        "models": Item("id", model),
    }
    return Setup(
        {KEY_VARIABLE: server.token},
        ("--provider", "gptoss", "--model", server.model),
        file=SettingsFile(Path(folder, "models.json"), {"providers": {"gptoss": provider}}),
    )


def _qwen(server: Target) -> Setup:
    return Setup(
        {
            "OPENAI_BASE_URL": server.openai_url,
            "OPENAI_API_KEY": server.token,
            "OPENAI_MODEL": server.model,
        },
        ("--auth-type", "openai", "--model", server.model),
    )


_LARGE, _SMALL = 65_536, 32_768

AGENTS: Mapping[AgentName, Agent] = {
    AgentName.aider: Agent(
        "Aider", "aider", "python -m pip install aider-install && aider-install", _SMALL, _aider
    ),
    AgentName.claude: Agent(
        "Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", _LARGE, _claude
    ),
    AgentName.cline: Agent("Cline", "cline", "npm install -g cline", _LARGE, _cline),
    AgentName.codex: Agent("Codex", "codex", "npm install -g @openai/codex", _LARGE, _codex),
    AgentName.continue_: Agent(
        "Continue", "cn", "npm install -g @continuedev/cli", _SMALL, _continue
    ),
    AgentName.copilot: Agent(
        "Copilot CLI", "copilot", "npm install -g @github/copilot", _LARGE, _copilot
    ),
    AgentName.crush: Agent(
        "Crush", "crush", "npm install -g @charmland/crush", _LARGE, _crush, is_tried=False
    ),
    AgentName.droid: Agent(
        "Droid", "droid", "see https://docs.factory.ai", _LARGE, _droid, is_tried=False
    ),
    AgentName.goose: Agent(
        "Goose", "goose", "see https://block.github.io/goose", _LARGE, _goose, is_tried=False
    ),
    AgentName.gptme: Agent("gptme", "gptme", "uv tool install gptme", _SMALL, _gptme),
    AgentName.llm: Agent("llm", "llm", "uv tool install llm --with llm-ollama", 0, _llm),
    AgentName.opencode: Agent(
        "opencode", "opencode", "npm install -g opencode-ai", _LARGE, _opencode
    ),
    AgentName.oterm: Agent("oterm", "oterm", "uv tool install oterm", 0, _oterm, is_tried=False),
    AgentName.pi: Agent("pi", "pi", "npm install -g @mariozechner/pi-coding-agent", _SMALL, _pi),
    AgentName.qwen: Agent(
        "Qwen Code", "qwen", "npm install -g @qwen-code/qwen-code", _LARGE, _qwen
    ),
}
"""All programs.

The contexts follow from what each sends before the user's first word, counted in o200k tokens:
Qwen Code 18,000, Copilot 12,500, Claude Code 12,200, Codex 10,000, opencode 7,500, Cline 5,500,
Continue and gptme 2,400, pi 1,500. Those of 5,000 and more get 65,536 tokens, so that the files
they read, the calls and an answer of a quarter of it fit without a summary; the others 32,768.
For a program with 0, which is a chat, the model is loaded as always.
"""
