"""Generic function calling: any declared function, one call or two, and reports of results.

The families and their phrasings are in the `functions_*` modules; coding agents' tools are the
business of others.
"""

from collections.abc import Callable

from bench.nano.data.ability import Ability, Toolset, arguments_json, call_and_result
from bench.nano.data.document import Answer, Branch
from bench.nano.data.functions_families import FAMILIES
from bench.nano.data.functions_invented import draw_invented_ability
from bench.nano.data.functions_request import FunctionAbility, Request, draw_family_ability
from bench.nano.data.functions_results import draw_result, report
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

BANK = banks("functions")

_PAIR = "{a} and {b}|{a} and in {b}|{a}, then in {b}|both {a} and {b}|{a} and also in {b}"
_PAIR_OF = _PAIR.replace(" in {b}", " of {b}")
_SLOT_ALIKE = {"weather": "city", "city_time": "city", "stock": "symbol"}


def draw_functions(source: Source) -> list[Ability]:
    """Declare one to four functions with different roles and names."""
    abilities: dict[str, Ability] = {}
    n = source.rng.randint(1, 4)
    families = source.rng.sample(FAMILIES, n)
    if source.chance(0.25):
        families[0] = FAMILIES[0]
    for index, family in enumerate(families):
        if source.chance(0.45):
            role = "invented" if index == 0 else f"invented_{index}"
            ability = draw_invented_ability(source, role)
        else:
            ability = draw_family_ability(source, family)
        if all(a.role != ability.role for a in abilities.values()):
            abilities.setdefault(ability.tool.name, ability)
    return list(abilities.values())


def _pick(source: Source, toolset: Toolset) -> FunctionAbility | None:
    fitting = [a for a in toolset.abilities.values() if isinstance(a, FunctionAbility)]
    return source.choice(fitting) if fitting else None


def _function_call(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    ability = _pick(source, toolset)
    if ability is None:
        return None
    request = ability.ask(source, False)
    messages = (*_earlier(source, toolset), _user(request.text))
    name, arguments = ability.tool.name, ability.fill(request.slots)
    analysis = _call_analysis(effort, name, arguments, request.need)
    return Branch("function_call", messages, _call(name, arguments, analysis))


def _function_report(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    ability = _pick(source, toolset)
    if ability is None:
        return None
    request = ability.ask(source, False)
    exchange, final = _exchange(source, effort, ability, request)
    messages = (*_earlier(source, toolset), *exchange)
    analysis = _report_analysis(effort, ability.tool.name, final)
    return Branch("function_report", messages, Answer(final, analysis))


def _function_two(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    first, second = _pick(source, toolset), _pick(source, toolset)
    if first is None or second is None:
        return None
    text, one, two = _ask_two(source, first, second)
    calls = [(a.tool.name, a.fill(r.slots)) for a, r in ((first, one), (second, two))]
    analyses = [_two_analysis(effort, step, calls) for step in range(3)]
    messages = [*_earlier(source, toolset), _user(text)]
    n_done = source.rng.randrange(3)
    reports: list[str] = []
    for index, (ability, request) in enumerate(((first, one), (second, two))[:n_done]):
        result = draw_result(source, ability.role)
        messages += call_and_result(*calls[index], result, reasoning=analyses[index])
        reports.append(_report(ability, request, result))
    if n_done == 2:
        answer = Answer("\n\n".join(reports), analyses[2])
    else:
        answer = _call(*calls[n_done], analyses[n_done])
    return Branch("function_two", tuple(messages), answer)


BRANCHES: dict[str, Callable[[Source, Effort, Toolset], Branch | None]] = {
    "function_call": _function_call,
    "function_report": _function_report,
    "function_two": _function_two,
}


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _call(name: str, arguments: dict[str, object], analysis: str) -> Answer:
    return Answer(arguments_json(arguments), analysis, name)


def _exchange(
    source: Source, effort: Effort, ability: FunctionAbility, request: Request
) -> tuple[tuple[Message, ...], str]:
    """A request, its call and its result; and how the model reports that."""
    name, arguments = ability.tool.name, ability.fill(request.slots)
    result = draw_result(source, ability.role)
    reasoning = _call_analysis(effort, name, arguments, request.need)
    call = call_and_result(name, arguments, result, reasoning=reasoning)
    return (_user(request.text), *call), _report(ability, request, result)


def _earlier(source: Source, toolset: Toolset) -> tuple[Message, ...]:
    """Now and then a finished exchange about another request."""
    ability = _pick(source, toolset)
    if ability is None or not source.chance(0.3):
        return ()
    messages, final = _exchange(source, "low", ability, ability.ask(source, False))
    return (*messages, Message(role="assistant", content=final))


def _report(ability: FunctionAbility, request: Request, result: str) -> str:
    return report(ability.tool.name, ability.role, request.slots.get("city", ""), result)


def _ask_two(
    source: Source, first: FunctionAbility, second: FunctionAbility
) -> tuple[str, Request, Request]:
    """One message that wants two things, and the two requests in it."""
    one, two = first.ask(source, True), second.ask(source, True)
    slot = _SLOT_ALIKE.get(first.role, "")
    if first is second and one.slots.keys() == two.slots.keys() == {slot} and source.chance(0.6):
        values = {"a": one.slots[slot], "b": two.slots[slot]}
        return phrase(source, BANK.TWO_ALIKE[first.role], ask=False, **values), one, two
    if one.thing and two.thing and source.chance(0.6):
        return phrase(source, BANK.TWO_THINGS, ask=False, a=one.thing, b=two.thing), one, two
    text = phrase(source, BANK.TWO_REQUESTS, ask=False, a=_ended(one.text), b=two.text)
    return text, one, two


def _ended(text: str) -> str:
    return text if text.endswith((".", "?", "!", ":")) else text + "."


def _named(arguments: dict[str, object]) -> str:
    """Argument names for an analysis."""
    names = [f"`{name}`" for name in arguments]
    if not names:
        return "It needs no arguments."
    joined = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"I fill in {joined} from the message."


def _call_analysis(effort: Effort, name: str, arguments: dict[str, object], need: str) -> str:
    if effort == "low":
        return ""
    if effort == "medium":
        return f"{need} I call `{name}`."
    return (
        f"{need} So `{name}` is the function to call. {_named(arguments)} "
        "Nothing else is needed. I call it now."
    )


def _report_analysis(effort: Effort, name: str, final: str) -> str:
    if effort == "low":
        return ""
    if effort == "medium":
        return "The tool answered, so I report the result."
    if not final.startswith("`"):
        how = "It has a temperature and a condition. I say both in one sentence."
    elif "\n" in final:
        how = "It has several lines. I repeat them in a code fence."
    elif final == f"`{name}` answered nothing.":
        how = "There is no text. I say so."
    else:
        how = "It has one line. I repeat it as it is."
    return f"The function `{name}` has answered. The request is done. {how}"


def _two_analysis(effort: Effort, step: int, calls: list[tuple[str, dict[str, object]]]) -> str:
    """What the model thinks before the first call, the second, and the report."""
    if effort == "low":
        return ""
    if step == 2:
        if effort == "medium":
            return "Both results are here, so I report them."
        return "Both functions have answered. Nothing is left to call. I report both in order."
    name, arguments = calls[step]
    if effort == "medium":
        begin = "One result is here. Next" if step else "The user wants two things. First"
        return f"{begin} I call `{name}`."
    begin = "The first result is here. The second thing is left." if step else (
        "The user wants two things. I do one after the other."
    )  # fmt: skip
    return f"{begin} The function for it is `{name}`. {_named(arguments)} I call it now."
