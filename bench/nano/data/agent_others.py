"""Tools that agents declare next to those of `agent_names`; no branch ever needs one of them."""

from collections.abc import Iterable
from typing import Any

from bench.nano.data import words
from bench.nano.data.agent_schema import (
    draw_about,
    draw_description,
    draw_style,
    draw_type,
    object_schema,
    schema_of,
)
from bench.nano.data.source import Source
from gptoss_local.harmony.message import Tool

_KNOWN = """
web_fetch | Fetches a URL and answers a question about the page. | url:string prompt:string
fetch | Fetch a web page as markdown | url:string max_length?:integer raw?:boolean
web_search | Searches the web. | query:string allowed_domains?:strings blocked_domains?:strings
todo_write | Create and manage a list of tasks for the session. | todos:objects
todo_read | Read the list of tasks. |
update_plan | Updates the task plan. | explanation?:string plan:objects
ask_followup_question | Ask the user a question to gather more information. | question:string follow_up?:strings
attempt_completion | Tell the user that the task is done. | result:string
ask_user | Ask the user to choose. | question:string options:strings
notebook_edit | Replaces a cell of a Jupyter notebook. | notebook_path:string cell_id?:string new_source:string cell_type?:enum=code/markdown
notebook_run_cell | Runs one cell of a notebook. | cell_id:string
git_diff | Shows what changed since a commit. | base?:string staged?:boolean
git_commit | Record the staged changes. | message:string amend?:boolean
git_log | Shows the latest commits. | max_count?:integer
git_status | Shows the state of the working tree. |
git_branch | Create, switch or delete a branch. | branch:string action:enum=create/switch/delete
task | Launch a new agent for a larger job. | description:string prompt:string subagent_type:string
spawn_agent | Starts another agent in the background. | goal:string model?:enum=small/large
think | Use it to think about something. It changes nothing. | thought:string
sequential_thinking | Think in steps. | thought:string step:integer total_steps:integer more:boolean
browser_navigate | Navigate to a URL | url:string
browser_click | Click on an element of the page | element:string ref:string
browser_type | Type text into a field of the page | ref:string text:string submit?:boolean
browser_screenshot | Take a picture of the page | full_page?:boolean
browser_close | Close the page |
browser_action | Interact with a browser. | action:enum=launch/click/type/scroll_down/close coordinate?:string
memory_store | Remember a fact for later sessions. | key:string value:string tags?:strings
memory_recall | Recall a fact. | key:string
create_entities | Create entities in the knowledge graph | entities:objects
search_nodes | Search for nodes in the knowledge graph | query:string
save_memory | Saves a fact about the user. | fact:string
lsp_definition | Go to the definition of a symbol. | symbol:string line:integer character:integer
lsp_references | Find all uses of a symbol. | symbol:string
lsp_rename | Rename a symbol everywhere. | symbol:string new_name:string
get_diagnostics | Compiler errors and warnings of the open editors. | severity?:enum=error/warning/hint
list_code_usages | Lists usages of a function, class or method. | symbol_name:string
view_image | Attach an image to the conversation. | image:string
read_media | Describe an image or a sound. | media:string detail?:enum=auto/low/high
delete_file | Deletes a file. | target:string explanation?:string
move_file | Moves or renames a file. | source:string destination:string
copy_file | Copies a file. | source:string destination:string
get_file_info | Size, owner and dates of a file, not its content. | target:string
create_directory | Make a new folder. | new_folder:string
glob | Finds files by a name pattern such as **/*.js, not by what is in them. | glob:string
bash_output | Output of a background process that was started earlier. | bash_id:string filter?:string
kill_process | Stops a background process. | pid:integer
wait | Wait some seconds. | seconds:number
list_mcp_resources | Lists resources of the connected servers. | server?:string
read_mcp_resource | Reads a resource of a connected server. | server:string uri:string
use_mcp_tool | Use a tool of a connected server. | server_name:string tool_name:string arguments:object
exit_plan_mode | Leave the plan mode. | plan:string
new_task | Start a new task with a context. | context:string
switch_mode | Switch to another mode. | mode_slug:string reason?:string
skill | Load a skill by its name. | skill:string
fetch_rules | Fetches rules of the workspace. | rule_names:strings
install_package | Adds a dependency to the project. | package:string version?:string dev?:boolean
run_tests | Runs the tests of the project. | suite?:string watch?:boolean
create_issue | Open a new issue on GitHub. | repo:string title:string labels?:strings
create_pull_request | Opens a pull request. | title:string head:string base:string draft?:boolean
list_issues | Lists issues of a repository. | owner:string repo:string state?:enum=open/closed/all
query_database | Send a SQL query to the database. | sql:string params?:strings
send_message | Send a message to a channel. | channel:string message:string
send_email | Send an e-mail. | to:strings subject:string message:string attachments?:objects
calendar_add | Add an event to the calendar. | title:string start:string end?:string guests?:strings
translate | Translates a text. | phrase:string target_language:string
generate_image | Makes a picture from a prompt. | prompt:string size?:enum=small/medium/large
speak | Reads a text aloud. | sentence:string voice?:string
set_reminder | Remind the user later. | about:string minutes:integer
get_selection | The text selected in the editor. |
open_in_browser | Show a page to the user. | url:string
deploy | Deploys the app. | environment:enum=staging/production dry_run?:boolean
get_logs | Fetch logs of a service. | service:string since?:string level?:enum=info/warning/error
docker_build | Builds an image. | tag:string args?:map
report_bug | Tell the makers of this agent about a bug. | title:string steps?:strings
team_create_outcome | Create a shared outcome of the team with its sections. | title:string required_sections:strings
team_run_task | Have a teammate work on a task. | agent_id:string assignment:string
team_read_mailbox | Read the messages that teammates have sent. | unread_only?:boolean
team_list_runs | List the runs of the teammates. | status?:string
team_send_message | Send a message to a teammate. | to_agent:string body:string
team_broadcast | Send a message to all teammates. | body:string
team_status | How far every teammate is. |
create_ticket | Create a ticket for the support team. | subject:string priority?:enum=low/high
create_branch | Create a branch on the server. | branch:string
create_workflow | Create a workflow of several steps. | title:string steps:strings
run_query | Run a saved query of the database. | query_id:string
run_workflow | Start a workflow by its id. | workflow_id:string
run_linter | Check the style of the project. | fix?:boolean
read_clipboard | What the user has copied last. |
read_messages | Read the messages of a channel. | channel:string limit?:integer
edit_event | Change an event in the calendar. | event_id:string title?:string
edit_profile | Change the profile of the user. | display_name?:string
list_branches | List the branches of the repository. | remote?:boolean
list_models | List the language models that can be used. |
list_calendars | List the calendars of the user. |
search_web | Search the internet. | topic:string
search_docs | Search the documentation of a library. | library:string topic:string
search_people | Find a colleague. | person:string
write_email | Write an e-mail and keep it as a draft. | to:strings subject:string
finish | Signals that everything is done. | message?:string
multi_tool_use | Calls several tools at once. | uses:objects
tool_search | Finds more tools by keyword. | keywords:strings
"""  # noqa: E501
_VERBS = (
    "archive", "assign", "book", "calibrate", "cancel", "charge", "check", "classify", "close",
    "compare", "count", "deliver", "describe", "draw", "encrypt", "estimate", "forecast", "grade",
    "import", "inspect", "invite", "lock", "measure", "merge", "mix", "monitor", "notify", "order",
    "paint", "park", "pause", "plan", "play", "publish", "queue", "rank", "rate", "refund",
    "repair",
    "reserve", "reset", "rotate", "schedule", "score", "ship", "sort", "split", "subscribe",
    "summarize",
    "sync", "tag", "train", "transfer", "unlock", "upload", "validate", "verify", "vote", "weigh",
)  # fmt: skip
_NOUNS = tuple(sorted({*words.NOUNS} - {"file", "folder", "paper", "book", "library"}))
_SUMMARIES = (
    "{verb} a {noun}.", "{verb} the {adj} {noun} of a {noun2}.", "Use this to {verb} {noun}s.",
    "This tool can {verb} a {noun} for the user.", "{verb} every {noun} in {city}",
    "{verb} {noun}s",
    "Lets you {verb} the {noun} and the {noun2}.", "Only for the {word} team: {verb} a {noun}.",
    "Request to {verb} a {adj} {noun}.", "{verb} one {noun} by its id",
    "{word}: {verb} the {noun2}s.",
)  # fmt: skip


