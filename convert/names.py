"""Tensors of fine-tunes under Hugging Face's names: without wrappers, experts by one spelling.

Programs that train a model wrap it, which shows as a prefix of all names, and some make a linear
layer of each expert. Here `experts.gate_up_projs.N.weight`, as Unsloth spells it, stands for all of
these; `experts.gate_projs.N` and `experts.up_projs.N` where gate and up are apart.
"""

import re
from collections.abc import Iterable

from gptoss_local.errors import ConvertError

# Of torch.compile, FSDP and gradient checkpointing; they may be anywhere in a name.
_WRAPPERS = re.compile(r"\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_PREFIX = re.compile(r"(.*?)(?:model\.(?:layers\.\d+|embed_tokens|norm)|lm_head)\.")
_SPELLINGS = (
    (re.compile(r"\.mlp\.router\.linear\."), ".mlp.router."),
    (
        re.compile(r"\.mlp\.experts\.(\d+)\.((?:gate_up|gate|up|down)_proj)\."),
        r".mlp.experts.\2s.\1.",
    ),
)


def canonical_names(names: Iterable[str], where: str) -> dict[str, str]:
    """Map names of tensors to those by which they go here.

    Args:
        names: All of an index or of a file; a prefix is only dropped if it is common to all.
        where: The file, for errors.

    Raises:
        ConvertError: Two names stand for one tensor.
    """
    bare = {name: _WRAPPERS.sub("", name) for name in names}
    prefixes = {match[1] for name in bare.values() if (match := _PREFIX.match(name))}
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    found: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name, short in bare.items():
        new = short.removeprefix(prefix)
        for pattern, replacement in _SPELLINGS:
            new = pattern.sub(replacement, new)
        if new in taken:
            raise ConvertError(f"{where} holds {new} under two names, {taken[new]} and {name}.")
        found[name] = new
        taken[new] = name
    return found
