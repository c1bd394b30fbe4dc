"""The next tokens of a sequence: sampled, held against its mask, and forced by it."""

from collections.abc import Sequence as Seq

from gptoss_local.engine.prefix_cache import PrefixCache
from gptoss_local.engine.sequence import Sequence
from gptoss_local.errors import EngineError
from gptoss_local.llama import Context


def draw(sequence: Sequence, context: Context, row: int, draft: Seq[int] = ()) -> list[int]:
    """Sample from row `row` of the last batch, and add what the mask says must follow.

    A token that is not allowed is drawn again among those that are. This is exact: what comes out
    has p(allowed) * p(x | allowed) + (1 - p(allowed)) * p(x | allowed) = p(x | allowed). With
    filters such as top_p the first draw filters all tokens and the second one the allowed tokens,
    so that there is always one left.

    Args:
        sequence: Whose token it is.
        context: Where the batch was decoded.
        row: The row of its last token; those of `draft` follow.
        draft: What was decoded behind it. As long as the drawn token is the one in the draft, the
            next one can be drawn from the next row.

    Returns:
        One token, and those after it that a draft had right, or that the mask forces; nothing if
        the device drew one that is not allowed, and the row must be computed again for the CPU,
        which then draws only the second time.

    Raises:
        EngineError: the mask cannot go on.
    """
    mask, sampler = sequence.mask, sequence.sampler
    if mask is None:
        tokens = [sampler.sample(context, row)]
        for guess in draft:
            if tokens[-1] != guess or guess in sequence.request.stop_tokens:
                break
            tokens.append(sampler.sample(context, row + len(tokens)))
        return tokens
    if not mask.is_rejected:
        token = sampler.sample(context, row)
        if mask.accept(token):
            return [token, *mask.accept_forced()]
        if sampler.is_bound:
            return []
    token = sampler.sample_allowed(context, row, mask.allowed())
    if not mask.accept(token):
        raise EngineError(f"the answer's format allows token {token} and refuses it")
    return [token, *mask.accept_forced()]


def move_to_cpu(sequence: Sequence, context: Context, cache: PrefixCache) -> None:
    """Sample on the CPU from now on, and take back the last token, as its logits are not here.

    It can be decoded again at once, as the sliding window has not moved on. There is no way back
    to the device within an answer: a move costs as much as a hundred tokens on the CPU.
    """
    slot = sequence.slot
    if slot is None:
        raise RuntimeError("a drawn sequence has no slot")
    sequence.sampler.unbind()
    context.detach_chain(slot.index)
    cache.rewind(slot, len(slot.tokens) - 1)
