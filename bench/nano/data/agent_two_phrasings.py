"""How a user asks a coding agent for one thing after another: see `agent_requests`.

A clause is an imperative without its full stop, a join makes one message of two clauses. Both are
products of parts, so that held-out ones are made of words that training shows.
"""

from bench.nano.data.wording import combine

_FILE = "{path}|the file {path}"
_FOLDER = "{path}|the folder {path}|the directory {path}|the files in {path}"
_TEXT = "{pattern}|the text {pattern}|the word {pattern}"

CLAUSES = {
    "shell": (
        *combine("run|execute|try|start|use the shell to run|use the terminal to run|go and run",
                 "{command}|the command {command}|the shell command {command}",
                 "|in the terminal|in the shell"),
        *combine("show me|tell me|print|give me|report", "the output of|the result of|what comes "
                 "out of", "{command}|the command {command}"),
        *combine("show me what|tell me what|see what|check what|find out what",
                 "{command} prints|the command {command} prints|{command} says|{command} gives"),
    ),
    "create": (
        *combine("create|make|write|add", "{path}|a file {path}|the file {path}|a new file {path}",
                 "with the content {content}|with the text {content}|with {content} in it|that "
                 "contains {content}|containing {content}"),
        *combine("write|put|save|store", "{content}|the text {content}",
                 "to {path}|into {path}|into the file {path}|in a new file {path}|as {path}|"
                 "as the file {path}"),
    ),
    "read": (
        *combine("read|open|print|show|display|look at|show me|let me see", _FILE),
        *combine("show me|tell me|check|see|report",
                 "what is in {path}|what is in the file {path}|what the file {path} says|"
                 "what {path} contains|the content of {path}"),
    ),
    "edit": (
        *combine("replace|change|substitute|turn|exchange", "{old}|the text {old}",
                 "by {new} in {path}|with {new} in {path}|to {new} in {path}|into {new} in "
                 "{path}|by {new} in the file {path}|with {new} in the file {path}|to {new} in "
                 "the file {path}"),
        *combine("in {path}|in the file {path}", "replace {old} by {new}|replace {old} with {new}|"
                 "change {old} to {new}|turn {old} into {new}|write {new} instead of {old}"),
        *combine("edit|change|update|modify", _FILE,
                 "so that {old} becomes {new}|so that {old} is {new}|so that it says {new} "
                 "instead of {old}|, {old} becomes {new}|: replace {old} with {new}|"
                 ": {old} becomes {new}"),
    ),
    "list": (
        *combine("list|show|show me|print|look into|go through", _FOLDER),
        *combine("show me|tell me|list|check|see", "which files are in {path}|which files are in "
                 "the folder {path}|what is in the folder {path}|what the folder {path} contains"),
    ),
    "search": (
        *combine("search the files for|search for|find|look for|grep for|grep the files for|"
                 "search the code for", _TEXT),
        *combine("search for|find|look for|grep for", _TEXT, "in the files|in the code"),
        *combine("show me|tell me|find out|check|see", "where {pattern} is|where {pattern} is used|"
                 "where the text {pattern} is|which files contain {pattern}"),
    ),
    "search_in": (
        *combine("search {path} for|search the folder {path} for|search in {path} for|look in "
                 "{path} for|grep in {path} for|grep {path} for|search the files in {path} for",
                 _TEXT),
        *combine("find|search for|look for|grep for", _TEXT, "in {path}|in the folder {path}"),
        *combine("show me|tell me|find out|check", "where {pattern} is in {path}|where in {path} "
                 "the text {pattern} is|which files in {path} contain {pattern}"),
    ),
}  # fmt: skip
CREATE_BLOCK = (
    *combine("create|make|write|add|save", "{path}|a file {path}|the file {path}|a new file {path}",
             "with this content:\n{content}|with the following content:\n{content}|:\n{content}|"
             ", content:\n{content}"),
    *combine("write this|save this|put this|store this|write the following|save the following",
             "to {path}:\n{content}|as {path}:\n{content}|into {path}:\n{content}|"
             "in a new file {path}:\n{content}|to the file {path}:\n{content}"),
)  # fmt: skip

_DONE = (
    "when that is done|when this is done|once that is done|once this is done|after that|"
    "afterwards|then|next"
)
_LATER = "then|Then|after that|After that|When this is done,|Once that is done,|Next,|afterwards"
_BOTH = (
    "Two things|Two tasks|Two steps|Do this|Do these two things|Please do these two things|"
    "I have two tasks for you|My list for you|These steps, one after the other|todo|Tasks"
)
JOINS = (
    *combine("{a},|{a} and|{a};|{a}, and", _DONE, "{b}|, {b}"),
)  # fmt: skip
OTHER_JOINS = (
    *combine("First {a},|First {a} and|First, {a},|First {a};|First of all {a},|First, {a} and",
             _DONE, "{b}"),
    *combine("First {a}.|{A}.|First, {a}.|Start with this: {a}.|Do this first: {a}.|"
             "Before anything else {a}.",
             "Then|After that|After that,|When this is done,|When that is done,|Once this is done,|"
             "Next,|Second,|Afterwards", "{b}"),
    *combine("I want you to {a}|I need you to {a}|You should {a}|You have to {a}|We need to {a}|"
             "Can you {a}|Could you {a}|Could you first {a}|Would you {a}|We should {a}",
             "and then|and after that|, then|and afterwards|, and then|and next", "{b}"),
    *combine("Two things: {a},|Two steps: {a},|Two tasks: {a},|I have two tasks for you: {a},",
             "then|and then|after that|and after that", "{b}"),
)  # fmt: skip
_LISTS = (
    "1. {a}\n2. {b}", "1. {A}\n2. {B}", "- {a}\n- {b}", "- {A}\n- {B}", "* {A}\n* {B}",
    "1) {a}\n2) {b}", "1) {A}\n2) {B}", "a) {a}\nb) {b}",
)  # fmt: skip
_FIRST = "Step 1: |First: |First |1: |(1) |One: "
_SECOND = "Step 2: |Second: |Then |Then: |2: |(2) |Two: |After that |When this is done, "
_GAPS = ("\n", "\n\n")
BLOCK_JOINS = (
    *_LISTS,
    *(f"{head}:{gap}{both}" for head in _BOTH.split("|") for gap in _GAPS for both in _LISTS),
    *(
        f"{first}{{a}}{gap}{second}{{b}}"
        for first in _FIRST.split("|")
        for second in _SECOND.split("|")
        for gap in _GAPS
    ),
    *(f"{{A}}{gap}{later} {{b}}" for later in _LATER.split("|") for gap in (*_GAPS, ".\n")),
)
