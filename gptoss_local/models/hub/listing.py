"""The files of a repository at one commit, and those of a checkpoint, by names alone."""

import re
from collections.abc import Collection, Sequence

import msgspec

from convert.foreign import what_it_is
from convert.source import INDEX_NAME, SINGLE_NAME, complete_parts, is_weights
from gptoss_local.base.errors import DownloadError

_SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
TOKENIZER_NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
_ROOT_NAMES = ("config.json", "README.md", *TOKENIZER_NAMES)
_ORIGINAL_NAMES = ("original/config.json", *TOKENIZER_NAMES)


class HubFile(msgspec.Struct, frozen=True):
    """One file; its checksum is `sha256:...` in LFS, `git-sha1:...` in git itself."""

    name: str
    size_bytes: int
    checksum: str


class Listing(msgspec.Struct, frozen=True):
    """All files of a repository at `commit`, named by `revision`: a branch, tag or commit."""

    repo: str
    revision: str
    commit: str
    files: dict[str, HubFile]
    architecture: str = ""

    def named(self, names: Sequence[str]) -> tuple[HubFile, ...]:
        for name in names:
            if name not in self.files or not all(_PLAIN_NAME.fullmatch(p) for p in name.split("/")):
                raise DownloadError(
                    f"{self.repo} has no file {name}.",
                    hint="A part is missing there, or the model's entry in models.toml is wrong.",
                )
        return tuple(self.files[name] for name in names)

    def expected_shards(self, *, original: bool) -> tuple[HubFile, ...]:
        return tuple(self.files[name] for name in self._weights(_prefix(original)))

    def small_files(self, *, original: bool) -> tuple[HubFile, ...]:
        """Return config, tokenizer and index; the `original/` layout takes the root's tokenizer."""
        prefix = _prefix(original)
        names = _ORIGINAL_NAMES if original else _ROOT_NAMES
        index = () if prefix + SINGLE_NAME in self.files else (prefix + INDEX_NAME,)
        if not self._weights(prefix) and prefix + INDEX_NAME not in self.files:
            error = None if original else what_it_is(self.files, self.repo)
            raise error or self._unusable(prefix + INDEX_NAME)
        if prefix + "config.json" not in self.files:
            raise self._unusable(prefix + "config.json")
        return tuple(self.files[name] for name in (*names, *index) if name in self.files)

    def shards(self, indexed: Collection[str], *, original: bool) -> tuple[HubFile, ...]:
        """Return the files that hold the weights, by name; `indexed` are those of the index."""
        prefix = _prefix(original)
        names = [prefix + name for name in indexed]
        if not names and prefix + SINGLE_NAME in self.files:
            names = [prefix + SINGLE_NAME]
        for name in names:
            if name not in self.files:
                raise DownloadError(
                    f"{prefix}{INDEX_NAME} of {self.repo} names the shard {name}, which is not "
                    "in the repository."
                )
        names = names or complete_parts(self._weights(prefix), self.repo)
        return tuple(self.files[name] for name in sorted(names))

    def _weights(self, prefix: str) -> list[str]:
        return [
            name
            for name in self.files
            if name.startswith(prefix)
            and _SHARD_NAME.fullmatch(plain := name.removeprefix(prefix))
            and is_weights(plain)
        ]

    def _unusable(self, missing: str) -> DownloadError:
        return DownloadError(
            f"{self.repo} has no {missing}, so it holds no checkpoint that can be used.",
            hint="Name a repository with safetensors files, such as openai/gpt-oss-20b.",
        )


def _prefix(original: bool) -> str:
    return "original/" if original else ""
