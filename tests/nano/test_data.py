"""The conversations that nano is trained on: rendered as served, right, and split for good."""

import dataclasses
from collections import Counter

import pytest

from bench.nano.data.document import (
    Document,
    encode_answer,
    encode_document,
)
from bench.nano.data.mixture import EVAL_SKILLS, draw, draw_eval
from bench.nano.data.respell import Read, respell
from bench.nano.data.source import Source, escaped_texts, is_held_out
from bench.nano.data.wording import _allowed, _typo, phrase
from bench.nano.judge import is_right, parse
from bench.nano.train.vocabulary import choose_used, is_rude, joined_tokens
from gptoss_local.harmony import load_vocabulary
from gptoss_local.harmony.message import ChatRequest, Message
from gptoss_local.harmony.render import render_chat
from gptoss_local.models.nano.compact import load_compact
from gptoss_local.models.nano.ranks import load_ranks

N_DOCUMENTS = 60


def test_prompts_are_what_the_server_renders() -> None:
    """Context and branch, rendered apart, are the prompt of the whole conversation."""
    source = Source(7)
    for _ in range(N_DOCUMENTS):
        document = dataclasses.replace(draw(source), date="", identity="")
        context, branches = encode_document(document)
        for branch, tokens in zip(document.branches, branches, strict=True):
            whole = render_whole(document, branch.messages, opens_final=branch.opens_final)
            assert context + tokens.prompt == whole


def render_whole(
    document: Document, messages: tuple[Message, ...], *, opens_final: bool
) -> list[int]:
    """The whole conversation at once, behind the system message of the document."""
    alone = dataclasses.replace(
        document, instructions="", tools=(), context=(), branches=(), format=None
    )
    system, _ = encode_document(alone)
    first = (Message(role="system", content=document.instructions),)
    request = ChatRequest(
        messages=(first if document.instructions else ()) + document.context + messages,
        tools=document.tools,
        format=document.format,
        earlier_tokens=tuple(system),
    )
    rendered = render_chat(request, load_vocabulary())
    if opens_final:
        rendered += load_vocabulary().encode_tagged("<|channel|>final<|message|>")
    return rendered


@pytest.mark.parametrize("held_out", [False, True])
def test_every_answer_is_judged_right(held_out: bool) -> None:
    """The judge accepts each target, and no target of another branch in its place."""
    source = Source(8, held_out=held_out)
    for _ in range(N_DOCUMENTS):
        for branch in draw(source).branches:
            target = encode_answer(branch.answer, opens_final=branch.opens_final)
            assert is_right(parse(target, opens_final=branch.opens_final), branch), branch
            spoiled = dataclasses.replace(branch.answer, text=branch.answer.text + " x")
            target = encode_answer(spoiled, opens_final=branch.opens_final)
            assert not is_right(parse(target, opens_final=branch.opens_final), branch), branch


@pytest.mark.parametrize("skill", EVAL_SKILLS)
def test_evaluation_asks_for_the_skill(skill: str) -> None:
    document = draw_eval(skill, Source(9, held_out=True), 0)
    assert document.branches
    assert document == draw_eval(skill, Source(9, held_out=True), 0)  # reproducible


def test_values_and_phrasings_are_split() -> None:
    training, evaluation = Source(1), Source(1, held_out=True)
    for _ in range(50):
        for name in ("line", "path", "command", "person", "secret", "identifier"):
            assert not is_held_out(getattr(training, name)())
            assert is_held_out(getattr(evaluation, name)())
    bank = tuple(f"Do number {i}: {{x}}" for i in range(100))
    parts = [set(_allowed(bank, held_out)) for held_out in (False, True)]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(bank)


def test_a_phrasing_never_touches_its_value() -> None:
    source = Source(3)
    for _ in range(500):
        value = source.line()
        assert value in phrase(source, ("Reply with {x} only.", "Please say: {x}"), x=value)


def test_typos_reach_every_long_word_and_leave_it_readable() -> None:
    source, template = Source(5), "What's the capital of {x}? Countdown, please!"
    spoiled: Counter[str] = Counter()
    for _ in range(300):
        typed = _typo(source, template)
        pairs = [p for p in zip(template.split(), typed.split(), strict=True) if p[0] != p[1]]
        assert len(pairs) <= 2
        for right, wrong in pairs:
            assert abs(len(right) - len(wrong)) <= 1
            assert right[0] == wrong[0]
        spoiled.update(right for right, _ in pairs)
    assert set(spoiled) == {"capital", "Countdown,", "please!"}
    assert min(spoiled.values()) > 60


