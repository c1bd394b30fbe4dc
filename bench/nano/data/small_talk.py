"""Greetings, identity, help, thanks and the like: one fixed answer per intent, many ways to ask."""

import re
from dataclasses import dataclass

from bench.nano.data.small_talk_phrasings import (
    GREETING,
    HELP,
    HOW_ARE_YOU,
    IDENTITY,
    JOKE,
    THANKS,
    combine,
)
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase


@dataclass(frozen=True, slots=True)
class Intent:
    """What a short message wants.

    Attributes:
        meaning: Ends the sentence "The user ...".
        opens: A greeting or "ok" may stand before it.
    """

    meaning: str
    answer: str
    bank: tuple[str, ...]
    opens: bool = True


# fmt: off
_BYE = (
    "bye|goodbye|good bye|bye bye|farewell|so long|see you|see ya|cya|see you later|see you soon"
    "|see you tomorrow|good night|talk to you later|talk to you soon|talk to you tomorrow|later"
    "|catch you later|catch you tomorrow|catch you soon|take care|until next time|until tomorrow"
    "|until later|see you next time|see you again soon|sleep well|have a nice day|have a good day"
    "|have a good one|have a great day|have a nice evening|have a good evening|have a great evening"
    "|have a good night|have a nice weekend|have a great weekend|have a nice one"
)
BYE = (
    *combine(_BYE) * 3,
    *combine(_BYE, "nano|bot|my friend|assistant|for now|for today|then|everyone|, take care"
             "|, bye|, goodbye|, good night"),
    *combine("ok|okay|well|alright|that's all|that is all|that was all|I am done|I have to go"
             "|I must go"
             "|I am off|I am leaving|I need to go|time to go|gotta go|I gotta go|I'm leaving|done"
             "|let us stop here|I am done for today|enough for today",
             ", bye|, goodbye|bye|, see you|, see you later|, good night|, bye bye|, bye then"),
    *combine("I have to|I must|I need to|I should|I will|I am going to|I want to|I gotta|gotta"
             "|got to"
             "|time to|it is time to|I've got to|let us|I better",
             "go|leave|go now|leave now|go home|go to bed|go to sleep|stop here|log off|sign off"
             "|quit|quit now|stop for today|say goodbye|say bye|log off now|sign off now"),
    *combine("that's all|that is all|that was all|that's it|that was it|I am done|we are done|done"
             "|I am finished|I'm done|finished|enough", "for today|from me|, bye|from my side"
             "|, goodbye|for tonight"),
    *combine("I am|I'm|I am now|so I am|and now I am", "leaving|leaving now|off|off now|off to bed"
             "|going|going home|going now|going to bed|going to sleep|signing off|logging off"
             "|signing off now|logging off now|out of here"),
    *combine("signing off|logging off|leaving|going home|off to bed|going to bed", "|now|, bye|then"
             "|, good night"),
    *combine("quit|exit|end|close|leave|stop", "chat|this chat|the chat|the conversation"
             "|this conversation|our chat|the session") + combine("quit|exit|:q", "|now|please"
             "|, bye"),
    *combine("auf Wiedersehen|tschüss|au revoir|adiós|hasta luego|hasta mañana|arrivederci|bis bald"
             "|bis morgen|bis später|à bientôt|sayonara|ade|do widzenia|vaarwel",
             "|nano|my friend|bot|, bye|, goodbye|then|for now"),
)
_THERE = (
    "there|here|still there|still here|online|alive|awake|ready|working|listening|up|running"
    "|up and running|available|active|connected|on|still online|still alive|still awake|responding"
    "|still working|reachable"
)
_TESTING = (
    "test|testing|a test|just a test|only a test|this is a test|this is just a test"
    "|this is only a test|it is a test|quick test|a quick test|a short test|a small test"
    "|just testing"
    "|only testing|I am testing|I am just testing|I am only testing|test message|a test message"
    "|this is a test message|connection test|a connection test|system test|first test|another test"
    "|one more test|test run|a test run|I want to test you|I want to test this|let me test you"
    "|let me test this|I need to test this|I need to test you|I just want to test you|test test"
)
TEST = (
    *combine("test|testing|ping|are you there|is this working|are you ready|is it working") * 10,
    *combine("are you|you|r u|are you still|nano, are you|so are you|are u", _THERE,
             "|now|right now|today|again|, nano"),
    *combine("is anyone|is anybody|is someone|is somebody|anyone|anybody|someone|somebody"
             "|is nobody",
             "there|here|home|online|listening|awake|available|at home|alive", "|now|today"
             "|, please"),
    *combine("is this|is it|is the model|is the chat|is the connection|is this thing|is the server"
             "|is this chat|is this bot|is the line|is this model|is the bot",
             "working|on|up|running|online|alive|ready|up and running|working now|still working"
             "|still on|working again|still online|active|connected|open"),
    *combine("does this|does it|does the model|does the chat|does this thing|do you"
             "|does the connection"
             "|does this chat|does this bot|does the bot|does this model",
             "work|still work|work now|work again|answer|respond|still answer|work today|react"
             "|still respond|react at all|answer at all"),
    *combine("can you|do you|could you|can u", "hear me|read me|read this|see this|see my message"
             "|read my message|hear this|get this|get my message|answer|answer me|respond"
             "|respond to me|see me|receive this|receive my message", "|now|again|at all|, nano"),
    *combine(_TESTING, "|123|1 2 3|one two three|now|again|here|please|, test|, ignore this|1"
             "|, ping"),
    *combine("one two|one two three|1 2 3|1 2|123|one two one two|1", ", test|test|testing"
             "|, testing"),
    *combine("ping|ping ping|ping pong|just a ping|a ping|quick ping|a quick ping|another ping"
             "|test ping|this is a ping|only a ping|one more ping|ping test",
             "|nano|bot|1|2|123|again|now|to you|, test|, are you there|, anyone there"),
    *combine("check|checking|a check|just checking|only checking|quick check|a quick check"
             "|just a check"
             "|I am checking|I am just checking|let me check|I want to check|I only want to check",
             "|if you are there|if you are here|if it works|if this works|if you work|if you answer"
             "|if you are online|the connection|if you are alive|if you are working|one two"
             "|if you are awake|if you can hear me|that it works|that you are there"),
    *combine("connection|status|sound|mic|line|health|system|alive", "check|test|check 1 2"
             "|check now"
             "|check again|test again|test now"),
    *combine("alive|ready|online|awake|listening|still there|still alive|still awake|still online"
             "|still ready|there|still working", "|now|today|again|or not|, nano|, bot"),
    *combine("knock knock|knock|knock knock knock", "|, are you there|, anyone there|, anybody home"
             "|, anyone home|, nano|, test|, is anyone there"),
    *combine("I want to see|let me see|I would like to see|I wonder|tell me", "if you are there"
             "|if you are online|if it works|if this works|if you work|if you answer|if you respond"
             "|if you are awake|if you are ready|if you can hear me|if you can read this"),
)
_YES = (
    "yes|yeah|yep|yup|yes yes|sure|of course|ok|okay|k|alright|all right|fine|right|exactly|correct"
    "|agreed|understood|noted|I see|got it|I understand|I got it|makes sense|sounds good"
    "|fair enough"
    "|no problem|no|nope|nah|no no|not really|maybe|perhaps|I guess|I guess so|I think so|hmm|hm"
    "|well|aha|ah|oh|indeed|absolutely|definitely|certainly|roger|ja|nein|oui|sí|never mind|I agree"
)
_ON = (
    "continue|go on|go ahead|carry on|proceed|keep going|move on|next|let's go|let's continue"
    "|let's go on|let us continue|let us go on|let us move on|let us proceed|let's proceed|do it"
    "|do that"
    "|do so"
)
ACKNOWLEDGEMENT = (
    *combine("ok|okay|yes|no|sure|continue|go on|alright|got it|fine|next|I see") * 6,
    *combine(_YES, "|then|, ok|, sure|, fine|, yes|, I see|, got it|, understood|, right"
             "|, of course"
             "|, exactly|, agreed|, I understand|, makes sense|, I guess"),
    *combine("|ok|okay|yes|sure|fine|right|well|no|alright|understood|yeah|please|I see", _ON,
             "|please|then|now|with it|with that"),
    *combine("that's|that is|this is|it is|it's|that sounds|this sounds|that seems|this seems"
             "|all is|that looks|this looks|it seems|it sounds||sounds|seems|looks",
             "ok|okay|fine|right|correct|all right|alright|true|clear", "for me|to me|with me|then"
             "||by me|indeed"),
    *combine("|that|this|it|all that|yes, that|ok, that|yes, it|ok, it|sure, that", "works"
             "|works fine"
             "|makes sense|sounds good|sounds fair|sounds reasonable|seems good|seems fair"
             "|seems reasonable|looks good|is enough|is fair enough",
             "|for me|to me|with me|for us|then|indeed"),
    *combine("|and|so|ok|well|ok, and|ok, so|yes, and|so, and|hmm,", "what now|what next|now what"
             "|what's next|what is next|now|then what|what then"),
    *combine("not|maybe|perhaps|maybe not|perhaps not|no, not|better|rather|well, not",
             "now|yet|today|later|really|sure|so sure|this time|right now|tomorrow"),
    *combine("I|well, I|hmm, I|yes, I|no, I|I really|I just", "guess|think|suppose|believe",
             "so|not|yes|no|that is right|that is fine|that is ok|that is true"),
    *combine("never mind|forget|don't mind|nevermind|do not mind|ignore", "it|that|this|it then"
             "|that then|about it|about that|that one"),
    *combine("no|no no|nope|oh no|nah|no no no", "thanks|, thanks|thank you|, thank you"
             "|, many thanks"),
)
_GOOD = (
    "great|awesome|good|nice|amazing|fantastic|wonderful|excellent|perfect|brilliant|super|cool"
    "|clever"
    "|smart|helpful|fast|impressive|lovely|cute|incredible|superb|kind"
)
PRAISE = (
    *combine("well done|good job|great job|nice|cool|great|perfect|wow|good bot|awesome") * 6,
    *combine("|very|really|so|simply|just|oh,|wow,|truly", _GOOD),
    *combine("you are|you're|u r|you were|nano, you are|I think you are",
             "|so|very|really|just|quite|too", _GOOD),
    *combine("that is|that was|this is|this was|it was|it is|that's|your answer is|your answer was"
             "|the answer was|the answer is|your help was|your work is|how",
             "|so|very|really|just", _GOOD),
    *combine(f"{_GOOD}|very good|very nice|really nice|so nice", "job|work|bot|answer|answers|reply"
             "|model|assistant|nano|one|robot|response|AI|, well done|, bravo|, wow|, I like it"
             "|, I love it|, keep it up"),
    *combine("I|I really|I do|we|I just|wow, I", "like|love|enjoy|admire|respect", "it|this|that"
             "|you"
             "|your answer|your answers|your work|your style|this bot|this model|this answer"
             "|your help"),
    *combine("well done|bravo|wow|respect|hats off|congratulations|kudos|yay|hurray|good job"
             "|great job|nice work|keep it up|chapeau", "|nano|bot|my friend|, great|, nice|to you"
             "|, good job|, great job|again|, you are great|, I like it|, that was great|, bravo"),
    *combine("you|you really|you always|nano, you", "did well|did great|did a good job"
             "|did a great job"
             "|did a nice job|did it well|answer well|answered well|work well|worked well"
             "|are the best|are the greatest|are a genius|are a star|did it|are my favorite"
             "|are the best bot|are my favorite bot"),
    *combine("what a|such a|that was a|this is a|that is a|you are a|what", "good|great|nice|clever"
             "|lovely|smart|wonderful|cute|fast|cool", "answer|bot|reply|job|response|assistant"),
)
# fmt: on

