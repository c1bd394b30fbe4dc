"""What people tell of themselves: how they say it, correct it, ask for it, and get it back."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.nano.data import words
from bench.nano.data.extract_fields import MONTHS, clock_time
from bench.nano.data.small_talk_phrasings import combine
from bench.nano.data.source import Source

_COLORS = ("red", "blue", "green", "yellow", "purple", "orange", "black", "white", "pink", "brown")
_FOODS = (
    "pizza", "soup", "sushi", "pasta", "curry", "bread", "cheese", "rice", "salad", "pancakes",
    "dumplings", "tacos", "noodles", "apple pie", "chocolate", "strawberries", "lasagna",
)  # fmt: skip
_JOBS = (
    "teacher", "doctor", "baker", "pilot", "farmer", "nurse", "painter", "carpenter", "librarian",
    "plumber", "gardener", "chemist", "sailor", "dentist", "tailor",
)  # fmt: skip
# How sentences begin that tell, correct or ask for any fact.
_TOLD = (
    "|Remember that|Remember:|Please remember:|Please remember that|Note:|Note that"
    "|Please note that"
    "|FYI|FYI:|Just so you know,|You should know that|I tell you that|Keep in mind that|Also,|And"
    "|Hello,|By the way,|So,"
)
_CORRECTED = (
    "Actually,|Sorry,|Sorry, I was wrong:|Correction:|No wait,|No,|Wait,|Oh wait,|I was wrong:"
    "|Wrong,|Oh no,|Now|From now on|Actually, no:|Oh, sorry:"
)
_ASKED = (
    "|What is|what is|what's|What was|Tell me|Do you remember|Do you know|Can you tell me"
    "|Remind me of"
    "|Say|So what is|And what is|Give me|Please tell me|Do you still know|Now tell me|Can you say"
    "|I forgot|What did I say is|Which one is"
)
_ASKED_WHAT = (
    "Tell me|Do you remember|Do you know|Can you tell me|I forgot|Remind me|Say|Please tell me"
    "|Do you still know|Now tell me|I want to know|Can you say|I don't remember"
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about the user.

    Attributes:
        told: Sentences that tell it, with the value as `{v}`.
        corrected: Sentences that tell that it is another value now.
        asked: Questions for it.
        answer: The one answer to these.
    """

    draw: Callable[[Source], str]
    told: tuple[str, ...]
    corrected: tuple[str, ...]
    asked: tuple[str, ...]
    answer: str


def _plain(subject: str, draw: Callable[[Source], str], *others: str) -> Fact:
    """A fact of the form "My SUBJECT is VALUE."; `others` are more sentences that tell it."""
    return Fact(
        draw,
        (
            *combine(_TOLD, f"my {subject} is {{v}}", ".|"), *others,
            *combine(f"My {subject}|my {subject}|Note my {subject}|And my {subject}", ": {v}", "."
                     "|"),
            *combine("|Remember that|Note that", f"{{v}} is my {subject}."
                     f"|{{v}} is now my {subject}."),
        ),
        (
            *combine(_CORRECTED, f"my {subject} is {{v}}|my {subject} is now {{v}}", ".|"),
            *combine("|Actually,|Sorry,|No,", f"my {subject} has changed, it is {{v}}"
                     f"|my {subject} is {{v}} from now on|I changed my {subject}, it is {{v}}",
                     "now.|."),
        ),
        (
            *combine(_ASKED, f"my {subject}|my own {subject}", "?|"),
            *combine(_ASKED_WHAT, f"what my {subject} is|what my {subject} was"
                     f"|which {subject} I have|which {subject} I told you", "?|."),
            *combine("What did I say|What did I tell you|What do you know", f"my {subject} is?|my"
                     f" {subject} was?|about my {subject}?|is my {subject}?"),
            *combine("I forgot|I don't remember|I want to know", f"my {subject}", ". What is it?"
                     "|, what is it?|. What was it?"),
            *combine("Which|What", f"{subject} do I have|{subject} did I tell you"
                     f"|{subject} is mine|{subject} did I mention|{subject} was it", "?|"),
        ),
        f"Your {subject} is {{v}}.",
    )  # fmt: skip


