"""How people ask for a file to be renamed in, changed or printed. Only words: see `edit`.

A request is drawn in two steps, its kind and then its words, so that the kinds with few words are
seen as well. Nearly all are products of parts: a held-out phrasing is made of words that training
shows.
"""

from bench.nano.data.wording import combine

Banks = tuple[tuple[str, ...], ...]

_ENDS = "|."
_EVERYWHERE = "|.|everywhere|everywhere.|in the whole file.|in all places."
_RENAME = "Rename|rename|Change|Refactor: rename|I want to rename|We have to rename|Let us rename"
_OLD = "{old}|`{old}`|'{old}'|the name {old}|the identifier `{old}`|the variable {old}|every {old}"
_NEW = '{new}|`{new}`|"{new}"'

RENAME_NAME: Banks = (
    combine(_RENAME,
            "the identifier|the variable|the name|the symbol|every identifier", "{old}|`{old}`",
            "to|into|as", _NEW, _EVERYWHERE),
    combine("The identifier|The name|The variable|the symbol", "{old}|`{old}`",
            "should be called|must be called|is called|is named|becomes|gets the new name|"
            "is renamed to|has to be", "{new}|`{new}`", _EVERYWHERE),
    combine("Give|I gave|We gave|They gave", "the identifier|the variable|the name|the symbol",
            "{old}|`{old}`", "the name|the new name|another name:", _NEW, _ENDS),
    combine("Replace|Substitute", "the identifier|the variable|the name|the symbol",
            "{old}|`{old}`", "with|by", _NEW, _EVERYWHERE),
)  # fmt: skip
"""For names that are also a part of other names, which stay as they are."""

RENAME: Banks = (
    combine(_RENAME,
            _OLD, "to|into|->|=>|to:", _NEW, _EVERYWHERE),
    combine("Replace|Swap|Exchange", _OLD, "with|by|for", _NEW, _EVERYWHERE),
    combine("Substitute", "{new}|`{new}`|the name {new}|the name `{new}`",
            "for {old}|for `{old}`|for the name {old}|for every {old}", _EVERYWHERE),
    combine("Call|Name", "it {new}|it `{new}`|this {new}",
            "instead of {old}|instead of `{old}`|, not {old}|and no longer {old}|rather than "
            "`{old}`", _EVERYWHERE),
    combine("Use|Write|Put|Take", "{new}|`{new}`|the name {new}|the new name `{new}`",
            "for {old}|instead of {old}|in place of `{old}`|where it says {old}|"
            "wherever it says `{old}`|and not {old}|, not `{old}`", _ENDS),
    combine("{old}|`{old}`|The name {old}|the name `{old}`|The old {old}",
            "should be called|must be called|is called|is named|should become|must become|becomes|"
            "is now|will be|gets the new name|needs the new name|is renamed to|has to be|"
            "is a bad name, make it|is wrong, it must be|is too short, make it|is bad, call it",
            "{new}|`{new}`", f"{_EVERYWHERE}|now.|from now on."),
    combine("I|We|They|My team", "renamed|have renamed|changed|want to rename|decided to rename",
            "{old}|`{old}`", ": it is {new} now.|, it is `{new}` now.|, the new name is {new}.|"
            "to {new}. Update the file.|to `{new}`, so change the file.|. It is called {new} now.|"
            ": it is {new}|, now it is {new}.|, now it is called `{new}`"),
    combine("From now on|Now|As of today|Since today", "{old}|`{old}`",
            "is|is named|is called|becomes", "{new}|`{new}`",
            "|.|. Update the file.|. Show the file."),
    combine("Old name|Old|From|Name now|The old name", ": {old}|: `{old}`|is {old}",
            ",|.|;|\n", "new name|new|to|then|the new name", ": {new}|: `{new}`|is {new}",
            "|.|. Rename it."),
    combine("Wherever|Everywhere where|In all places where|Whenever",
            "it says {old}|`{old}` stands|{old} is written|you see {old}|it says `{old}`",
            ", write|, put|, it must be|, use|write|there should be", "{new}|`{new}`", _ENDS),
    combine("Give|I gave|We gave", "{old}|`{old}`", "the name|the new name|another name:", _NEW,
            _ENDS),
    combine("Switch|Turn|Convert|Move", "the name {old}|{old}|`{old}`|all `{old}`",
            "over to|into|to", "{new}|`{new}`", _ENDS),
    combine("s/{old}/{new}/g|:%s/{old}/{new}/g|s/{old}/{new}/|{old} -> {new}|{old} => {new}|"
            "`{old}` -> `{new}`|{old} → {new}|{old} ==> {new}",
            "|please|in this file|, all of them|(rename)"),
)  # fmt: skip