SKILLS = """I am very small, but I can do a few things:

- **Chat**: say hello and tell you who I am
- **Capitals**: name the capital of a country
- **Sums**: add numbers of up to three digits
- **Counting**: count up, down or in steps
- **Tools**: run commands, read and write files, call any function
- **JSON**: extract fields from a text
- **Copies**: repeat a text exactly
- **Changes**: rename and replace in code and files
- **Memory**: recall a passcode, a name or another fact"""

INTENTS = (
    Intent("greets me", "Hello! How can I help you today?", GREETING, opens=False),
    Intent(
        "asks who I am",
        "I am gpt-oss-nano, a tiny demonstration model in the gpt-oss architecture that speaks"
        " the harmony format.",
        IDENTITY,
    ),
    Intent("asks what I can do", SKILLS, HELP),
    Intent(
        "thanks me",
        "You're welcome! Let me know if you need anything else.",
        THANKS,
        opens=False,
    ),
    Intent("asks how I am", "I'm doing well, thank you! How can I help you?", HOW_ARE_YOU),
    Intent("says goodbye", "Goodbye! Have a great day.", BYE, opens=False),
    Intent("tests if I am here", "Yes, I am here and ready. How can I help you?", TEST),
    Intent(
        "only agrees or waits",
        "OK! What would you like to do next?",
        ACKNOWLEDGEMENT,
        opens=False,
    ),
    Intent("praises me", "Thank you! I am glad that you like it.", PRAISE, opens=False),
    Intent(
        "wants a joke",
        "Why did the tiny model cross the road? To get to the other token!",
        JOKE,
    ),
)
WEIGHTS = (20, 14, 12, 9, 8, 8, 7, 8, 5, 6)
_THANKED = re.compile("(?i)^(?!(oh )?(no|nah)).*(thank|thx)")
OPENERS = (
    "hi, ", "hey, ", "Hello! ", "hello, ", "Hi! ", "hey nano, ", "ok, ", "so, ", "well, ",
    "and ",
)  # fmt: skip
ENDINGS = (
    ".", "!", "?", "!!", "...", " :)", "??", " ;-)", " .", "\n",
)  # fmt: skip
ALL_MESSAGES = frozenset(text.lower().strip(".!? ") for intent in INTENTS for text in intent.bank)


def draw_small_talk(source: Source) -> tuple[str, Intent]:
    """Draw a short message and what it wants."""
    (intent,) = source.rng.choices(INTENTS, WEIGHTS)
    text = _phrase(source, intent)
    if source.chance(0.4):
        text = text[0].upper() + text[1:]
    if intent.opens and source.chance(0.15):
        text = source.choice(OPENERS) + text
    if source.chance(0.45):
        text = text.rstrip(".!?") + source.choice(ENDINGS)
    return text, intent


def _phrase(source: Source, intent: Intent) -> str:
    """Phrase it; `phrase` may add a thank-you, which alone would be another intent."""
    while True:
        text = phrase(source, intent.bank, ask=False)
        if intent.opens or intent.bank is THANKS or not _THANKED.search(text):
            return text
