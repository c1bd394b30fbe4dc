"""More requests to decline: the skills' own words in another sense, code, and missing tools."""

from bench.nano.data.fallback_phrasings import ABOUT, HOW_TO, OPERATION
from bench.nano.data.small_talk_phrasings import combine

# fmt: off
# Words of the skills in another sense.
_OTHER = (
    "capital letters|capital gains|capital punishment|human capital|the capital of my company"
    "|sums of money"
    "|sheep counters|a count in a castle|the count of votes|calories|human memory|a good memory"
    "|passwords|a passcode|JSON|XML|echoes|an echo|copies of paintings|copyright|a file cabinet"
    "|running shoes|a run in {city}|the files of the court|reading books|tools for wood|a tool"
    "|tools"
    "|a function in mathematics|the function of the heart|a shell on the beach|sea shells"
    "|the weather as a topic"
    "|goodbyes|greetings|jokes|the name of {city}|the name of my {noun}|neighbors|the test of time"
    "|help for a {noun}|a list of kings|a command of the king|the thanks of {person}"
    "|extracts of plants"
)
OTHER_SENSE = (
    *combine(ABOUT, _OTHER, "|?"),
    *combine("How is|Why is|Who likes|Do you like|Is there|Do we need|How old is|What comes after",
             _OTHER, "?"),
    *combine(HOW_TO, "raise capital|count sheep|count calories|count on {person}|add a friend"
             "|add salt"
             "|add {topic} to my life|choose a good password|improve my memory|forget a name"
             "|run faster"
             "|rename my company|run a business|file a complaint|file my taxes|read faster"
             "|write better"
             "|create art|greet a king|thank a {noun}|call a {noun}|replace my {noun}"
             "|change my life"
             "|extract a tooth|copy a painting|repeat a year at school|say goodbye to my {noun}"
             "|say hello to {person}|list my {noun}s for sale|open a shop|test my {noun}"
             "|name my {noun}"
             "|help my {noun}|help {person} with {topic}|remember names"
             "|tell jokes to {person}", "?|"),
    *combine("Why do|Who wants to|Do|When do", "people|{noun}s|kings|the people in {city}",
             "count sheep"
             "|copy art|repeat history|say goodbye|say yes|say hello|run|read books|create art"
             "|laugh"
             "|forget names|make jokes|count votes|need passwords|rename cities|call {person}",
             "?"),
    *combine("What is|Which is|Which city is|How {adj} is|Name|Do you know",
             "the smallest capital|the largest capital|the oldest capital|the most {adj} capital",
             "in the world|of the world|in Europe|in Asia|on the moon", "?|"),
    *combine("Count|Please count|Can you count|Add up|Sum up", "the words in this sentence: {text}"
             "|the letters in {noun}|the {noun}s in {city}|the {adj} {noun}s|the {noun}s|my money"
             "|the stars|the words in my text: {text}|the letters of the word {noun}"),
    *combine("How is|Where is|What can|Who can help|How can I help|What does|Who called|Who thanked"
             "|Who can replace|Why did they call|Who are the neighbors of|Who counts on", "{person}"
             "|my {noun}|the {noun}|the {noun} in {city}", "do?|?|today?|need?"),
    *combine("Name|List|Show me|Give me|Tell me|Say something about|Tell {person} about",
             "three {noun}s|the kings of {city}|the {noun}s in {city}|a {adj} {noun}"
             "|my photos of {city}"
             "|the king of {country}|the river in {city}|the way to {city}|the players in {city}"
             "|some money|a {noun}|the jokes of {person}|the neighbors of {country}", ".|"),
    *combine("Replace|Change|Test|Help|Sell|Repair",
             "my {noun}|my life|the {noun} in my house|my friend {person}"
             "|the king of {country}", ".|"),
    *combine("You can|Do not|Never|I will|Can I|May I", "count me out|count on me|count on {person}"
             "|change my life|copy me|count me in|call me names|run away|add to my worries", ".|"),
)
_CODE = ":\n\n{code}|:\n```\n{code}\n```|\n\n{code}"
CODING = (
    *(f"{verb} {what}{tail}" for verb in ("Explain", "Fix", "Review", "Optimize", "Refactor",
    "Document",
      "Improve", "Debug", "Check", "Simplify", "Comment on", "Find the bug in", "Add comments to",
      "Add types to", "Write unit tests for", "Write tests for", "Make a faster version of",
      "Find the error in", "Translate to {program}", "Convert to {program}", "Tell me about")
      for what in ("this code", "my code", "this function", "this", "this program")
      for tail in _CODE.split("|")),
    *(f"{ask} {what}{tail}?\n\n{{code}}" for ask in ("What does", "Why does", "When does",
    "How does")
      for what in ("this code", "this function", "my code", "this")
      for tail in (" do", " fail", " work", " print", " output", " crash")),
    *(f"{ask} {what}?\n\n{{code}}" for ask in ("What is the output of", "What is the bug in",
      "What is wrong with", "What is the error in", "How do I fix", "How do I test")
      for what in ("this code", "this function", "my code", "this")),
    *combine("Write|write|Give me|Show me|Generate|Create|I need", "a {program} function that"
             "|{program} code that|a program in {program} that|a {program} snippet that"
             "|a regex that"
             "|SQL that|a {program} script that|a script that|a class in {program} that",
             "{task}", ".|"),
    *combine("Implement|Write|Show me|Explain|How do I write|Generate", "quicksort|a loop"
             "|hello world"
             "|a class for a {noun}|a pointer|a linked list|a project for {topic}|a sorted list"
             "|a test",
             "in {program}", "?|.|"),
    *combine("How do I|How can I|Can you|Should I", "install|debug|learn|use|code in|update|test",
             "{program}", "|for my {noun}|or {program2}|today", "?"),
    *combine("What is|Who made|Teach me|Is it worth to learn|Why do people use|Tell me about",
             "{program}|the latest version of {program}|a pointer in {program}|a class in {program}"
             "|wrong with my {program} setup|{program} or {program2}", "?|"),
    *combine("Build|Make|Create|Design|Program|Code", "me a website|a website|an app|a game"
             "|a database"
             "|me an app", "about {topic}|for my {noun}|for {noun}s|in {program}", ".|"),
    *combine("Which|What", "database|language|framework|library", "should I use|is best"
             "|do people use",
             "for {noun}s|for {topic}|with {program}", "?"),
)
PROGRAMMING_LANGUAGES = (
    "Python", "JavaScript", "TypeScript", "Rust", "Go", "Java", "C", "C++", "C#", "Ruby",
    "PHP", "Swift", "Kotlin", "Haskell", "Lua", "Perl", "SQL", "Bash", "R", "Julia", "Scala",
    "Elixir",
)  # fmt: skip
TASKS = (
    "sorts a list", "reverses a string", "finds the largest {noun}",
    "checks if a number is prime", "counts the {noun}s", "prints a {noun}",
    "reads a {noun} from a file", "adds two numbers", "parses JSON", "downloads a {noun}",
    "draws a {noun}", "sends a {noun}", "computes Fibonacci numbers", "shuffles {noun}s",
    "removes duplicates", "finds the shortest path", "converts {noun}s to {noun}s",
    "says hello",
)  # fmt: skip
LOOSE = (
    *combine("What is|what is|Tell me about|Explain|Explain:|How do I|I want|Why|Who is|Where is"
             "|When is"
             "|Do you like|Is it|More about|What about the|I think|Maybe|How much is the|How many"
             "|Why not"
             "|Can I|Draw|Imagine|Discuss|What about|I want to discuss|Why is it|I think about",
             "{text}", "|?|."),
    *combine("{text}", "?|!|{text2}|?!|??|?|!"),
)
REGIONS = (
    "Texas", "California", "Florida", "Ontario", "Bavaria", "Scotland", "Wales", "Siberia",
    "Sicily", "Europe", "Africa", "Asia", "South America", "the world", "the moon", "Mars",
    "the universe", "the sea", "Atlantis", "Narnia", "my street", "this planet",
    "the Roman Empire", "Wonderland", "Alaska", "Hawaii", "Hokkaido", "Tuscany", "Normandy",
    "Saxony", "Quebec", "Victoria Island", "Sherwood", "Middle-earth", "Gondor",
)  # fmt: skip
# Only where no tool is declared that could answer.
_WEATHER = "the weather|the temperature|the forecast|the weather forecast|the rain|the traffic"
"|the time"
WITHOUT_TOOLS = (
    *combine("What is|what's|How is|how's|Tell me|Show me|Check|Do you know|Give me|I need"
             "|What about|",
             _WEATHER, "in {city}|for {city}|in {city} today|in {city} right now", "?|"),
    *combine("weather|temperature|forecast|current time|traffic|latest news|news|current weather",
             "in {city}|for {city}|from {city}|in {city} today", "|?|please"),
    *combine("Will it|Does it|Is it going to|Did it", "rain|snow|be cold|be warm|get cold|get warm",
             "in {city}", "|today|tomorrow|right now", "?"),
    *combine("Is it", "cold|warm|raining|snowing|sunny|hot|windy", "in {city}", "|today|right now"
             "|now",
             "?"),
    *combine("Do I need", "an umbrella|a coat|a warm coat|sunglasses", "in {city}", "|today"
             "|tomorrow", "?"),
    *combine("What|Which|Tell me what|Do you know what", "time is it|day is it|date is it"
             "|day is today"
             "|year is it|month is it", "|now|right now|in {city}|in {country}", "?|"),
    *combine("What are|Any|Tell me|Show me|Find|Search for|Give me|Look up|latest", "news"
             "|latest news"
             "|the news", "about {topic}|from {city}|from {city} today|about {person}", "?|"),
    *combine("What is|Tell me|Look up|Check|Find|Give me", "the stock price of {word}"
             "|the price of bitcoin"
             "|the price of a {noun}|the phone number of {person}|the stock price of {word} today"
             "|the price of {word} right now|the address of {person}|the email of {person}", "?|"),
    *combine("Convert|How much is|How many dollars are|How many euros are|Change", "{n} USD"
             "|{n} euros"
             "|{n} dollars|{n} EUR", "|to EUR|in euros|to USD|in dollars", "?|."),
    *combine("Send|Write", "an email|a message|a text|a mail", "to {person}", "|about {topic}"
             "|that I am late|: {text}", ".|"),
    *combine("Email|Call|Text|Message|Phone|Invite", "{person}", "|about {topic}|now|that I am late"
             "|tomorrow", ".|"),
    *combine("Set|Start|Add|Remind me|Make", "a timer for|an alarm for|of {topic} in|a reminder in",
             "{n} minutes|{n} hours|{n} seconds", ".|") + combine(
             "Play|Turn on|Turn off|Switch on|Switch off|Start|Stop", "the lights|the {noun}"
             "|the music"
             "|some {topic} music|some music|the radio", ".|"),
    *combine("Search|Google|Look up|Find|Search the web for|Search for|Browse for", "{topic}"
             "|{person}|{city}",
             "|online|on the internet|on the web", ".|"),
    *combine("Book|Order|Reserve|Find|Buy", "a flight to {city}|a hotel in {city}"
             "|a table for {n} people"
             "|a table in {city}|a {noun} for me|{n} {noun}s online|a train to {city}", ".|"),
    *combine("Who won|Where is|When is|Check|What happened in", "the match in {city}|my calendar"
             "|my mail"
             "|the game in {city}|my next meeting", "|today|yesterday|tomorrow", "?"),
    *combine("Define|define|Meaning of|meaning of|What is the meaning of|What does the word mean:"
             "|Look up the meaning of|Give me a definition of|definition of"
             "|What is the definition of",
             "{topic}|{word}|the word {noun}|the word capital|the word {word}", ".|?|"),
    *combine("What does", "{topic}|{word}|hello|the word capital|the word {noun}", "mean",
             "|in {language}|in English", "?|"),
    *combine("Compute|Calculate|Work out|Evaluate|Solve|compute|calculate", OPERATION, ".|"),
    *combine("Solve|Solve for x:|Find x:|solve", "{n}x - {m} = 0|x + {n} = {m}|{n}x = {m}"
             "|x - {n} = {m}"),
    *combine("Translate|translate|Can you translate|Please translate", "this to {language}:"
             "|to {language}:"
             "|into {language}:|this into {language}:", "{text}|\n{text}"),
    *combine("How do you say|What is|Translate|how do I say", "{topic}|hello|'{noun}'|{noun}"
             "|good day",
             "in {language}|into {language}", "?|"),
)
# What an agent's tools could do, of a place that is only pointed at.
HERE_WITHOUT_TOOLS = (
    *combine("List|Show|Show me|Print|Give me|What are|Count|Find|Check|Search", "the files"
             "|all files|my files|the folders|the {adj} files", "in this folder|here"
             "|in the current directory|in this directory|in my home folder|on my disk"
             "|of this project|in the repository", ".|"),
    *combine("What is|What's|Is there anything|What files are|See what is|Tell me what is|Look",
             "in this folder|in the current directory|in here|in my home folder|on the disk"
             "|in this file|in that file|in the {noun} file|in this repository", "?|"),
    *combine("Run|Start|Execute|Can you run|Please run", "the tests|all tests|the script|my script"
             "|the program|my code|this script|the build|the {noun} script|it", "|for me|again"
             "|now", ".|"),
    *combine("Open|Read|Edit|Save|Delete|Rename|Create|Close", "the file|this file|that file"
             "|my file|a new file|a folder|the {noun} file|the last file|all files", "|for me",
             ".|"),
    *combine("Where am I|Which directory is this|How many files are there|Who am I logged in as"
             "|Which files have changed|Is this a folder|What is my path|Do I have any files",
             "?|"),
    *combine("What is|Is there|Do you see|Do you have|Can you see|Where is|Who made|Delete|Find",
             "{path}", "|on this machine|here", "?|"),
    *combine("{path}", "is what|what is it|what is this|does it exist|is it a folder|there", "?|"),
    *combine("Is|Does", "{path}", "a directory|a file|exist|a folder|empty", "?|"),
    *combine("ls|cd|pwd|cat|git status|git diff|make|rm|mkdir|head|npm test|pytest", "|-la|{path}"
             "|-a|--help"),
)
# fmt: on
