"""How people ask for a capital or a sum; `knowledge` draws from these banks."""

from bench.nano.data.small_talk_phrasings import combine

# Capitals: {country}
# fmt: off
_CAPITAL = (
    "the capital of {country}|the capital city of {country}|{country}'s capital"
    "|{country}'s capital city|the name of the capital of {country}"
)
_CAPITAL_IS = (
    "what the capital of {country} is|which city is the capital of {country}"
    "|what {country}'s capital is|what city is the capital of {country}"
    "|what the capital city of {country} is|which city is {country}'s capital"
    "|how the capital of {country} is called|what the capital of {country} is called"
)
_WHICH = (
    "what is the capital|which city is the capital|what is the capital city|what is its capital"
    "|which one is the capital|what is the capital called|tell me the capital|name the capital"
)
CAPITAL_QUESTIONS = (
    *combine("What is|what is|What's|what's|whats|wats|Which is|which one is", _CAPITAL, "|?"),
    *combine("|the", "Capital of {country}|capital of {country}|capital city of {country}"
             "|Capital city of {country}", "|?|is|is?|please|, please"),
    *combine("Do you know|do you happen to know|Can you tell me|Could you tell me|Would you tell me"
             "|can you give me|Can you name|could you name|may I ask for|Can I have|may I have",
             _CAPITAL, "|?"),
    *combine("I need|I need to know|I'd like to know|I want to know|I would like to know|I forgot"
             "|I am looking for|I do not know|I don't remember|I must know|I want|I wonder about"
             "|My homework asks for|The quiz asks for|my teacher asks for|My question is about",
             _CAPITAL, "|."),
    *combine("Do you know|do you happen to know|Can you tell me|Could you tell me|Would you tell me"
             "|May I ask|may I know|Can I ask|Any idea|any idea|can you say", _CAPITAL_IS, "?|"),
    *combine("I wonder|I want to know|I would like to know|I'd like to know|I need to know|I forgot"
             "|I don't know|I do not remember|My homework asks|The quiz asks|my question is",
             _CAPITAL_IS, ".|"),
    *combine("Which city|which city|What city|what city|Which town|which place|What town",
             "is the capital of {country}|is {country}'s capital|is the capital city of {country}"
             "|serves as the capital of {country}|is called the capital of {country}", "?|"),
    *combine("Quiz:|Question:|Geography:|Geography question:|Quiz question:|Homework:|Q:|Easy one:"
             "|Homework question:|My question:|One more question:", "capital of {country}|what is"
             " the capital of {country}|what is {country}'s capital|which city is the capital of"
             " {country}|the capital of {country}|capital city of {country}", "?|"),
    *combine("{country}'s capital|{country}'s capital city|{country} capital|{country} capital city"
             "|{country}: capital|{country}: capital city|{country} - capital|{country} - capital"
             " city|{country}, capital|{country}, capital city|{country} and its capital",
             "|?|is|is?|please|is which city?|, please"),
    *combine("For {country},|In {country},|Of {country},|About {country}:|{country}:|{country} -"
             "|country: {country},|Country: {country}.|I mean {country},|Now {country}:", _WHICH,
             "?|"),
    *combine("We talked about {country}.|I think about {country}.|I read about {country}."
             "|I am thinking of {country}.|My quiz is about {country}.|The country is {country}."
             "|My country is {country}.|We read about {country} at school.", _WHICH, "?|"),
    *combine("What|Which|what|which", "capital|capital city", "does {country} have|has {country}"
             "|belongs to {country}|is of {country}|has the country {country}", "?|"),
    *combine("What is|How is|what is|how is|How do they call|what do they call|how do you call",
             "the capital of {country}|the capital city of {country}|{country}'s capital",
             "called?|called|named?"),
    *(f"{q} What is the capital of {{country}}?\n{a}" for q in ("Q:", "Question:", "Quiz:")
      for a in ("A:", "Answer:", "Capital:")),
    *(f"{c} {{country}}\n{a}" for c in ("Country:", "country:", "The country:", "The country is")
      for a in ("Capital:", "capital:", "Capital?", "The capital:", "Capital city:")),
)
CAPITAL_REQUESTS = (
    *combine("Name|Tell me|Give me|State|Say|Write|Write down|Provide|Recall|Show me|Mention|List"
             "|Find|Let me know|Remind me of|Help me with|Teach me|Look up|Tell us|Answer with",
             _CAPITAL, ".|"),
    *combine("Tell me|Say|Let me know|Remind me|Tell us|Teach me|Write|State|Answer|Find out"
             "|Recall",
             _CAPITAL_IS, ".|"),
    *combine("Tell me|Say|Answer this|Answer me|Answer my question|Help me|Let me know|Tell us"
             "|Answer the question|Answer the quiz", ": what is the capital of {country}|, what is"
             " the capital of {country}|: which city is the capital of {country}"
             "|, which city is the"
             " capital of {country}", "?|"),
    *combine("Complete|Finish|Continue|Complete this|Finish this|Fill in", ": The capital of"
             " {country} is|: the capital of {country} is called|: {country}'s capital is"
             "|the sentence: The capital of {country} is"),
    *combine("Name|Tell me|Give me|Say|Write|Show me", "the city that is|the city which is",
             "the capital of {country}|the capital city of {country}|{country}'s capital", ".|"),
    *combine("Take|Use|Choose|Think of|Look at", "{country}: what is the capital|{country} and tell"
             " me the capital|{country}, which city is the capital|{country} and name the capital"
             "|{country}. What is its capital", "?|"),
)
CAPITAL_FOLLOW_UPS = (
    *combine("And|and|OK, and|Now|And now|Then|Great, and|Thanks, and|So|also|thx. and|ok and|now"
             "|next|Next:|next one:|And also|Same", "|of|for|that of|the capital of|the one of"
             "|the capital for|in", "{country}", "|?"),
    *combine("What about|what about|How about|how about|And what about|and how about"
             "|Then what about"
             "|OK, what about|Thanks, what about|now what about|And what is it for"
             "|and which is it for"
             "|What is it for|And which one is it for|Which one is it for", "|that of|the one of"
             "|the capital of", "{country}", "|?"),
    *combine("I also need|now I need|I need|and I need|also tell me|tell me|now tell me"
             "|Same question for|same question about|the same question for|Same for|the same for",
             "{country}", "|.|too|please|as well"),
    *combine("{country}|and {country}|also {country}|now {country}", "|?|too|too, please|please"
             "|, please|as well|next|now|then?"),
    *combine("And|and|ok, and|So|And now", "{country}'s|{country}'s capital|{country}'s one", "?|"),
)
# fmt: on

