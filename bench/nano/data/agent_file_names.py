"""How agents declare the tools that create, read and edit a file. Only words: see `agent_tools`."""

from bench.nano.data.agent_kind import BOOLEAN, INTEGER, NUMBER, STRING, Kind, names

_PATHS = (
    "path file_path filepath file filename file_name absolute_path target_file target_path "
    "relative_workspace_path uri location source_path full_path name_of_file abs_path fpath"
)
_PATH_ABOUT = (
    "The path of the file", "Path to the file", "The absolute path to the file", "File path",
    "The file to work on", "Which file", "Path of the file, relative to the workspace root",
    "The path of the file (relative to the current working directory)",
    "Full path of the target file.",
    "Location of the file on disk", "The file's path. Absolute or relative.",
    "Name of the file, with its folder",
    "Must be a path inside the workspace",
    "Absolute path of the file, e.g. /home/user/project/main.py",
)  # fmt: skip

CREATE = Kind(
    names=(
        "write", "Write", "write_file", "create_file", "write_to_file", "WriteFile", "createFile",
        "save_file", "new_file", "create", "fs_write", "file_write", "save", "Create", "writeFile",
        "fs_write_file", "create_new_file", "CreateFile", "put_file", "workspace_write",
    ),
    verbs=("write", "create", "save", "make", "store", "put", "add", "new", "generate", "output"),
    objects=(
        "file", "text_file", "file_content", "new_file", "to_file", "document", "source_file",
        "to_disk",
        "file_contents", "workspace_file", "project_file", "file_to_disk", "text_to_file",
    ),
    slots=tuple(
        (path, content)
        for path in _PATHS.split()
        for content in (
            "content", "content", "content", "contents", "file_text", "text", "data", "body",
            "file_content", "new_content", "file_contents", "code", "source", "payload",
            "lines_text",
        )
    ),
    about={"path": (
        *_PATH_ABOUT, "Where to save", "The path of the file to create", "Path of the new file",
        "The absolute path to the file to write (must be absolute, not relative)",
    ), "content": (
        "The content to write to the file", "The full text of the file", "What to write",
        "Text of the file",
        "The contents of the file", "Complete content of the new file",
        "The content to write. ALWAYS give the whole content.",
        "File content", "Everything that the file shall contain",
        "The text to be stored, without escaping",
        "The new content, it replaces whatever was there", "Content as UTF-8 text",
    )},
    summaries=(
        "Writes a file to the local filesystem.", "Create a new file.",
        "Create a file with the given content.",
        "Request to write content to a file at the specified path.", "Write text to a file",
        "Saves a file.",
        "This is a tool for creating a new file in the workspace.", "Creates or overwrites a file.",
        "Write content to a file. If the file exists, it is replaced.", "Stores text on the disk.",
        "Creates a file at the path and fills it.", "Use this to make a new file.",
        "Puts text into a new file.",
        "Write a whole file at once", "Adds a file to the project.",
    ),
    details=(
        "Missing folders are created.", "An existing file is overwritten.",
        "Give the whole content, never a part of it.",
        "Do not use it on files that you only want to change a little.",
        "NEVER create documentation unless asked.",
        "The path may be absolute or relative.", "Files are written as UTF-8.",
        "Line endings are kept as they are.",
        "Do not put line numbers into the content.", "Returns a message when the file is written.",
        "Do not leave out anything with a comment like 'rest of the code'.",
        "Files above {n} MB are refused.",
        "Only use emojis if the user asks for them.", "Prefer changing files to making new ones.",
    ),
    extras=(
        ("encoding", STRING, "Encoding of the file, utf-8 if left out"),
        ("overwrite", BOOLEAN, "Replace an existing file"),
        ("mode", "enum", "How to open the file"),
        ("create_dirs", BOOLEAN, "Create missing folders"),
        ("append", BOOLEAN, "Add to the end"),
        ("permissions", STRING, "Unix permissions such as 644"),
        ("line_count", INTEGER, "Number of lines"),
        ("executable", BOOLEAN, "Make the file executable"),
        ("language", STRING, "Language for highlighting"),
        ("open_after", BOOLEAN, "Show it in the editor"),
    ),
    reason="Create the file",
)  # fmt: skip