def _first_name(source: Source) -> str:
    def draw() -> str:
        kind = source.rng.randrange(10)
        if kind < 2:
            return source.choice(words.FIRST_NAMES)
        return (source.token_word() if kind < 5 else source.invented()).capitalize()

    return source.fresh(draw)


def _rare_word(source: Source) -> str:
    return source.fresh(lambda: source.token_word() if source.chance(0.6) else source.invented())


def _known_or_rare(options: tuple[str, ...]) -> Callable[[Source], str]:
    return lambda source: source.choice(options) if source.chance(0.65) else _rare_word(source)


def _birthday(source: Source) -> str:
    return f"{source.choice(MONTHS)} {source.rng.randint(1, 28)}"


def _number(source: Source) -> str:
    return str(source.rng.randrange(10 ** source.rng.randint(1, 5)))


def _called(subject: str) -> Fact:
    """A fact of the form "My SUBJECT is called VALUE."."""
    return Fact(
        _first_name,
        (
            *combine(_TOLD, f"my {subject} is called {{v}}|my {subject}'s name is {{v}}"
                     f"|the name of my {subject} is {{v}}|my {subject} is named {{v}}", ".|"),
            *combine("I have a|I own a|We have a|i have a|I got a", f"{subject}",
                     "called {v}|named {v}|, its name is {v}|and its name is {v}", ".|"),
            *combine("I named|I called|We named|We called", f"my {subject}|our {subject}",
                     "{v}", ".|"),
            f"{{v}} is the name of my {subject}.", f"{{v}} is my {subject}'s name.",
            f"Remember the name of my {subject}: {{v}}", f"The name of my {subject}: {{v}}",
        ),
        (
            *combine(_CORRECTED, f"my {subject} is called {{v}}|my {subject}'s name is {{v}}"
                     f"|the name of my {subject} is {{v}}|my {subject} is now called {{v}}", ".|"),
            *combine("I renamed|Actually, I renamed|Sorry, I renamed", f"my {subject}",
                     ", it is called {v}|, its name is {v}|, it is now called {v}", "now.|."),
        ),
        (
            *combine(_ASKED, f"the name of my {subject}|my {subject}'s name", "?|"),
            *combine(_ASKED_WHAT, f"what my {subject} is called|how my {subject} is called"
                     f"|what my {subject}'s name is|which name my {subject} has", "?|."),
            *combine("What is|How is|what is|how is|What did I say is", f"my {subject}",
                     "called|named|called again", "?|"),
            *combine("Which name|What name", f"does my {subject} have|has my {subject}"
                     f"|did I give my {subject}|did my {subject} get", "?|"),
        ),
        f"Your {subject} is called {{v}}.",
    )  # fmt: skip