# Sums: {a} and {b}; whatever has a plus sign works for three numbers as well
SUM_QUESTIONS = (
    "What is {a} + {b}?", "what is {a}+{b}", "What's {a} + {b}?", "whats {a} + {b}",
    "{a} + {b}", "{a}+{b}", "{a} + {b} =", "{a}+{b}=", "{a} + {b} = ?", "{a}+{b}=?",
    "{a} + {b}?", "{a} +{b}", "How much is {a} + {b}?", "how much is {a}+{b}", "{a} + {b} is?",
    "{a} + {b} equals?", "what does {a} + {b} equal", "What do I get for {a} + {b}?",
    "What is the result of {a} + {b}?", "what's the answer to {a} + {b}", "I need {a} + {b}.",
    "I need to know {a} + {b}.", "Do you know {a} + {b}?", "do you know what {a} + {b} is",
    "Can you tell me {a} + {b}?", "Maths question: {a} + {b}", "Math: {a}+{b}",
    "Quick sum: {a} + {b}", "and {a} + {b}?", "And what is {a} + {b}?",
    "What about {a} + {b}?", "now {a} + {b}", "Q: {a} + {b}\nA:",
    "If I type {a} + {b}, what comes out?", "{a} + {b} makes?", "{a} + {b} gives what?",
)  # fmt: skip
SUM_REQUESTS = (
    "Compute {a} + {b}.", "compute {a}+{b}", "Calculate {a} + {b}.", "calculate {a}+{b}",
    "Add {a} + {b}.", "Work out {a} + {b}.", "Work out the sum {a} + {b}.",
    "Tell me {a} + {b}.", "tell me what {a} + {b} is", "Solve {a} + {b}.",
    "Solve: {a} + {b} = ?", "Evaluate {a} + {b}", "Give me the result of {a} + {b}.",
    "Find the sum {a} + {b}.", "Do the sum {a} + {b}", "Say how much {a} + {b} is.",
    "Answer this: {a} + {b}", "Finish this: {a} + {b} =", "Figure out {a} + {b}.",
    "Determine {a} + {b}.",
)  # fmt: skip
SUM_WORD_QUESTIONS = (
    "What is {a} plus {b}?", "what's {a} plus {b}", "whats {a} plus {b}", "{a} plus {b}",
    "{a} plus {b} =", "{a} plus {b} is?", "{a} plus {b}?", "how much is {a} and {b}",
    "How much is {a} plus {b}?", "sum of {a} and {b}", "Sum of {a} and {b}?",
    "What is the sum of {a} and {b}?", "what's the sum of {a} and {b}",
    "What is {a} added to {b}?", "what do {a} and {b} add up to",
    "What do {a} and {b} make together?", "How much are {a} and {b} together?",
    "{a} and {b} make?", "What do you get if you add {a} and {b}?",
    "what do I get when I add {b} to {a}", "the total of {a} and {b}?",
    "What is the total of {a} and {b}?", "{a} and {b} in total?",
    "If you add {a} to {b}, what is the result?",
    "I have to add {a} and {b}. What is the result?", "I need the sum of {a} and {b}.",
    "How many are {a} plus {b}?", "Do you know {a} plus {b}?", "{a} more than {b} is?",
    "What number is {b} more than {a}?",
)  # fmt: skip
SUM_WORD_REQUESTS = (
    "Add {a} and {b}.", "add {a} and {b}", "Add {a} to {b}.", "add {b} to {a}",
    "Add up {a} and {b}.", "Add the numbers {a} and {b}.", "Add these: {a}, {b}",
    "add together {a} and {b}", "Sum {a} and {b}.", "sum up {a} and {b}",
    "Compute {a} plus {b}.", "Calculate {a} plus {b}.", "Compute the sum of {a} and {b}.",
    "Calculate the sum of {a} and {b}", "Tell me {a} plus {b}.",
    "Give me the sum of {a} and {b}.", "Find the sum of {a} and {b}.", "Work out {a} plus {b}",
    "Tell me how much {a} and {b} are together.", "Put {a} and {b} together. How much is it?",
    "Increase {a} by {b}.", "Take {a} and add {b}.", "Start with {a} and add {b}.",
    "Give me the total of {a} and {b}.",
)  # fmt: skip
SUM_STORIES = (
    "I have {a} {thing}s and get {b} more. How many do I have?",
    "I have {a} {thing}s. I buy {b} more. How many {thing}s do I have now?",
    "There are {a} {thing}s on the left and {b} on the right. How many are there in total?",
    "{name} has {a} {thing}s and finds {b} more. How many {thing}s are there?",
    "{name} owns {a} {thing}s, and I own {b}. How many do we own together?",
    "A box holds {a} {thing}s, another one {b}. How many {thing}s is that?",
    "{a} {thing}s and {b} {thing}s are how many {thing}s?", "{a} {thing}s plus {b} {thing}s?",
    "We counted {a} {thing}s yesterday and {b} today. What is the total?",
    "First there were {a} {thing}s, then {b} came. How many {thing}s now?",
    "how many {thing}s are {a} {thing}s and {b} {thing}s together",
    "The shop sold {a} {thing}s in May and {b} in June. How many altogether?",
    "My bag has {a} {thing}s. {name} puts in {b} more. How many now?",
    "i got {a} {thing}s then {b} more, how many total",
    "You see {a} {thing}s. Then you see {b} more. How many did you see?",
    "A {thing} costs {a} dollars and another one {b} dollars. How much do they cost together?",
    "I walk {a} steps and then {b} steps. How many steps is that?",
    "Page {a} is where I am. I read {b} more pages. On which page am I?",
    "The first number is {a}, the second is {b}. What is their sum?",
)  # fmt: skip
