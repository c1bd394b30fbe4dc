"""Requests that the model must decline; `talk` draws from these banks and fills the slots.

They reach up to the border of every skill and never over it: no capital of a country, no sum of
numbers up to three digits, no greeting, nothing to repeat, remember, extract, run, read or write.
"""

from bench.nano.data.small_talk_phrasings import combine

# fmt: off
WRITING = (
    *combine("Write|write|Write me|Compose|Make up|Create|Draft|Invent|Give me|Tell me|Start"
             "|Improve"
             "|Prepare|Think of|Sing|Read me|Finish|Help me with|I need|I want|I would like"
             "|I would love",
             "{form}", "about {topic}|on {topic}|about {topic} for {person}"
             "|on {topic} for my {noun}",
             ".|, please"),
    *combine("Can I have|Could you write|Can you write|Would you write|Do you have|Do you know"
             "|Will you write|Can you compose|Could you invent|", "{form}",
             "about {topic}|on {topic}|about {topic} for {person}", "?|"),
)
FORMS = (
    "a poem", "a haiku", "an essay", "a song", "a story", "a short story", "a fairy tale",
    "a blog post", "a speech", "a letter", "a limerick", "a review", "a novel", "a slogan",
    "a report", "a scene", "a dialogue", "a rap", "a fable", "a riddle", "an article",
    "a newsletter", "a tweet", "a quiz", "an advert", "a thesis", "a bedtime story",
    "a love letter", "a birthday card", "a toast",
)  # fmt: skip
ABOUT = (
    "Explain|Describe|Tell me about|tell me more about|Give me an overview of|Teach me"
    "|Teach me about"
    "|Give me five facts about|Facts about|I want to learn about|I do not understand|Summarize"
    "|Discuss"
    "|What do you know about|What do people say about|What is the history of|Why do people like"
    "|What are the advantages of|What are the types of|Who invented|Who discovered|What causes"
    "|What is the purpose of|Where can I buy|Where can I learn about|What is good about|What is"
    "|what is|What is so special about|Why do people talk about|Who needs|Give me a summary of"
)
EXPLAIN = (
    *combine(ABOUT, "{topic}", "|?|.|to a child|in simple words|in one sentence|today|in detail"),
    *combine("Why is|Is|When was|Where is|Is it true that|How old is|Who says that|Since when is",
             "{topic}", "important|dangerous|invented|{adj}|good for you|good for me|old|expensive"
             "|better than {topic2}|older than {topic2}|safe|useful|popular|true", "?|"),
    *combine("How does|how does|Why does|Where does|When does|Does|How much does", "{topic}",
             "work|exist|cost|come from|begin|end|help|matter|change", "?|"),
    *combine("Compare|What is the difference between|What do you prefer,|Which is better,|Which is"
             " older,|What is more important,|Which one costs more,", "{topic} and {topic2}"
             "|{topic} or {topic2}", "?|"),
    *combine("What is a day without|What would happen without|What would we do without"
             "|What is left without"
             "|What rhymes with"
             "|What color is|What has to do with|What comes after|What is bigger than",
             "{topic}", "?|"),
)
TOPICS = (
    "gravity", "photosynthesis", "the moon", "black holes", "quantum physics", "evolution",
    "democracy", "inflation", "machine learning", "neural networks", "the internet", "chess",
    "football", "jazz", "love", "happiness", "climate", "the ocean", "volcanoes", "dinosaurs",
    "vitamins", "electricity", "magnetism", "cooking", "pasta", "chocolate", "tea", "yoga",
    "meditation", "gardening", "philosophy", "time travel", "the pyramids", "medieval castles",
    "the stock market", "bitcoin", "taxes", "insurance", "algebra", "geometry", "probability",
    "calculus", "recursion", "databases", "compilers", "cloud computing", "encryption",
    "the brain", "sleep", "dreams", "music theory", "painting", "grammar", "Latin",
    "space travel", "robots", "electric cars", "bicycles", "trains", "bees", "whales",
    "penguins", "rainbows", "snow",
)  # fmt: skip
HOW_TO = (
    "How do I|how do i|How can I|How should I|When should I|Should I|Why should I|Can I|Where can I"
    "|I want to|Is it hard to|Is it good to|Help me to|Teach me to|Advise me how to|Tell me how to"
)
_OF_COUNTRY = (
    "the currency|the flag|the population|the largest city|the history|the king|the language"
    "|the area"
    "|the highest mountain|the longest river|the national dish|the anthem|the oldest town|the queen"
    "|the most {adj} place|the best beach|the climate|the second largest city"
)
ADVICE = (
    *combine(HOW_TO, "fix my {noun}|repair a {adj} {noun}|sell my {noun}|buy a {noun}|lose weight"
             "|learn {topic}|learn {topic} quickly|build a {noun}|become a better {noun}"
             "|travel to {city}"
             "|travel to {country}|get to {city}|find a {adj} {noun}|cook {topic}|sleep better"
             "|save money|paint a {noun}|clean my {noun}|move to {country}|become rich", "?|"),
    *combine("What is|what is|Tell me|Do you know|What was|Which is|Name|Give me|What's",
             _OF_COUNTRY, "of {country}|in {country}", "?|"),
    *combine("How big is|Where is|How old is|How far away is|Who lives in"
             "|Is it nice in"
             "|What can I see in|What do people eat in|Which language do people speak in"
             "|How many people live in|Who rules|Which countries are next to|How do people live in"
             "|Tell me about|Plan a trip to|Plan my holidays in|Is it expensive in"
             "|What can I do in",
             "{country}|{city}", "?|.|today"),
    *combine("Is|Why is|How long has", "{country}|{city}", "expensive|a nice place|{adj}"
             "|a large place"
             "|a good place for a {noun}|far away|famous", "?|"),
    *combine("How far is it|How long does it take|How do I get|What does the train cost"
             "|Is there a bus"
             "|What is the best way", "from {city} to {city2}|from {city} to {country}", "?|"),
    *combine("Give me advice about|Recommend|What do you think about|What is your opinion on"
             "|Do you like"
             "|What is your favorite|Do you prefer|What is wrong with|I have a problem with"
             "|I dream of"
             "|I am afraid of|I feel sad about|What should I do with|Why do you like",
             "{topic}|my {noun}|a {adj} {noun}|the {adj} {noun}|{topic} or {topic2}", "?|.|"),
    *combine("Why is|Why was|Is|Will", "my {noun}|the {noun}|the sky|the sea|a {noun}|the moon",
             "so {adj}|{adj}|blue|broken|bigger than a {noun2}|heavier than a {noun2}"
             "|better tomorrow",
             "?|"),
    *combine("Who is|How old is|When was|Where was|Where does|Who knows|What does|Who likes|Why is",
             "{person}", "|born|live|do|today|famous for|married to|like", "?"),
    *combine("What is|Who is|Where is|Which is", "the largest|the tallest|the oldest|the smallest"
             "|the fastest|the first|the most {adj}|the best", "mountain|planet|river"
             "|person in space"
             "|{noun} in the world|city in the world|country in the world|animal|building"
             "|ocean", "?|"),
    *combine("Draw|Paint|Design|Build|Buy|Bake", "me a {noun}|a {adj} {noun}|me a"
             " picture of a {noun}|a logo for my {noun}|me a sandwich|a house for {person}", ".|"),
    *combine("Pretend to be|Act as|Play the role of|Play|Imagine|Imagine that you are|Be"
             "|Let's talk about"
             "|Let's play a game about|Pretend that you are", "a {noun}|a {adj} {noun}|{person}"
             "|a {noun} in {city}|a famous {noun}", ".|"),
    *combine("Can you|Do you|Could you ever|Will you ever|Did you ever", "sing|dance|drive a car"
             "|dream"
             "|have feelings|eat|sleep|cook|love|feel pain|have a body|drive to {city}"
             "|play chess", "?|"),
    *combine("How many|Why do so many", "{noun}s are there in {city}|days are in a leap year|people"
             " live there|{noun}s live in {country}|hours are in a day|people like {topic}", "?|"),
    *combine("Name|Recommend|Give me|I need|Suggest", "a good book about {topic}"
             "|a recipe with {topic}"
             "|a film about {topic}|a good recipe|a good film|a good {noun}", ".|"),
)
OPERATION = (
    "{n} * {m}|{n}*{m}|{n} x {m}|{n} - {m}|{n}-{m}|{n} / {m}|{n}/{m}|{n} : {m}|{n} % {m}|{n}^{m}"
    "|{n} ^ {m}"
    "|{n} times {m}|{n} minus {m}|{n} divided by {m}|{n} multiplied by {m}|{n} mod {m}|{n} ** {m}"
    "|{n} to the power of {m}|{n} percent of {m}|{n}% of {m}|{n} less {m}|{n} × {m}|{n} ÷ {m}"
)
_OF_NUMBER = (
    "square root|factors|logarithm|half|double|square|cube|third|sine|cosine|cube root|factorial"
    "|digits|prime factors|reciprocal"
)
MATHS = (
    *combine("|What is|what is|How much is|what's|Tell me|I need", OPERATION, "|?|= ?|="),
    *combine("Multiply|Divide|multiply|divide|Subtract|subtract|Reduce|Split|Decrease", "{n}",
             "by {m}|from {m}|and {m}|with {m}", ".|"),
    *combine("What is|what is|Tell me|What are|Give me|I need|Find|",
             "the", _OF_NUMBER, "of {n}", "|?"),
    *combine("What is|what is|Tell me|Give me|Find|", "the", "difference|product|average|quotient"
             "|greatest common divisor|ratio|mean|least common multiple|median|remainder",
             "of {n} and {m}", "|?"),
    *combine("Is {n}|is {n}|Why is {n}|Prove that {n} is|Check if {n} is|Show that {n} is",
             "prime|even|odd"
             "|a prime number|larger than {m}|smaller than {m}|a square|divisible by {m}"
             "|not {m}", "|?"),
    *combine("Which is|Which number is|What is", "smaller|larger|bigger|more|closer to zero",
             ", {n} or {m}", "|?"),
    *combine("sqrt|log|sin|cos|tan|exp|ln|abs|sqrt of|log of|sin of|cos of", "({n})|{n}"
             "|{n}.{m}", "|= ?"),
    *combine("Convert|Write|Change|Express|Round|What is", "{n}|{n}.{m}", "to binary|in binary"
             "|in hexadecimal|to hexadecimal|as a Roman numeral|to a fraction|as a fraction", ".|"),
    *combine("Convert|How much are|What are", "{n} miles|{n} hours|{n} days|{n} pounds|{n} feet",
             "to kilometers|in minutes|in seconds|to kilograms|in meters|to weeks|in inches", "."
             "|?|"),
    *combine("How many", "minutes|seconds|days|weeks|meters|inches", "are", "{n} hours|{n} days"
             "|{n} weeks"
             "|{n} feet|{n} miles|{n} years", "?"),
    *combine("I have|There are|{person} has|We had", "{n} apples|{n} boxes|{n} pens|{n} coins",
             "and eat {m}"
             " of them.|and lose {m} of them.|with {m} pens in each.|for {m} people."
             "|and sell {m} of them.",
             "How many are left?|How many is that?|How many for each?|How much is that?"),
    *combine("integrate|differentiate|derivative of|integral of|solve|plot|simplify",
             "x^{n}|x^{n} + {m}x|{n}x^2|sin({n}x)|{n}x - {m}"),
    *combine("What is", "the area|the circumference|the volume|the surface", "of a", "circle|ball"
             "|cube"
             "|square", "with radius {n}?|with side {n}?|of size {n}?"),
    *combine("Pick|Guess|Choose|Roll|Think of|List", "a number|a random number|a prime number"
             "|prime numbers|an even number", "between {n} and {m}|up to {n}|below {n}", ".|"),
    *combine("{n}.5 + {m}.25|{n}.{m} + 1.{n}|{n}.{m} - {m}.5|{n}.{m} + {m}.{n}|{n}!|{n}! - {m}!",
             "|= ?|?"),
)
_THIS = "this|this text|the following text|this sentence|my text|my sentence|the text"
LANGUAGE = (
    *combine("Correct|Check|Improve|Shorten|Summarize|Paraphrase|Explain|Classify|Comment on"
             "|Simplify"
             "|Proofread|Judge|Discuss|Interpret|Analyze|Correct the grammar of"
             "|Check the spelling of"
             "|Find the verb in|Find a title for|Find the mistake in|Describe the mood of|Rate"
             "|Criticize"
             "|Write a poem about|Write a summary of|Continue the story of",
             ": |".join(_THIS.split("|")) + ":", "{text}|{text} {text2}"),
    *combine("Summarize|Shorten|Paraphrase|Correct|Explain|Simplify"
             "|Improve", _THIS, ".\n\n{text} {text2}"
             "|in one sentence: {text} {text2}|for a child: {text}|politely: {text}"),
    *combine("Make|Turn", _THIS, "sound formal: {text}|sound polite: {text}|more polite: {text}"
             "|into a poem: {text}|into a story: {text}|sound like a story: {text}"),
    *combine("What is wrong with|What is the subject of|What is the mood of|What do you think of"
             "|What is the verb of|Who said|Who wrote|Who is meant in|What happens after"
             "|What is the meaning behind|What is the style of|What do you like about", _THIS,
             "? {text}|?\n\n{text}"),
    *combine("Is", _THIS, "correct|positive or negative|wrong|polite|good|true|formal", "? {text}"),
    *combine("What is|Give me|Tell me|Find", "the opposite of|a synonym for|another word for"
             "|the plural of"
             "|a rhyme for|a sentence with|the origin of|an antonym for|the past tense of",
             "{adj}|{noun}|the word {noun}|the word {adj}", "?|.|"),
    *combine("How many letters are in|How do you spell|Spell|What rhymes with|How do you pronounce"
             "|How many letters has|Conjugate|Use in a sentence", "{noun}|the word {noun}|{adj}",
             "|?|backwards"),
    *combine("Sort|Order|Rank|Group|Sort by length", "these words: |the words: |these nouns: ",
             "{noun}, {noun2}, {adj}|{noun}, {noun2}|{noun} {noun2} {adj}"),
)
LANGUAGES = (
    "French", "German", "Spanish", "Italian", "Dutch", "Polish", "Russian", "Japanese",
    "Chinese", "Korean", "Arabic", "Hindi", "Turkish", "Swedish", "Greek", "Latin",
    "Portuguese", "Czech", "Finnish",
)  # fmt: skip
# fmt: on