def draw_other(source: Source, taken: Iterable[str]) -> Tool:
    """Draw a tool that cannot do what a role does, with a name that is not taken yet."""
    taken = {name.lower() for name in taken}
    while True:
        tool = _known(source) if source.chance(0.55) else _invented(source)
        if tool.name.lower() not in taken:
            return tool


def _known(source: Source) -> Tool:
    name, summary, spec = source.choice(_KNOWN_ROWS)
    style = draw_style(source)
    properties: dict[str, Any] = {}
    required = []
    tells = source.chance(0.7)
    for word in spec.split():
        argument, _, kind = word.partition(":")
        about = f"{argument.strip('?').replace('_', ' ').capitalize()} {source.noun()}"
        key = style(argument.strip("?"))
        properties[key] = schema_of(source, kind, about if tells and source.chance(0.6) else "")
        if not argument.endswith("?"):
            required.append(key)
    schema = object_schema(source, properties, required)
    name = name if source.chance(0.5) else style(name)
    return Tool(name, draw_description(source, summary, long=0.1), schema)


def _invented(source: Source) -> Tool:
    verb, noun, style = source.choice(_VERBS), source.choice(_NOUNS), draw_style(source)
    kind = source.rng.random()
    if kind < 0.55:
        name = style(f"{verb}_{noun}")
    elif kind < 0.8:
        name = f"{source.invented()}_{style(f'{verb}_{noun}')}"
    else:
        name = source.invented() + source.choice(("", "", "_api", "Client", f"_{verb}"))
    summary = source.choice(_SUMMARIES).format(
        verb=verb, noun=noun, noun2=source.choice(_NOUNS), word=source.invented(),
        adj=source.choice(words.ADJECTIVES), city=source.city(),
    )  # fmt: skip
    summary = summary[0].upper() + summary[1:]
    properties: dict[str, Any] = {}
    for _ in range(source.rng.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        key = f"{source.choice(words.CODE_WORDS)}_{source.choice(_NOUNS)}"
        key = style(key if source.chance(0.5) else key.split("_")[source.chance(0.5)])
        properties[key] = schema_of(source, draw_type(source), draw_about(source))
    required = [key for key in properties if source.chance(0.6)]
    if not properties and source.chance(0.4):
        return Tool(name, summary)
    schema = object_schema(source, properties, required)
    return Tool(name, draw_description(source, summary, long=0.1), schema)


_KNOWN_ROWS = tuple(
    tuple(part.strip() for part in row.split("|")) for row in _KNOWN.strip().splitlines()
)
