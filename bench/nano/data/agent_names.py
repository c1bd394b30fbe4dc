"""How agents declare the tools of a coding session, by role. Only words: see `agent_tools`."""

from bench.nano.data.agent_file_names import CREATE, EDIT, READ
from bench.nano.data.agent_kind import BOOLEAN, INTEGER, NUMBER, STRING, Kind, names

SHELL = Kind(
    names=(
        "bash", "Bash", "shell", "run_command", "execute_command", "run_in_terminal", "terminal",
        "exec", "shell_exec", "run_shell_command", "local_shell", "exec_command", "RunCommand",
        "sh",
        "run_terminal_cmd", "execute_bash", "Shell", "cmd", "command", "run_bash", "runInTerminal",
        "developer__shell", "console", "bash_tool", "runCommands", "powershell", "zsh",
        "container_exec",
        "container_execute", "RunShell", "Terminal", "execute", "run", "system",
    ),
    verbs=("run", "execute", "exec", "launch", "start", "invoke", "perform", "do"),
    objects=(
        "command", "shell", "bash", "terminal", "shell_command", "cmd", "terminal_command",
        "script",
        "command_line", "in_shell", "in_terminal", "bash_command", "cli", "process", "in_sandbox",
        "in_container", "on_host", "console", "local_command",
    ),
    slots=names(
        "command command command command cmd cmd script input code shell_command command_line",
        "bash_command line commands_text cmdline full_command text run statement cmd_string",
    ),
    about={"command": (
        "The command to run", "The command to execute", "Shell command", "The bash command to run.",
        "The shell command to execute.", "What to run in the shell",
        "Command line, run with bash -c",
        "The CLI command to execute. It must be valid for the current operating system.", "Command",
        "Exact command line to be run", "A single command or several joined by && or ;",
        "The terminal command to run. Make sure that it is properly formatted.",
        "The command, as one would type it at a prompt", "Bash code",
        "Text that is passed to the shell",
    )},
    summaries=(
        "Runs a command in the shell.", "Execute a bash command.",
        "Run a shell command and return its output.",
        "Executes a given bash command in a persistent shell session.",
        "Run commands in a bash shell",
        "Request to execute a CLI command on the system.",
        "PROPOSE a command to run on behalf of the user.",
        "This tool allows you to execute shell commands in the terminal.",
        "Executes shell commands.",
        "Runs a shell command and returns stdout and stderr.",
        "Execute a command in the user's terminal",
        "Start a process from a command line and wait for it.", "The shell of the machine.",
        "Run a command line inside of the sandbox.",
        "Use this for everything that a terminal can do.",
        "Gives access to a Linux shell.",
        "Pass a command to the operating system and see what it prints.",
    ),
    details=(
        "The output has stdout and stderr together.",
        "Output that is longer than {n}000 characters is cut off.",
        "Commands run in the root of the project.", "The session keeps its state between calls.",
        "Always quote file paths that contain spaces.", "You may join commands with && or ;.",
        "Do not run interactive programs such as vim.", "Each command starts in a fresh shell.",
        "A command that runs longer than {n} minutes is stopped.",
        "Prefer other tools to cat, head and tail.",
        "Never use it to delete files outside of the workspace.",
        "Use && to make a command depend on another.",
        "The exit code is reported when it is not zero.", "There is no access to the internet.",
        "Write clear commands: the user has to approve them.",
        "Long running servers go to the background.",
        "Before you make a new folder, check that its parent exists.",

        "For git, never change the configuration.",
        "Python, node and common Unix tools are installed.",
    ),
    extras=(
        ("timeout", NUMBER, "Optional timeout in milliseconds (max 600000)"),
        ("cwd", STRING, "Working directory"),
        ("workdir", STRING, "The working directory to run the command in"),
        ("background", BOOLEAN, "Run in the background"),
        ("run_in_background", BOOLEAN, "Set to true to run this command in the background"),
        ("timeout_ms", NUMBER, "The timeout for the command in milliseconds"),
        ("restart", BOOLEAN, "Restart the shell"),
        ("is_input", BOOLEAN, "Whether the text goes to the running process"),
        ("shell", STRING, "Which shell to use"),
        ("env", "map", "Environment variables"),
        ("with_escalated_permissions", BOOLEAN, "Run outside of the sandbox"),
        ("max_output_tokens", NUMBER, "Longest output to return"),
        ("yield_time_ms", INTEGER, "How long to wait for output"),
        ("login", BOOLEAN, "Whether to use a login shell"),
        ("stdin", STRING, "What the process reads"),
        ("sandbox_permissions", "enum", "Sandbox to use"), ("directory", STRING, "Where to run it"),
    ),
    reason="Run the command",
)  # fmt: skip