# fmt: off
NAME = Fact(
    Source.person,
    (*combine("|Hi,|Hello,|hello!|Hey,|Good morning,|Good evening,|By the way,|Remember:"
    "|Remember that|Note:"
              "|Let me introduce myself:|Just so you know,|So,|Please note:", "my name is {v}"
              "|I am {v}"
              "|I'm {v}|my name's {v}|call me {v}|you can call me {v}|people call me {v}"
              "|they call me {v}"
              "|this is {v} speaking|I am called {v}|{v} is my name|my friends call me {v}", ".|"),
     *combine("Hi,|Hello,|Hey,|Good morning,", "{v} here", ".|")),
    (*combine(_CORRECTED, "my name is {v}|I am called {v}|call me {v}|I am {v}|my name is now {v}"
              "|call me {v} from now on|you can call me {v}", ".|"),
     *combine("|Actually,|Sorry,", "I changed my name to {v}|I changed my name, it is {v} now",
              ".|")),
    (*combine(_ASKED, "my name|my own name", "?|"),
     *combine(_ASKED_WHAT, "what my name is|who I am|what I am called|how I am called"
              "|which name I told you|what my name was|which name I gave you", "?|."),
     *combine("Who|What|How", "am I|am I called|did I say I am|did I say I am called", "?|"),
     *combine("What did I say|What did I tell you", "my name is|my name was|is my name", "?|"),
     *combine("Which name|What name", "did I give you|did I tell you|do I have|is mine", "?|"),
     *combine("I forgot|I don't remember", "my name|who I am", ". What is it?|, who am I?"
              "|. Tell me.")),
    "Your name is {v}.",
)
_LIVES = Fact(
    Source.city,
    (*combine(_TOLD, "I live in {v}|my home is in {v}|my house is in {v}|my home town is {v}"
              "|I am at home in {v}|I live in the city of {v}|the city that I live in is {v}"
              "|I moved to {v}|I have lived in {v} for years", ".|"),),
    (*combine(_CORRECTED, "I live in {v}|my home is in {v}|I moved to {v}|I have moved to {v}"
              "|I live in {v} now|my home town is {v}", ".|"),),
    (*combine(_ASKED, "the city that I live in|my home town|the city I live in", "?|"),
     *combine(_ASKED_WHAT, "where I live|where my home is|in which city I live"
              "|which city I live in", "?|."),
     *combine("Where|In which city|In what city|where|In which town", "do I live|is my home"
              "|is my house"
              "|am I at home", "?|"),
     *combine("Which city|What city|Which town", "do I live in|is my home|is my home town", "?|")),
    "You live in {v}.",
)
_WORK = Fact(
    _known_or_rare(_JOBS),
    (*combine(_TOLD, "I work as a {v}|my job is {v}|I am a {v} by profession|I am a {v} by trade"
              "|I work as a {v} for a living|I earn my money as a {v}|my profession is {v}", "."
              "|"),),
    (*combine(_CORRECTED, "I work as a {v}|my job is {v}|I work as a {v} now|my profession is {v}"
              "|I have a new job, I work as a {v}", ".|"),),
    (*combine(_ASKED, "my job|my profession|my trade", "?|"),
     *combine(_ASKED_WHAT, "what my job is|what I work as|what I do for a living"
              "|what my profession is", "?|."),
     *combine("What do I|As what do I|what do I", "work as|do for a living|work|do as a job", "?"
              "|")),
    "You work as a {v}.",
)
_MEETING = Fact(
    clock_time,
    (*combine(_TOLD, "the meeting is at {v}|the meeting starts at {v}|our meeting is at {v}"
              "|the meeting begins at {v}|we have the meeting at {v}|the meeting will be at {v}"
              "|our meeting starts at {v}", ".|"),),
    (*combine(_CORRECTED, "the meeting is at {v}|the meeting was moved to {v}"
    "|the meeting starts at {v}"
              "|the meeting is at {v} now|our meeting is at {v}", ".|"),),
    (*combine(_ASKED, "the time of the meeting|the meeting time|the time of our meeting", "?|"),
     *combine(_ASKED_WHAT, "when the meeting is|when the meeting starts|when our meeting is"
              "|at what time the meeting is|when we meet", "?|."),
     *combine("When|At what time|at which time|what time|At which time", "is the meeting"
              "|is our meeting"
              "|does the meeting start|does the meeting begin|do we meet"
              "|do we have the meeting", "?|")),
    "The meeting is at {v}.",
)
OTHERS: tuple[Fact, ...] = (
    _LIVES, _LIVES, _WORK, _MEETING, _called("dog"), _called("dog"), _called("cat"),
    _called("boat"), _called("horse"), _called("robot"), _called("parrot"), _called("hamster"),
    _called("company"),
    _plain("favorite color", _known_or_rare(_COLORS), "My favourite color is {v}."),
    _plain("favorite food", _known_or_rare(_FOODS), "The food that I like best is {v}."),
    _plain("favorite number", _number, "The number I like most is {v}."),
    _plain("favorite word", _rare_word, "The word I like most is {v}."),
    _plain("favorite city", Source.city),
    _plain("birthday", _birthday, "I was born on {v}."),
    _plain("password", Source.secret), _plain("code", Source.secret),
    _plain("ticket number", _number), _plain("locker code", Source.secret),
    _plain("room number", _number), _plain("age", lambda s: str(s.rng.randint(5, 99))),
    _plain("user name", Source.identifier), _plain("branch name", Source.identifier),
    _plain("best friend", _first_name), _plain("sister", _first_name),
    _plain("brother", _first_name), _plain("teacher", _first_name),
    _plain("hobby", _rare_word), _plain("team", _first_name),
)
# fmt: on