def test_lines_end_in_signs_that_join_with_a_newline() -> None:
    """A tool's arguments spell that newline `\\n`, so the joined token cannot be copied."""
    source, encode = Source(6), load_vocabulary().encoding.encode
    last = [load_vocabulary().token_bytes[encode(source.line() + "\n")[-1]] for _ in range(600)]
    assert sum(token != b"\n" for token in last) > 30


def test_training_meets_signs_that_json_spells_otherwise() -> None:
    """A token like `="./` is its own letter: only who has met it knows how it is written."""
    escaped = [text for text in escaped_texts() if len(text.strip()) > 2]
    assert {'="./', "\\Queue"} < set(escaped)

    def share(source: Source) -> float:
        texts = [source.tokens(8) for _ in range(600)]
        return sum(any(text in each for text in escaped) for each in texts) / len(texts)

    assert share(Source(1)) > share(Source(1, held_out=True)) + 0.06


def test_capitals_and_typos_are_more_frequent_to_learn_from() -> None:
    bank = ("What is the capital of {x}",)

    def n_dressed(source: Source) -> tuple[int, int]:
        asked = [phrase(source, bank, x="-") for _ in range(2000)]
        n_spelled = sum("what is the capital of" in text.lower() for text in asked)
        return sum("CAPITAL OF" in text for text in asked), len(asked) - n_spelled

    for trained, measured in zip(
        n_dressed(Source(1)), n_dressed(Source(1, held_out=True)), strict=True
    ):
        assert trained > 1.3 * measured > 0


def test_rare_words_keep_the_tokens_they_were_read_with() -> None:
    encode = load_vocabulary().encoding.encode

    def spelled(prompt: str, answer: str) -> list[bytes]:
        tokens = respell(encode(answer), Read(encode(prompt)))
        return [load_vocabulary().token_bytes[token] for token in tokens]

    assert spelled('"Springfield"', "It is Springfield")[2:] == [b" ", b"Spring", b"field"]
    assert spelled("in Springfield", "It is Springfield")[2:] == [b" Springfield"]
    assert spelled("in Moscow", "Springfield is") == [b"Spring", b"field", b" is"]
    assert spelled("Say kapatrius", "kapatrius") == [b"kap", b"atri", b"us"]  # k apat ri us alone
    for word in (b"server", b"key"):  # "(key" is common
        name = word.decode()
        read = f"f({name}) and {name}_owner"
        assert spelled(read, f"f({name})") == [b"f", b"(" + word, b")"]
        assert spelled(read, f"f({name}_owner)") == [b"f", b"(", word, b"_owner", b")"]
    assert spelled("show_it", "functions.show_it") == [b"functions", b".show", b"_it"]
    assert spelled("ns and 'n'", "\\n") == [b"\\n"]
    for read in ("nothing", '"commas"', '"Finland"'):
        assert spelled(read, "no commas") == [b"no", b" commas"]
        assert spelled(read, "of Finland") == [b"of", b" Finland"]


def test_respelled_answers_are_the_same_text() -> None:
    source, decode = Source(4), load_vocabulary().encoding.decode
    for _ in range(N_DOCUMENTS):
        document = draw(source)
        for branch, tokens in zip(document.branches, encode_document(document)[1], strict=True):
            canonical = encode_answer(branch.answer, opens_final=branch.opens_final)
            assert decode(tokens.target) == decode(canonical)


def test_joined_signs_get_rows_of_their_own() -> None:
    """No code says that JSON has `="./` as `=`, `\\"`, `./`; of words it says the pieces."""
    ranks = load_ranks()
    joined = {ranks[token] for token in joined_tokens()}
    assert {b'="./', b'("")', b' "",', b"='\\", b"%;\n", b":\n\n"} < joined
    assert not {b'"value', b"\\Queue", b'"', b"\n", b"name\n", b" Springfield"} & joined
    used = choose_used(3000, n_documents=4, n_jobs=1, kept=(123_456,))
    assert len(used) == 3000
    assert joined_tokens() | {123_456} < set(used)
    assert not any(map(is_rude, used))


def test_nothing_rude_has_a_row_of_its_own() -> None:
    """Tokens without one can only be copied: nothing has taught the model to say them."""
    rude = [token for token in load_compact().used_ids.tolist() if is_rude(token)]
    assert not rude
    assert sum(map(is_rude, range(len(load_ranks())))) > 50  # the list does find them


def test_no_answer_spells_a_tag() -> None:
    """Text is encoded as text; an answer with a tag in it could not be said."""
    for seed in range(3):
        for branch in draw(Source(seed)).branches:
            assert "<|" not in branch.answer.text