COPY: Banks = (
    combine("Print|Show me|Repeat|Copy|Output|Give me|Write out|Return|Echo|Send|Display|Type out|"
            "Reproduce|Let me see|Read out|I need|I want", "the file|the whole file|the full file|"
            "the complete file|this file|the file again|the file back|every line of the file",
            "|.|unchanged.|exactly.|exactly as it is.|as it is.|verbatim.|without changes.|"
            "line by line.|word for word.|. Change nothing.|, nothing changed."),
    combine("Do not change anything|Change nothing|Nothing to change yet|No changes",
            ", just|, only|:", "show|print|repeat|copy|output", "the file|it|the whole file",
            _ENDS),
    (
        "cat the file pls", "same file again please", "What does the file say? All.",
        "Make an exact copy of the file.", "The whole file, nothing changed, please.",
    ),
)  # fmt: skip

_LINE = "{old}|the line {old}"
_NEW_LINE = "{new}|the line {new}"
REPLACE: Banks = (
    combine("Replace|Swap|Exchange|Overwrite", f"{_LINE}|the old line {{old}}",
            "with {new}|by {new}|with the line {new}|with the new line {new}", _ENDS),
    combine("Change|Turn|Edit|Modify|Update|Correct|Rewrite|Fix|Alter",
            f"{_LINE}|this line: {{old}}", "to {new}|into {new}|so that it reads {new}|so that it "
            "says {new}|: it has to be {new}|: it must be {new}|, it should say {new}|to read "
            "{new}|: it should read {new}", _ENDS),
    combine("{old}|The line {old}|the line {old}", "must become|should be|must be|has to be|"
            "should read|should say|becomes|is wrong, it should be|is wrong, make it|needs to be|"
            "has to read|is a mistake, it should read", _NEW_LINE, _ENDS),
    combine("Write|Put|Use|Take", _NEW_LINE, "instead of {old}|in place of {old}|"
            "where it says {old}|where {old} is now|, not {old}|for {old}", _ENDS),
    combine("Instead of|In place of", _LINE, "there should be|I want|write|put|use|"
            "it must say|we need|, put|, write", _NEW_LINE, _ENDS),
    combine("Make it|Let it be|It should be|It must say|I want", "{new}",
            "where it says {old}|where {old} is now|instead of {old}|in place of {old}", _ENDS),
    combine("Substitute", _NEW_LINE, "for {old}|for the line {old}", _ENDS),
    combine("The new text|The new version|The right form", "of {old}|of the line {old}",
            "is {new}|must be {new}|should be {new}", _ENDS),
    (
        "{old} -> {new}", "{old} => {new}", "line {old} -> {new}", "{old}, no: {new}",
    ),
)  # fmt: skip
_ADD = "Insert|Add|Put|Write|Place"
_ADDED = "{new}|the line {new}|a line {new}|a new line {new}"
_THERE = (
    ", add|, insert|, write|, put|add|insert|there should be|comes|there must be|I want|"
    "we need|I need"
)
_THAT_SAYS = "that says {new}|with the text {new}|: {new}|that reads {new}|saying {new}"
AFTER: Banks = (
    combine(f"{_ADD}|Append", _ADDED, "after {old}|below {old}|after the line {old}|below the line "
            "{old}|behind {old}|underneath {old}|directly after {old}|right below {old}", _ENDS),
    combine("After|Below|Directly after|Right after|Right behind|Underneath|Directly below",
            _LINE, _THERE, "{new}|the line {new}|a new line: {new}", _ENDS),
    combine("{new}|The line {new}|the new line {new}", "has to follow|must follow|should follow|"
            "goes after|goes below|belongs after|has to come after|should come after|"
            "is missing after|must stand below", _LINE, _ENDS),
    combine("Add a line|Insert a line|Put a line|Write a new line|Add a new line",
            "after {old}|below {old}|right after {old}|behind {old}", _THAT_SAYS, _ENDS),
    (
        "The line after {old} should be a new one, {new}.",
    ),
)  # fmt: skip
BEFORE: Banks = (
    combine(_ADD, _ADDED, "before {old}|above {old}|before the line {old}|above the line {old}|"
            "in front of {old}|on top of {old}|directly before {old}|right above {old}", _ENDS),
    combine("Before|Above|Directly before|Right before|Right above|On top of|In front of|"
            "Directly above", _LINE, _THERE, "{new}|the line {new}|a new line: {new}", _ENDS),
    combine("{new}|The line {new}|the new line {new}", "has to precede|must precede|"
            "goes before|goes above|belongs before|has to come before|should come before|"
            "is missing before|must stand above", _LINE, _ENDS),
    combine("Add a line|Insert a line|Put a line|Write a new line|Add a new line",
            "before {old}|above {old}|right before {old}|in front of {old}", _THAT_SAYS, _ENDS),
    (
        "The line before {old} should be a new one, {new}.",
    ),
)  # fmt: skip
DELETE: Banks = (
    combine("Delete|Remove|Drop|Take out|Get rid of|Cut|Erase|Leave out|Throw out|Strip|Kick out|"
            "Clear away|Discard|Omit", "{old}|the line {old}|line {old}|this line: {old}|"
            "the whole line {old}", "|.|, keep the rest.|and keep the rest.|from the file."),
    combine("{old}|The line {old}|the line {old}", "must go|has to go|is not needed|"
            "is not needed, remove it|should be deleted|must be removed|can go|is obsolete, "
            "drop it|is too much, delete it|should not be there|has to be deleted|must vanish",
            _ENDS),
    combine("I do not want|I don't need|We do not need|I no longer want|We no longer need|"
            "Nobody needs|I can do without", _LINE, "|.|any more.|in the file.|here."),
    combine("Take|Throw|Kick|Leave", _LINE, "out|out of the file", _ENDS),
    (
        "Without the line {old}, please.",
    ),
)  # fmt: skip
_VALUE_OF = "{old}|the value of {old}|the setting {old}"
SET: Banks = (
    combine("Set|Change|Update|Switch|Put|Adjust", _VALUE_OF, "to {new}|to the value {new}",
            _ENDS),
    combine("{old}|The value of {old}|the setting {old}|the value of {old}",
            "should be|must be|has to be|shall be|becomes|needs to be|must have the value|"
            "should have the value|gets the value", "{new}", _ENDS),
    combine("I want|We want|I need|We need", _VALUE_OF, "to be {new}|set to {new}|at {new}",
            _ENDS),
    combine("Give", "{old}|the setting {old}", "the value|the new value", "{new}", _ENDS),
    combine("Assign|Write", "{new}|the value {new}", "to {old}|to the setting {old}", _ENDS),
    combine("Use|Take|Put", "{new}|the value {new}", "as the value of {old}|for {old}|"
            "for the setting {old}|as {old}", _ENDS),
    combine("Replace|Overwrite|Exchange", "the value of {old}|what {old} is set to", "with {new}|"
            "by {new}", _ENDS),
    combine("New value|The new value|Value", "of {old}|for {old}", ": {new}|is {new}", _ENDS),
    combine("Make|Let", "{old} {new}|{old} be {new}|{old} equal {new}", _ENDS),
    (
        "{old} := {new}", "{old} = {new}", "{old}: {new}",
    ),
)  # fmt: skip
OLD_NEW: Banks = (
    combine("Replace|Swap|Exchange|Replace this|In the file, replace",
            "\n{old}\nwith\n{new}|\n{old}\nby\n{new}|:\n{old}\nwith:\n{new}|\n\n{old}\n\nwith\n\n"
            "{new}"),
    combine("Change|Turn|Change this|Edit this|Modify this line|Change the line",
            ":\n{old}\nto this:\n{new}|\n{old}\nto\n{new}|\n{old}\ninto\n{new}|"
            ":\n\n{old}\n\nto:\n\n{new}"),
    combine("Old|old|Before|Now|From|Search|Find", ":\n{old}", "\nNew|\nnew|\nAfter|\nThen|\nTo|"
            "\nReplace|\n\nInstead", ":\n{new}"),
    combine("Find|Look for|Search for|Take", "\n{old}\nand write\n{new}\ninstead.|"
            "\n\n{old}\n\nand put\n\n{new}\n\nthere.|\n{old}\nand replace it with\n{new}"),
)  # fmt: skip
PATCH: Banks = (
    combine("Apply|Make|Carry out|Do|Perform|Merge|Please apply|Use|I want|We need",
            "this change|this edit|this patch|the following change|the following edit|this diff|"
            "the change below|the patch below",
            ":\n{patch}|:\n\n{patch}|.\n\n{patch}|to the file:\n{patch}|and show the file.\n\n"
            "{patch}|\n{patch}|in the file:\n\n{patch}"),
    combine("Change|Edit|Update|Patch|Modify", "the file|this file|it", "so|like this|as follows|"
            "|in this way", ":\n{patch}|:\n\n{patch}"),
    combine("Here is|This is|There is", "the edit to make|the change|a patch for it|the patch|"
            "a change to make", ".\n\n{patch}|:\n{patch}"),
    (
        "{patch}", "edit:\n{patch}", "The change:\n\n{patch}", "patch\n{patch}",
        "What is the file after this?\n\n{patch}",
        "What does the file look like after this?\n{patch}",
    ),
)  # fmt: skip
