"""How people greet, ask who is there, thank and so on; `small_talk` gives the answers.

Every bank is a product of parts, so that a word of a held-out phrasing also occurs in others.
"""

import re
from itertools import product


def combine(*parts: str) -> tuple[str, ...]:
    """Join every choice of alternatives; each part has them between bars, an empty one included."""
    choices = product(*(part.split("|") for part in parts))
    return tuple(
        re.sub(r" ([,.?!]|:(?! \{))", r"\1", " ".join(filter(None, choice))) for choice in choices
    )


# fmt: off
_NAMES = "|nano|bot|friend|my friend|assistant"
_HELLO = (
    "hi|hello|hey|hi there|hello there|hey there|good morning|good afternoon|good evening|good day"
    "|greetings|howdy|yo|hiya|heya|hello hello|hey hey|hi hi|a very good morning|a very good day"
)
GREETING = (
    *combine(_HELLO) * 6,
    *combine(_HELLO, _NAMES + "|again|everyone|all|model|computer|robot|buddy|old friend|dear model"
             "|gpt|world|to you|from me|, nice to meet you|, nice to see you|, good to see you"
             "|, pleased to meet you|, I am new here|, here I am|, let us start|, I am here"
             "|, it is me|, it is me again"),
    *combine("hallo|guten Tag|guten Morgen|guten Abend|moin|servus|grüß Gott|bonjour|bonsoir|salut"
             "|hola|buenos días|buenas tardes|ciao|buongiorno|buonasera|olá|oi|bom dia|hej|hei|ahoj"
             "|cześć|привет|здравствуйте|こんにちは|你好|안녕하세요"
             "|مرحبا|שלום|नमस्ते|merhaba|γεια σου|xin chào|aloha|namaste|ahoy", "||nano|bot"
             "|my friend|, hello|, hi|again"),
    *combine("hi|hello|hey", ", hallo|, guten Tag|, bonjour|, hola|, ciao|, servus|, moin|, aloha"),
    *combine("nice|good|great|lovely|pleased|happy|glad", "to meet you|to see you",
             _NAMES + "|again|here"),
    *combine("morning|evening|afternoon|welcome", "|nano|bot|everyone|all|to you|my friend|again"),
    *combine("I just wanted to|I want to|I only want to|let me|just wanted to|I would like to",
             "say hi|say hello|greet you|say good morning|say good evening", "|to you|again"
             "|, nano"),
)
_BEING = (
    "a robot|a bot|an AI|a machine|a language model|a human|a person|a program|a computer"
    "|a large model|a small model|a chatbot|a real person|a human being|an assistant|an LLM"
    "|ChatGPT|GPT|gpt-oss|gpt-oss-nano"
)
_KINDS = "model|AI|LLM|language model|program|assistant|bot|chatbot|version"
IDENTITY = (
    *combine("who are you|what are you|what is your name|who r u|introduce yourself") * 8,
    *combine("are you|is this|am I talking to|am I chatting with|am I speaking to|u r|r u"
             "|am I speaking with|do I speak with|do I talk to|you are|so you are|are you really"
             "|is it true that you are|so are you|is this really", _BEING),
    *combine("are you|is this|you are|am I talking to", _BEING,
             "or what|, right|or not|or a human|or a person|or a machine|, yes or no"),
    *combine("are you|are you really|you are|so you are|r u|is this", "real|human|artificial",
             "|or not|, right|or what|or artificial|or a robot"),
    *combine("what is|what's|whats|tell me|give me|I want to know|I would like to know"
             "|can you tell me|do you know|may I know|may I ask|please tell me|let me know",
             "your name|your model name|your full name|the name of this model|the name of this AI"
             "|the name of this assistant|this model's name|the name of this bot"),
    *combine("your name|model name|your model name|name of this model|name of this bot"
             "|your full name|name of the model|the name of this AI", "|please|, please|again"),
    *combine("who|what|who or what|what exactly|who exactly|so who|so what",
             "are you|am I talking to|am I speaking with|am I speaking to|am I chatting with"
             "|is answering me|is answering here|is talking to me|r u", "|here|now"),
    *combine("who is|who's", "this|it|that|here|speaking|talking|answering|answering me",
             "|, please|now"),
    *combine("tell me|explain|I want to know|I would like to know|can you tell me|let me know"
             "|do you know|I wonder|say|can you say|please tell me|could you explain",
             "who you are|what you are|who or what you are|which model you are|which AI you are"
             "|what model this is|who this is|what kind of model you are|who I am talking to"
             "|what I am talking to|who is answering|what you are called|how big you are"
             "|which version you are|if you are a robot|if you are a human|if you are a person"
             "|what I should call you|if you are real"),
    *combine("which|what|what kind of|what sort of", _KINDS,
             "are you|is this|am I using|am I talking to|answers here|is answering me|answers me"),
    *combine("tell me about|introduce|describe|present|tell me something about|tell me more about"
             "|tell us about|give me a short introduction of|give me a short description of"
             "|can you introduce|can you describe|could you introduce|could you present"
             "|I want to know more about|I want to know something about|say something about"
             "|please introduce|please describe", "yourself", "|briefly|to me|in one sentence"),
    *combine("what is|what's|who is|tell me about|tell me more about|describe|introduce",
             "gpt-oss-nano|this model|this assistant|this AI|this bot|this chatbot"),
    *combine("how big|how large|how small|how tiny|how old",
             "are you|is this model|is the model|is this AI|is this bot|are you really"),
    *combine("which|what", "architecture|version|size|name",
             "do you have|does this model have|has this model|does this AI have"
             "|does this bot have"),
    *combine("what|how", "should I|shall I|can I|may I|do I|do people|must I",
             "call you|name you|call this model|call this bot"),
    *combine("what|how", "are you|is this model|is this bot|is this AI|is the model", "called"
             "|named"),
    *combine("do you have|does this model have|does this bot have|have you got|did they give you",
             "a name|a name or not|a model name|a real name|a version"),
)
_ABILITIES = "skills|abilities|features|talents|capabilities|functions"
_CAN_DO = (
    f"what you can do|what you can do for me|what you are able to do|what you are good at"
    f"|what I can ask|what I can ask you|how you can help|how you can help me|what you offer"
    f"|how to use you|what this model can do|{'|'.join('your ' + a for a in _ABILITIES.split('|'))}"
)
HELP = (
    *combine("what can you do|help|help me|how can you help me|can you help me|what can I ask") * 8,
    *combine("what|what all|what else|which things|what kind of things|what sort of things"
             "|which tasks|what kind of tasks",
             "can you do|can you do for me|are you able to do|could you do|can this model do"
             "|can you help me with|can you help with|are you good at|can I ask you|can I ask"
             "|should I ask you|can I do with you|can I ask you to do|did you learn|do you offer"
             "|were you trained for|were you made for|are possible here|do you do"
             "|does this model do"
             "|do you know|should I ask|would you like me to ask"),
    *combine("what|which", _ABILITIES, "do you have|do you offer|are there|have you got"
             "|does this model have|does this bot have|can you offer|did you learn"),
    *combine("tell me|show me|explain|list|say|describe|name|I want to know|can you tell me"
             "|can you show me|please tell me|let me know|I would like to know", _CAN_DO),
    *combine("tell me|show me|give me|list|I want|can you give me",
             "all|a list of|some examples of|examples of|an overview of|some of|a few examples of",
             "your skills|your abilities|the things you can do|what you can do|your features"
             "|questions I can ask|your capabilities"),
    *combine("help|help me|I need help|I need some help|please help|please help me|can you help"
             "|can you help me|could you help|could you help me|will you help me|can I get help"
             "|can I get some help|show help|show me some help|give me help|give me some help"
             "|I want help|I want some help|I could use some help|I am looking for help|get help",
             "|please|here|now|a bit|a little|, nano|today"),
    *combine("how", "can|could|may|will|would|do",
             "you help me|you help|you assist me|I use you|I use this|I use this model|I start"
             "|you be useful to me|you be useful|you be of use|you be of help|I begin"
             "|I use this bot|I work with you|I get help|I get started"),
    *combine("with what|in what way|in which way", "can you|could you|will you",
             "help|help me|assist|assist me|be useful|be useful to me"),
    *combine("can you|could you|are you able to|will you|do you",
             "do anything useful|do something useful|do anything|do something for me|assist me"
             "|do anything for me|be useful|be useful to me|be of help"),
    *combine("how does", "this|this thing|this model|this bot|this chat|it", "all work|work"
             "|work here"
             "|help me"),
    *combine("what is|what's|tell me|explain", "your purpose|your use|your job|your task"
             "|the purpose of this model|the purpose of this bot|the use of this model"
             "|the use of this bot|your job here|your task here"),
    *combine("what are you|what is this model|what is this bot", "for|made for|trained for|good for"
             "|useful for|used for|here for|able to do|good at|capable of"),
    *combine("which|what|what kind of|what sort of", "questions|tasks|requests|problems|commands",
             "can I ask|can you answer|do you answer|can you handle|do you understand|can you do"
             "|can I give you|do you know|are possible|can I use"),
    *combine("I don't know|I do not know|I have no idea|I am not sure|I wonder|not sure|tell me",
             "what to ask|what I can ask|what to do here|where to start|how to start|how to begin"
             "|how to use you|what to ask you|where to begin|how this works"),
    *combine("where|how|with what", "do I|can I|should I|could I", "start|begin|get started"),
    *combine("menu|the menu|commands|the commands|usage|the usage|help|help page|help menu"
             "|your menu",
             "|please|, please") + combine("show|show me|list|open|give me|display",
             "menu|the menu|commands|the commands|your commands|usage|the usage|the help menu"
             "|the help page|the help|all commands"),
    *combine("/help|--help|-h|/help me|/help please|--help me|-h --help|help --help|help -h"),
)
_THANK = (
    "thank you|thanks|thx|ty|many thanks|thank u|thanks a lot|thank you very much|thank you so much"
    "|thanks so much|big thanks|cheers|danke|merci|gracias|grazie|arigato|obrigado|tysm"
    "|thanks a million|thanks a bunch|thanks again|thank you again|thank you kindly|I thank you"
)
THANKS = (
    *combine(_THANK) * 4,
    *combine(_THANK, "nano|bot|friend|my friend|mate|assistant|for your help|for the help"
             "|for helping"
             "|for helping me|for the answer|for your answer|for that|for this|for everything"
             "|for your time|for the quick answer|, that helps|, that helped|, that was helpful"
             "|, well done|, great job|, great|, perfect|, this helps me|, very kind of you"
             "|, I am grateful|, I appreciate it|, much appreciated|for being so kind"),
    *combine("great|perfect|good|nice|cool|awesome|ok|okay|wonderful|excellent|super|fine|alright"
             "|all right|very good|great job|well done|got it|I see|understood|that helps"
             "|that helped|yes|good job|amazing|brilliant|fantastic|very nice|nice work",
             ", thanks|thanks|, thank you|thank you|, thanks a lot|, many thanks|, thx"),
    *combine("I|I really|we|I do|I very much", "appreciate", "it|that|this|your help|the help"
             "|your answer|your time|your kind help"),
    *combine("|very|very much|so|all|your help is|that is|it is|this is", "appreciated"
             "|much appreciated"
             "|very much appreciated|really appreciated"),
    *combine("I am|we are|I'm", "grateful|very grateful|so grateful|really grateful|thankful"
             "|very thankful|so thankful", "|to you|for that|for your help|for everything"),
    *combine("that|this|it", "helped|helps|helped a lot|was helpful|was very helpful|was kind"
             "|helped me", ", thanks|, thank you|, thanks a lot|, I appreciate it"),
)
HOW_ARE_YOU = (
    *combine("how are you|how are you doing|how are you today|how is it going|what's up") * 8,
    *combine("how are you|how are you doing|how are you feeling|how r u|how do you feel|how goes it"
             "|how is it going|how's it going|how are things|how is everything|how's everything"
             "|how is everything going|how are things going|how is life|how's life|how do you do"
             "|how have you been|how have things been|how are you all|how goes life|how u doing",
             "|today|my friend|, my friend|this morning|this evening|now|right now|, nano"
             "|these days"
             "|lately|with you|at the moment"),
    *combine("are you|you|r u|are you feeling|are you doing|you feeling|do you feel|feeling"
             "|are you still", "ok|well|fine|good|great|all right|okay", "|today|, my friend"
             "|this morning|these days|now"),
    *combine("is everything|is all|everything|all|are things|is life", "ok|well|good|fine|all right"
             "|okay|going well", "|today|with you|, nano|these days|on your side|at your end"),
    *combine("how is|how was|how's", "your day|your morning|your evening|your week|your night"
             "|your weekend|your afternoon|the day|your life", "|going|so far|, nano|, my friend"),
    *combine("are you having|did you have|do you have|you are having|have you had", "a good|a nice"
             "|a great|a fine", "day|morning|evening|week|night|weekend"),
    *combine("I hope|hope|I do hope|I really hope|I trust", "you are well|you are doing well"
             "|you are fine|you are ok|you are having a good day|you feel well|you feel good"
             "|you are feeling well|all is well|all is well with you|you are good|things are well"),
    *combine("tell me|I want to know|may I ask|can I ask|can you tell me|I wonder|let me know",
             "how you are|how you are doing|how you feel|how you are feeling|how it is going"
             "|how things are|how your day is|how your day was|how life is", "|today|now"),
    *combine("what's up|what is up|whats up|wassup|sup|what's new|what is new|whats new"
             "|anything new",
             "|nano|bot|today|with you|, my friend|there|these days|in your life"),
    *combine("wie geht es dir|wie geht's|wie geht es|wie geht's dir|ça va|comment ça va|qué tal"
             "|comment vas-tu|cómo estás|qué tal estás|come stai|come va|wie gehts",
             "|nano|my friend|, nano|bot|today|, my friend"),
)
_A_JOKE = (
    "a joke|another joke|a good joke|a funny joke|a short joke|a new joke|your best joke"
    "|your favorite joke|one joke|some jokes|any jokes|a joke about models|a joke about robots"
    "|a joke about AI|a nice joke|one more joke|some good jokes|any good joke"
)
JOKE = (
    *combine("tell me a joke|joke|a joke|make me laugh|tell me something funny") * 10,
    *combine("tell me|tell us|tell|give me|I want|I need|I would like|I'd like|let me hear"
             "|I want to hear|I would like to hear|can you tell me|can you tell|could you tell me"
             "|do you know|do you have|got|make|make up|write|write me|say|share|crack|know|show me"
             "|have you got|let's hear|I would love to hear|entertain me with|cheer me up with"
             "|can you make", _A_JOKE),
    *combine("joke|jokes|a joke|one joke|another joke|one more joke|a good joke|a short joke"
             "|a funny joke|your best joke|joke time|time for a joke|the joke of the day"
             "|joke of the day"
             "|joke of today|something funny|something to laugh about",
             "|please|now|for me|today|, nano|then|, please"),
    *combine("tell me|say|tell us|write|do|show me|give me|I want to hear|can you say"
             "|can you tell me"
             "|do you know|I need|I want|could you say|please say", "something funny|anything funny"
             "|something really funny|a funny thing|something to laugh about"
             "|something to make me laugh"
             "|something that makes me laugh|something to make me smile|a funny line"),
    *combine("make me|make us|can you make me|could you make me|please make me|try to make me"
             "|I want you to make me|I would like to|I want to|I need to|let me|help me to"
             "|I would love to|I feel like I need to", "laugh|smile|laugh a bit|laugh today"
             "|laugh out loud|laugh again|smile again|laugh now|smile a bit|smile today"
             "|have a laugh"),
    *combine("I need|I want|I could use|give me|I would like|time for|how about", "a laugh"
             "|a good laugh"
             "|a smile|some fun|some humor|a bit of fun|a bit of humor|a little laugh"),
    *combine("are you|can you be|be|please be|try to be|could you be|do you know how to be"
             "|how can you be|you should be", "funny|funny now|a bit funny|funny today|really funny"
             "|very funny|funny for me"),
    *combine("cheer me up|entertain me|amuse me|cheer us up|entertain us|amuse us"
             "|can you entertain me"
             "|can you cheer me up|can you amuse me", "|please|a bit|now|today|with a joke"
             "|with jokes"
             "|with something funny|with some humor|with humor"),
    *combine("what is|what's|tell me|which is|let me hear|I want to hear|do you have|share",
             "your favorite joke|your best joke|your funniest joke|your shortest joke"
             "|your latest joke"
             "|the funniest joke|the best joke|the shortest joke"),
)
# fmt: on
