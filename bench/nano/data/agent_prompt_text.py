"""Identities, headings and other short texts of system prompts; see `agent_prompt_rules`."""

SMALL = """
You are a helpful assistant.
You are a helpful, honest and harmless assistant.
Be concise.
Be brief.
Be helpful.
Be polite and precise.
Answer briefly.
Answer the user.
Answer clearly and politely.
Help the user.
Help the user with [code|files|anything|questions|the project].
You are an assistant.
You are an AI assistant.
You are a coding assistant.
You are a friendly assistant.
You are {product}.
You are {product}, an assistant.
You are {product}, a helpful AI.
You are {product}, a coding agent in the terminal.
You are {person}, a helpful assistant.
Your product is {product}.
You are an expert in {lang}.
You are an expert {lang} developer.
You are a senior software engineer.
You are a {adj} assistant for {noun} questions.
You help people with {noun}s.
You work for {product}.
You are the assistant of {person}.
You are a chatbot on the web page of {product}.
You are a voice assistant in a {noun}.
You are a smart home assistant in {city}.
You are an agent with tools.
Use the tools to answer.
Use the tools when they help.
Use a tool if the request needs one.
You have access to tools.
You have access to the following functions.
Call functions to help the user.
Do what the user asks.
Do what the user asks, no more.
Follow the user's request exactly.
Keep it short.
Keep answers short and clear.
Take your time and be exact.
Thank you for helping our users.
Always be kind.
Our office is in {city}.
The user writes {lang}.
Today is a {adj} day.
The project is called {product}.
The project is written in {lang}.
We are in {dir}.
The working directory is {dir}.
This is a test of {product}.
This is version {n} of {product}.
System prompt {n}
Assistant for {product}. Be concise.
chat
You are a tiny model.
Hello! You are {product}.
You are ChatGPT, a large language model.
You are a helpful assistant. Be concise.
You are a helpful assistant with access to tools.
You are a helpful assistant that can read and write files.
You are a helpful assistant for the {noun} of {person} in {city}.
Assist {person} with the {noun}.
Serve the customers of {product} in {city}.
Tell the truth.
"""

IDENTITIES = """
You are {product}, an expert software engineer with [deep|broad|{n} years of] knowledge of {lang}.
You are {product}, a highly skilled [software engineer|developer] with [extensive|wide] experience.
You are {product}, an interactive [CLI|command line] tool that helps users with software tasks.
You are a coding agent running in the {product} CLI, a terminal-based coding assistant.
You are {product}, a [powerful|careful] agentic AI coding assistant, in the editor {product}.
You are an AI programming assistant. You work in {product}.
You are {product}, an autonomous agent that [solves|handles] tasks in a [sandbox|repository].
You are {product}, the assistant of the {word} [team|company|community] in {city}.
You are a [helpful|knowledgeable] assistant in {product}, a chat application for {noun}s.
You are pair programming with [a user|{person}] to [solve|work on] their coding task.
Act as an expert [software|{lang}] developer.
You are {product} {n}, [made|built|trained] by {product}.
As {product}, you [help|support] [engineers|writers|{person}] with [code|{noun}s|daily work].
You are an agent: you [work|go on] until the request of the user is done.
You and the user share the workspace {dir}.
You are {product}, an [open source|internal] assistant that lives in a {noun}.
"""

HEADINGS = """
Rules|General rules|Guidelines|Tool use|Tools|Available tools|Files|Working with files|Editing|
Making edits|Commands|Shell|Running commands|Git|Version control|Code style|Style|Conventions|
Safety|Security|Output|Output format|Formatting|Tone|Communication|Environment|System information|
Project|Project overview|Architecture|Memory|Project memory|Context|Background|Examples|Example|
Workflow|How to work|Objective|Capabilities|Limits|Testing|Tests|Dependencies|Deployment|FAQ|Notes|
Important|Hints|Tips|Reference|API|Data model|Glossary|People|Contacts|Roadmap|Changelog|Logging|
Performance|User interface|Documentation|Configuration|Code|Snippets|Status|Modes|Search|
Task management|Preferences|User preferences|Custom instructions|About the user|About {product}|
{word}|{word} {noun}|The {noun}|{product}|{ident}|{path}|Notes of {person}|How {product} works
"""

TOOL_WORDS = """
read_file write_file edit_file apply_patch run_command bash shell execute_command list_files grep
glob search_files web_fetch web_search todo_write ask_followup attempt_completion new_task Read
Write Edit MultiEdit Bash Glob Grep LS WebFetch TodoWrite str_replace_editor codebase_search
file_search list_dir read_lints create_file insert_edit run_in_terminal get_errors fetch_webpage
update_plan view_image browser_action switch_mode undo_edit open_file diff_view
"""

TOOL_PROSE = """
[Reads|Shows|Returns] [the content of|lines of] a file [at|under] a path.
[Runs|Executes] a [shell|bash] command in {dir} and [returns|prints] its output.
[Writes|Creates|Replaces] a file with [the given|new] content.
[Replaces|Changes] one [passage|text] of a file [by|with] another.
[Lists|Shows] [files|folders] [of|below] a [folder|directory].
[Searches|Looks for] a [pattern|text|regular expression] in [all|the] files [of|below] {dir}.
[Finds|Lists] files [by|whose] name matches a [glob|pattern], [e.g.|such as] `*.{word}`.
[Fetches|Loads|Downloads] a [web page|URL] [as|and gives it as] [text|Markdown].
[Keeps|Updates] the [todo list|plan|list of steps] of the session.
[Shows|Sends] [a notice|a picture|the {noun}] to [the user|{person}].
[Measures|Paints|Moves|Counts] the {noun}s [of|in] a {noun}.
[Takes|Wants] a {noun} and [returns|gives] a {adj} {noun}.
"""

QUESTIONS = """
run the command `{cmd}`
[create|write] [the|a] file `{path}` with a {noun} in it
reply with "{word}"
what is in {path}?
[rename|change] `{ident}` to `{ident}` in {path}
[please|can you] [fix|explain|test] `{ident}`
what is {n} + {n}?
[list|show] [the files|all files] in {dir}
where is `{ident}` [defined|used]?
say {word}
what is the weather in {city}?
[commit|push] the change of {person}
how many {noun}s are there?
repeat "{word} {word} {word}"
[write|send] a message to {person}
delete {path} and run `{cmd}`
is the {noun} {adj}?
"""

REPLIES = """
[Done.|OK.|Sure.|Certainly.|Finished.]
I [created|changed|read] `{path}`.
[I call|Calling] `{tool}` with `{path}`.
{n}
The {noun} is {adj}.
`{ident}` is in `{path}`, line {n}.
[The command|`{cmd}`] [printed|gave] {n} lines.
There are {n} {noun}s in {dir}.
I [ran|started] `{cmd}` and it [worked|failed with {n}].
{word}
[Here is|This is] the [result|change|list]: {ident}, {ident}, {ident}
I am {product}. How can I help?
"""

LOGS = """
2025-0{d}-1{d} 1{d}:{n} [INFO|WARN|ERROR] {ident}: {noun} {word} [started|failed|done] in {n} ms
[info|warning|error]: {path}:{n}:{n}: {adj} {noun} `{ident}`
{ident}={n} {ident}={word} {ident}={n}
[PASS|FAIL|ok|SKIP] {path} ({n} tests, {n} ms)
$ {cmd}
> {word}@{n}.{d}.{d} {word}
"""
