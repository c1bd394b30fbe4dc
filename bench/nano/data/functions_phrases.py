"""How people ask for what the functions of every API's documentation know, by role.

`functions_deeds` holds the requests to do something. A template is written once per clause;
`combine` multiplies the clauses. Which values fill the slots is up to `functions_families`.
"""

from typing import NamedTuple

from bench.nano.data.wording import combine


class Phrasings(NamedTuple):
    """Templates with the same slots.

    Attributes:
        ask: They begin with a verb, so "please" may go before them.
        bare: The slot of free text that ends all of them, and so needs no quotes.
    """

    templates: tuple[str, ...]
    ask: bool = True
    bare: str = ""


def one_per_line(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().split("\n"))


_TELL = "Tell me|Show me|Get|Check|Look up|Give me|Find out|Fetch|Get me"

QUESTIONS: dict[str, tuple[Phrasings, ...]] = {
    "weather": (
        Phrasings(combine(_TELL, "the weather|the current weather|the weather conditions",
                          "in {city}|for {city}|in {city}.|in {city} right now|for {city} today.")),
        Phrasings(combine("What is|What's|How is|whats|hows", "the weather|the weather like",
                          "in {city}?|in {city} today?|in {city}|in {city} right now?"), ask=False),
        Phrasings(combine("Is it raining|Is it sunny|Is it snowing|Is it warm|Is it cold|"
                          "How warm is it|How cold is it|How hot is it|How is the weather|"
                          "Do I need an umbrella|Do I need a coat|Do I need sunglasses|"
                          "Will I need an umbrella|Should I take a coat|Should I take an umbrella|"
                          "What temperature is it|Any rain|Any snow|Which weather do you see|"
                          "How does the weather look|What weather do we have|"
                          "What weather should we expect|What weather do I have to expect|"
                          "Do you know what the weather is like|Do you know how warm it is",
                          "in {city}?|in {city} today?|in {city} right now?|over in {city}?|"
                          "in {city} at the moment?"), ask=False),
        Phrasings(combine("I am in|I'm in|I am going to|I'm travelling to|We are visiting|"
                          "My friend lives in|We are flying to|I live in|My sister is in",
                          "{city}.|{city} today.", "What is the weather there?|"
                          "How is the weather over there?|What weather do we have to expect?|"
                          "Do I need an umbrella?|Should I take a coat?|Is it raining there?|"
                          "How warm is it there?"), ask=False),
        Phrasings(combine("Weather|Current weather|Weather conditions|Temperature|Weather now|"
                          "I would like to know the weather|I want to know the weather|"
                          "I wonder what the weather is|I need the weather",
                          "in {city}|for {city}|in {city} right now|: {city}|in {city} today.|"
                          "in {city}, please")
                  + combine("{city}", "weather|: weather?|weather now|temperature|weather today"
                            ), ask=False),
        Phrasings(combine(_TELL, "the weather|the temperature", "in {city} in {unit}|"
                          "in {city} in degrees {unit}.|in {city}, in {unit}|in {city} ({unit})|"
                          "in {city} with {unit} as the unit.")),
        Phrasings(combine("What is|What's|whats", "the weather|the weather like|the temperature",
                          "in {city} in {unit}?|in {city}, in {unit}?|in {city}? Use {unit}.|"
                          "in {city} (in {unit})?|in {city} in degrees {unit}"), ask=False),
    ),
    "city_time": (
        Phrasings(combine(_TELL, "the time|the current time|the local time",
                          "in {city}|in {city}.|in {city} right now|for {city}.")),
        Phrasings(combine("What time is it|What's the time|What is the local time|whats the time|"
                          "Which time is it|What does the clock say|How late is it",
                          "in {city}?|in {city}|in {city} right now?|over in {city}?"), ask=False),
        Phrasings(combine("I am in|I want to call someone in|My sister is in|My friend lives in|"
                          "I need to call a friend in|We are flying to", "{city}.",
                          "What time is it there?|What is the time there?|How late is it there?|"
                          "What is the local time there?|Is it already night? Tell me the time."
                          "|I need the time there."), ask=False),
        Phrasings(combine("Time|Current time|Local time|Time now|The time|I need the time|"
                          "Do you know the time|Do you know what time it is|I want to know the time"
                          "|Is it already night? Tell me the time|Is it late? What is the time",
                          "in {city}|in {city}?|in {city} right now|: {city}|for {city}")
                  + combine("{city}", "time|: time?|time now|local time|, current time"),
                  ask=False),
    ),
    "stock": (
        Phrasings(combine(_TELL, "the stock price|the share price|the stock quote",
                          "of {symbol}|for {symbol}.|of {symbol} right now|of {symbol} shares.")),
        Phrasings(combine("What is|What's|How high is|whats", "the stock price|the share price",
                          "of {symbol}?|of {symbol} right now?|for {symbol}|of {symbol} today?"),
                  ask=False),
        Phrasings(combine("How much is|How much does|How high is|What does|What is",
                          "one share of {symbol} cost?|a share of {symbol} cost today?|"
                          "{symbol} stock cost?|the stock of {symbol} worth?|{symbol} trading at?|"
                          "one {symbol} share worth right now?|{symbol} stock trading at today?"),
                  ask=False),
        Phrasings(combine("I own|I have|I bought|My friend owns|I want to buy",
                          "shares of {symbol}.|"
                          "{symbol} stock.|stocks of {symbol}.|{symbol} shares.",
                          "What is one worth?|What is the price?|How is the stock doing?|"
                          "How much does a share cost?|What does it trade at?"), ask=False),
        Phrasings(combine("Stock price|Stock quote|Price of stock|Share price|Current stock price|"
                          "How is the stock doing|Where is the stock trading",
                          ": {symbol}|of {symbol}|for {symbol}|{symbol}|of {symbol} today")
                  + combine("{symbol}", "stock price|stock|share price|stock quote|: stock price?"),
                  ask=False),
    ),
    "currency": (
        Phrasings(combine("Convert|Change|Exchange|Turn|Calculate", "{amount} {origin}",
                          "to {target}|into {target}.|to {target} for my trip.|into {target}")),
        Phrasings(combine("How much is|How much are|What is|What are|How many {target} are",
                          "{amount} {origin}", "in {target}?|worth in {target}?|in {target}"),
                  ask=False),
        Phrasings(combine("I have|I got|I paid|A hotel costs|A ticket costs|My bill is|I need",
                          "{amount} {origin}.", "How much is that|What is that|What would that be|"
                          "How much would that be|What is that worth", "in {target}?|"
                          "in {target} today?"), ask=False),
        Phrasings(combine("How many {target} do I get|What do I get in {target}|"
                          "How much {target} do I get|How many {target} would I get|"
                          "What would I get in {target}", "for {amount} {origin}?|"
                          "if I exchange {amount} {origin}?|if I change {amount} {origin}?|"
                          "when I pay {amount} {origin}?"), ask=False),
        Phrasings(combine("If I exchange|If I change|When I exchange", "{amount} {origin},",
                          "how many {target} do I get?|what do I get in {target}?|"
                          "how much {target} would I get?"), ask=False),
        Phrasings(combine("|Currency:|Exchange:|Convert:", "{amount} {origin}", "in {target}|"
                          "to {target}?|-> {target}|into {target}"), ask=False),
    ),
    "web_search": (
        Phrasings(combine("Search the web|Search the internet|Do a web search|Search online|Google",
                          "for {query}|for {query}.|for {query} right now.")
                  + combine("Look up|Google|Find information about|Search for",
                            "{query}", "online.|on the web|on the internet.|on the web for me.")),
        Phrasings(combine("Search the web|Search the internet|Do a web search|Search online",
                          "for {query}|for: {query}|for this: {query}|for\n{query}"), bare="query"),
        Phrasings(combine("What does the web say|What does the internet know|"
                          "What does the web know|What does the internet say|What do web pages say|"
                          "Is there anything on the web|Is there anything on the internet",
                          "about {query}?|on {query}?|about {query} right now?"), ask=False),
        Phrasings(combine("I need|I want|I would like|Can you find|Can you show|Can you get",
                          "web search results|internet search results|pages of the web|"
                          "what the web has|what the search engine finds|what a web search finds|"
                          "search engine results|web pages",
                          "for {query}|about {query}|for {query}.|on {query}"), ask=False),
        Phrasings(combine("What|Which pages|Which results|Which web pages", "does a web search|"
                          "does the search engine|does an internet search|can a web search",
                          "give for {query}?|find for {query}?|show for {query}?"), ask=False),
        Phrasings(combine("Web search|Internet search|Search|Online search|Search engine",
                          "{query}|: {query}|for {query}|about {query}"), ask=False),
    ),
    "calculator": (
        Phrasings(combine("Calculate|Compute|Evaluate|Work out|Solve|Run the calculator on",
                          "{expression}|{expression} with the calculator|"
                          "{expression} using the calculator.|this: {expression}|the following: "
                          "{expression}|the expression {expression}")),
        Phrasings(combine("Use the calculator for|Use the calculator to get|Ask the calculator for|"
                          "Calculate|Type this into the calculator:", "{expression}|{expression}."),
                  bare="expression"),
        Phrasings(combine("What does the calculator say|What does the calculator give|"
                          "What is the value|What value does the calculator give|"
                          "I need the calculator|I need the value, use the calculator|"
                          "I need to know, use the calculator,|My homework is to get the value",
                          "for {expression}?|of {expression}?|of the expression {expression}?|"
                          "for the expression {expression}"), ask=False),
        Phrasings(combine("How much is|What is|What value has|I need to know|I have to know|"
                          "My homework says|I need|I want to know", "{expression}?|"
                          "{expression}.|the expression {expression}.|the value of {expression}.",
                          "Use the calculator.|Ask the calculator.|What does the calculator say?|"
                          "What does the calculator give?"), ask=False),
        Phrasings(combine("{expression}|{expression}:|The expression {expression}:",
                          "what does the calculator say?|what does the calculator give?|"
                          "use the calculator.|ask the calculator.|what is the value?|how much is "
                          "it?")
                  + combine("Calc|Calculator|Calculator:|Value:", "{expression}|{expression}?"),
                  ask=False),
    ),
    "definition": (
        Phrasings(combine(_TELL, "the definition|the dictionary entry|the dictionary definition",
                          "of {word}|of {word}.|for {word}|of the word {word}.|for the "
                          "word {word}")),
        Phrasings(combine("Define|Look up in the dictionary:|Find in the dictionary:", "{word}|"
                          "the word {word}|the term {word}.|{word}.")),
        Phrasings(combine("What does|What could|What might",
                          "{word}|the word {word}|the term {word}", "mean?|mean exactly?")
                  + combine("What is|What's|Do you know", "the definition|the meaning|"
                            "the dictionary meaning", "of {word}?|of the word {word}?|"
                            "of the term {word}?"), ask=False),
        Phrasings(combine("I read the word {word}|I heard the word {word}|I don't know the word "
                          "{word}|I read {word}|I heard the term {word}|I don't know {word}",
                          ".|today.", "What does it mean?|What is the meaning?|"
                          "What does the dictionary say?|Is it in the dictionary?|"
                          "How is it defined?"), ask=False),
        Phrasings(combine("Definition|Meaning|Dictionary|Dictionary entry", ": {word}|of {word}|"
                          "of the word {word}|for {word}")
                  + combine("How does the dictionary define|How is it meant,|How do you define|"
                            "What is meant by|How does one define|What do you mean by",
                            "{word}?|the word {word}?|the term {word}?")
                  + combine("{word}", "definition|: meaning?|meaning|: definition"), ask=False),
    ),
    "translation": (
        Phrasings(combine("Translate|Please translate", "{text}", "to {language}|into {language}.|"
                          "to {language}.|into {language}|for me to {language}.|"
                          "for me into {language}.|to {language} for me|into {language} for me.")),
        Phrasings(combine("Translate", "to {language}: {text}|into {language}: {text}|"
                          "the following to {language}: {text}|the following text into {language}:"
                          "\n\n{text}|this sentence into {language}: {text}|this to {language}:\n"
                          "{text}|what follows into {language}. {text}|into {language}\n{text}"),
                  bare="text"),
        Phrasings(combine("What is|What's|How do you say|How does one say|How do I say|"
                          "How would you say|How would you translate|How do I translate|"
                          "How does one write|How would I write", "{text}",
                          "in {language}?|in {language}|in {language}, please?"), ask=False),
        Phrasings(combine("What is the {language}|What's the {language}|I need the {language}|"
                          "Do you know the {language}|Is there a {language}",
                          "translation of|for|word for|version of|translation for", "{text}?"),
                  ask=False),
        Phrasings(combine("I need|I want|I would like|I want to say|I need to say|I have to write",
                          "{text}", "in {language}.|translated into {language}.|"
                          "in {language}. Translate it for me.")
                  + combine("How would|How should|Can", "{text} be", "translated|written|said",
                            "in {language}?|to {language}?|into {language}?")
                  + combine("{text}|Translation: {text}|Translate: {text}",
                            "in {language}|-> {language}|to {language}|into {language}"),
                  ask=False),
    ),
    "record": (
        Phrasings(combine(_TELL, "the {kind}|the {kind} record of|the data of {kind}|"
                          "the details of {kind}", "number {id}|with id {id}|with the ID {id}.|"
                          "with number {id}.|#{id}")),
        Phrasings(combine("Find|Look up|Pull up|Retrieve|Load|Open|Show", "{kind}",
                          "{id}|{id}.|#{id}|no. {id}|with id {id}")),
        Phrasings(combine("Who is|What do we know about|What is stored for|What data do we have on|"
                          "What is on file for|Which record belongs to|What do we have on file for|"
                          "Do we know|Which data is stored for",
                          "{kind} {id}?|{kind} number {id}?|{kind} #{id}?|the {kind} {id}?|"
                          "the {kind} with id {id}?"), ask=False),
        Phrasings(combine("|I need the data of|I need the record of|I want the details of|"
                          "Record of|Who is|Data of|Lookup:|Details:", "{kind} {id}|{kind} id {id}|"
                          "{kind} number {id}")
                  + combine("{kind} {id}|{kind} number {id}", "has called.|has written.|called.|"
                            "is here.", "What do we have on file?|What do we know?|Who is it?|"
                            "What data is stored?|Which record is it?"), ask=False),
    ),
}  # fmt: skip