READ = Kind(
    names=(
        "read", "Read", "read_file", "ReadFile", "view", "View", "readFile", "open_file", "cat",
        "get_file_contents", "fs_read", "file_read", "view_file", "show_file", "load_file", "Cat",
        "read_text_file", "open", "get_file", "fs_read_file", "viewFile", "read_many_files",
    ),
    verbs=("read", "view", "open", "show", "get", "load", "display", "fetch", "print", "inspect"),
    objects=(
        "file", "file_content", "file_contents", "text_file", "source_file", "from_file",
        "document",
        "from_disk", "file_text", "project_file", "workspace_file", "code_file", "file_lines",
    ),
    slots=names(_PATHS, "path path path file_path file_path filePath target_file absolute_path"),
    about={"path": (
        *_PATH_ABOUT, "The path of the file to read", "The absolute path to the file to read",
        "File to read", "Which file to show", "The file to open",
    )},
    summaries=(
        "Reads a file from the local filesystem.", "Read the contents of a file.", "Read a file.",
        "Request to read the contents of a file at the specified path.", "Shows what is in a file.",
        "Returns the text of a file", "Opens a file and returns its content.", "View a file",
        "Get the text of a file.",
        "Reads a file of the workspace and gives its lines.", "Look into a file.",
        "Prints a file, like cat.",
        "Loads the content of one file into the conversation.",
    ),
    details=(
        "By default it reads up to {n}000 lines.", "Lines longer than 2000 characters are cut off.",
        "Lines come back with their numbers.", "It can read text files only.",
        "Folders cannot be read with it.",
        "You can read a part of a long file with an offset and a limit.",
        "Assume that the file exists.",
        "Images are not shown.", "You must read a file before you change it.",
        "Binary files give an error.",
        "If the file is empty, nothing is returned.", "PDF files are turned into text.",
    ),
    extras=(
        ("offset", NUMBER, "The line number to start reading from"),
        ("limit", NUMBER, "The number of lines to read"),
        ("start_line", INTEGER, "First line"), ("end_line", INTEGER, "Last line"),
        ("encoding", STRING, "Encoding of the file"),
        ("view_range", "numbers", "First and last line"), ("max_bytes", INTEGER, "Longest answer"),
        ("line_numbers", BOOLEAN, "Put numbers before lines"), ("pages", STRING, "Pages of a PDF"),
        ("head", INTEGER, "Only the first lines"), ("tail", INTEGER, "Only the last lines"),
        ("raw", BOOLEAN, "Do not format"),
    ),
    reason="Read the file",
)  # fmt: skip

_PAIRS = (
    "old_string+new_string old_string+new_string old_str+new_str old_text+new_text search+replace "
    "find+replace old+new before+after original+replacement target+replacement old_code+new_code "
    "search_text+replace_text old_content+new_content find_text+replacement from_text+to_text "
    "existing+updated search_string+replacement_string needle+substitute old_lines+new_lines "
    "current+desired"
)
EDIT = Kind(
    names=(
        "edit", "Edit", "edit_file", "str_replace", "replace", "replace_in_file", "EditFile",
        "fs_edit",
        "replace_string_in_file", "str_replace_editor", "update_file", "modify_file",
        "search_replace",
        "replaceInFile", "file_edit", "change_file", "StrReplace", "search_and_replace",
        "patch_text",
    ),
    verbs=("edit", "replace", "update", "modify", "change", "alter", "substitute", "swap"),
    objects=(
        "file", "in_file", "text_in_file", "file_text", "string_in_file", "text", "file_content",
        "source",
        "code", "lines", "part_of_file", "file_string", "snippet", "code_block", "project_file",
    ),
    slots=tuple((path, *pair) for path in _PATHS.split() for pair in names(_PAIRS)),
    about={"path": (
        *_PATH_ABOUT, "The file to change", "The path of the file to modify", "File to edit",
    ), "old": (
        "The text to replace", "Text that is in the file now", "The exact text to find",
        "What to look for", "The old text (must match exactly, with its whitespace)",
        "Text to be replaced", "What is there now",
    ), "new": (
        "The text to replace it with", "The new text", "What to put there instead", "Replacement",
        "The text that comes in its place (must differ from the old one)",
        "New text, may be empty",
    )},
    summaries=(
        "Performs exact string replacements in files.", "Edit a file.", "Replace text in a file.",
        "Replaces one piece of text in a file by another.", "Changes a part of a file",
        "Edits an existing file.",
        "Request to replace a section of an existing file.",
        "This is a tool for making edits in an existing file.",
        "Find a text in a file and put another one there.", "Modify a file in place.",
        "Search and replace within one file.",
        "Applies a small change to a file without writing it anew.",
        "Swap old text for new text in a file.",
    ),
    details=(
        "The old text must be unique in the file.", "Keep the indentation exactly as it is.",
        "The edit fails if the old text is not found.",
        "Never put line numbers into the old or the new text.", "Use it for small changes.",
        "Give enough context to be unique.",
        "Prefer editing files to creating new ones.", "All other lines stay as they are.",
        "Whitespace counts.",
        "Regular expressions are not supported.",
        "The new text may be empty, which deletes the old one.",
        "Read the file before you edit it.", "Returns a snippet of the file after the change.",
    ),
    extras=(
        ("replace_all", BOOLEAN, "Replace all occurrences (default false)"),
        ("expected_replacements", NUMBER, "How often the text occurs"),
        ("dry_run", BOOLEAN, "Only show what would change"),
        ("start_line", INTEGER, "First line to look at"),
        ("count", INTEGER, "Most replacements"), ("encoding", STRING, "Encoding of the file"),
        ("create", BOOLEAN, "Make the file if missing"),
        ("occurrence", INTEGER, "Which one of several"),
        ("ignore_whitespace", BOOLEAN, "Be lenient"),
    ),
    reason="Edit the file",
)  # fmt: skip