LIST = Kind(
    names=(
        "list", "LS", "ls", "list_dir", "list_files", "list_directory", "ListDir", "listFiles",
        "tree",
        "list_folder", "fs_list", "fs_list_directory", "dir", "readdir", "file_list", "List",
        "listDirectory",
    ),
    verbs=("list", "show", "get", "view", "browse", "enumerate", "print"),
    objects=(
        "directory", "folder", "dir", "files", "folder_content", "directory_contents",
        "files_in_folder",
        "dir_entries", "folder_files", "directory_listing", "filenames", "entries",
    ),
    slots=names(
        "path path path path dir directory folder dir_path directory_path target_directory dirname",
        "folder_path relative_workspace_path absolute_path DirectoryPath location root dirpath",
    ),
    about={"path": (
        "The directory to list", "Path of the folder", "The absolute path to the directory to list",
        "Folder",
        "Which folder", "The path of the directory to list contents for",
        "Directory, relative to the workspace",
        "The folder whose files are wanted", "Directory path", "Where to look",
        "Path to the directory",
    )},
    summaries=(
        "Lists files and directories in a given path.", "List the contents of a directory.",
        "List a folder.",
        "Request to list files and directories within the specified directory.",
        "Shows what files are in a folder.",
        "Returns the names of all files in a folder", "Gets the entries of a directory.",
        "Like ls.",
        "See which files a folder has.", "Prints the files and folders below a path.",
    ),
    details=(
        "Hidden files are left out.", "Folders end with a slash.",
        "At most {n} entries are returned.",
        "It does not look into subfolders.", "Sizes are in bytes.",
        "Useful to get an overview of a project.",
        "Do not use it to check whether a file was made.", "Entries are sorted by name.",
        "Ignored files are not listed.",
    ),
    extras=(
        ("ignore", "strings", "Glob patterns to ignore"),
        ("recursive", BOOLEAN, "Also list subfolders"), ("depth", INTEGER, "How deep to go"),
        ("limit", INTEGER, "Most entries"), ("show_hidden", BOOLEAN, "Also hidden files"),
        ("offset", NUMBER, "Entry to start with"),
        ("sort_by", "enum", "Order of the entries"), ("pattern", STRING, "Only names that match"),
        ("respect_git_ignore", BOOLEAN, "Skip ignored files"),
    ),
    reason="List the folder",
)  # fmt: skip

SEARCH = Kind(
    names=(
        "grep", "Grep", "search", "search_files", "grep_search", "SearchText", "searchFiles",
        "ripgrep", "rg",
        "find_in_files", "search_file_content", "code_search", "fs_search", "text_search",
        "file_search_text", "findTextInFiles",
    ),
    verbs=("search", "grep", "find", "look_for", "scan", "locate", "match"),
    objects=(
        "files", "in_files", "text", "text_in_files", "code", "content", "file_contents", "pattern",
        "codebase",
        "workspace", "string", "project", "source", "lines",
    ),
    slots=names(
        "pattern pattern pattern query regex text term search_term keyword needle word "
        "expression q search_pattern"
    ),
    about={"pattern": (
        "The pattern to search for", "What to look for", "Text to find",
        "The regular expression pattern to search for in file contents",
        "Search term", "The string to find", "Word or pattern", "The text to search in the files",
        "Query", "What the lines must contain",
    ), "path": (
        "The folder to search in", "Where to search", "Directory to look in",
        "Folder that is searched", "The directory to search",
        "The path of the directory to search in (relative to the workspace)", "Base folder",
        "Root of the search",
    )},
    summaries=(
        "A search tool built on ripgrep.", "Search for text in files.", "Searches file contents.",
        "Find a pattern in the files.",
        "Request to perform a regex search across files.", "Fast content search tool",
        "Looks for a text in all files.",
        "Search the workspace for lines that contain a pattern.", "Greps through the project.",
        "Finds where something is written.",
    ),
    details=(
        "Returns lines with file names and numbers.", "At most {n} matches are shown.",
        "Ignored files are skipped.",
        "Supports full regex syntax.", "The search is case sensitive.",
        "Use it to find where a name is used.",
        "Never call grep through the shell, use this.", "Binary files are skipped.",
        "Matches come in the order of files.",
    ),
    extras=(
        ("include", STRING, "File pattern to include (e.g. *.js)"),
        ("glob", STRING, "Glob to filter files"), ("case_sensitive", BOOLEAN, "Mind the case"),
        ("output_mode", "enum", "What to return"), ("head_limit", NUMBER, "First so many lines"),
        ("multiline", BOOLEAN, "Match over lines"),
        ("max_results", INTEGER, "Most matches"), ("exclude_pattern", STRING, "Files to leave out"),
        ("is_regexp", BOOLEAN, "Treat it as a regex"),
        ("context_lines", INTEGER, "Lines around a match"), ("type", STRING, "File type to search"),
    ),
    reason="Search the files",
)  # fmt: skip
SEARCH_FOLDERS = (
    "path", "path", "path", "directory", "folder", "dir", "search_path", "root", "where",
    "dir_path",
    "base_path", "scope",
)  # fmt: skip

KINDS = {
    "shell": SHELL, "create": CREATE, "read": READ, "edit": EDIT, "list": LIST, "search": SEARCH,
}  # fmt: skip