MORE_DEEDS: dict[str, tuple[Phrasings, ...]] = {
    "message": (
        Phrasings(combine("Text message|Message|New message|Chat message|New text message|"
                          "I have a message|I want a text message",
                          "to {recipient}|for {recipient}", ", content|, text|, the content is",
                          "{text}"), ask=False),
    ),
    "timer": (
        Phrasings(combine("My tea takes|The pizza takes|My eggs take|My tea needs|The pizza needs|"
                          "My cake needs|I have", "{minutes} minutes.|{minutes} minutes,",
                          "set a timer.|start a timer.|start a countdown."), ask=False),
    ),
    "alarm": (
        Phrasings(combine("I need|I want|I would like|There should be|Please add", "an alarm|"
                          "my alarm|a new alarm", "at {time}.|for {time}."), ask=False),
    ),
    "reminder": (
        Phrasings(combine("New reminder|Reminder|A reminder|I need a reminder|I want a reminder",
                          ": {text}.|about {text}.|of {text}.|with the text {text}.",
                          "Time: {time}|The time is {time}.|At {time}"), ask=False),
    ),
    "event": (
        Phrasings(combine("There should be|There is|There will be|I have|I need|I want",
                          "an event {title}|an appointment {title}|an entry {title}",
                          "on {date}|for {date}", "in my calendar.|in the calendar."), ask=False),
    ),
    "device": (
        Phrasings(combine("I want|I need|We need|We want|I would like", "the {device}|my {device}",
                          "{state}.|to be {state}.|{state} now.|{state} when I come home."),
                  ask=False),
        Phrasings(combine("The {device}|My {device}", "has to be|should be|must be", "{state}.|"
                          "{state} when I come home.|{state}, so do it now."), ask=False),
    ),
    "list_item": (
        Phrasings(combine("The {list} list|My {list} list", "should|should also|must|must also",
                          "have|hold|contain|get", "{item}"), ask=False, bare="item"),
    ),
}  # fmt: skip
"""More of what `functions_deeds` holds."""

EXPLICIT = combine(
    "Call|Use|Run|Invoke|Execute|Trigger|Make a call to|Do a call of|Please call|I want a call of|"
    "I need a call of|Next comes",
    "`{name}`|{name}|the function {name}|the function `{name}`|the tool {name}|the {name} tool",
    "with {given}|with the arguments {given}|with: {given}|and pass {given}|passing {given}|"
    "using {given}|with these values: {given}|, {given}|where {given}",
)
"""Requests that name the function and its arguments, as developers write them."""
