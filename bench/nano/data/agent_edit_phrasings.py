"""What a user types who wants a text in a file to be replaced: see `agent_wording`."""

from bench.nano.data.agent_wording import Bank, combine, lines

INLINE = Bank(
    asks=(
        *combine(
            "In {path}/In the file {path}/In my file {path}",
            "replace {old} by {new}/replace {old} with {new}"
            "/change {old} to {new}/turn {old} into {new}",
        ),
        *combine(
            "Replace/Substitute",
            "{old} with {new}/{old} by {new}/the text {old} with {new}",
            " in {path}/ in the file {path}",
        ),
        *combine(
            "Edit/Change/Update/Modify/Correct/Fix",
            "{path}/the file {path}/my file {path}",
            ", old {old}, new {new}/: old {old}, new {new}/ so that {old} becomes {new}"
            "/, {old} becomes {new}/: {old} must become {new}",
        ),
        *combine(
            "Write/Use/Put/Insert",
            "{new}/the text {new}",
            " instead of {old} in {path}/ in place of {old} in {path}"
            "/ for {old} in the file {path}",
        ),
        *combine(
            "Rename/Correct/Convert/Change/Turn",
            "{old}",
            " to {new} in {path}/ to {new} in the file {path}/ into {new} in {path}",
        ),
        *lines("""
            Change {old} to {new} in {path}
            Change {old} into {new} in the file {path}
            Change the text {old} in {path} to {new}
            Edit {path}: replace {old} with {new}
            Edit the file {path}. Replace {old} by {new}
            Edit {path} and change {old} to {new}
            Edit {path}: {old} -> {new}
            Edit {path} so that it says {new} instead of {old}
            Update {path}: {old} becomes {new}
            Update the file {path}, change {old} to {new}
            Modify {path}: old text {old}, new text {new}
            Modify the file {path}, {old} must become {new}
            Open {path} and replace {old} with {new}
            Swap {old} for {new} in {path}
            Exchange {old} for {new} in the file {path}
            Put {new} in place of {old} in {path}
            Write {new} instead of {old} in {path}
            Use {new} instead of {old} in the file {path}
            Find {old} in {path} and replace it with {new}
            Find {old} in the file {path} and change it to {new}
            Rename {old} to {new} in {path}
            Correct {old} to {new} in the file {path}
            Fix {path}: it should say {new} instead of {old}
            Take {path} and turn {old} into {new}
            Make this change in {path}: {old} -> {new}
            Make this edit in {path}:|{old} -> {new}
            Do this replacement in {path}:|{old} => {new}"""),
    ),
    others=(
        *combine(
            "edit/change/update/in/file/fix",
            "{path}/the file {path}",
            ", old {old}, new {new}/: old {old}, new {new}/, old text {old}, new text {new}"
            "/, {old} is old and {new} is new",
        ),
        *combine(
            "Can you/Could you/Would you/I want you to/Please/You should",
            "replace {old} with {new}/change {old} to {new}/replace {old} by {new}",
            " in {path}/ in the file {path}",
        ),
        *lines("""
        Can you replace {old} with {new} in {path}
        Can you change {old} to {new} in the file {path}
        Could you edit {path} and replace {old} by {new}
        Would you change {old} in {path} to {new}
        I want {old} in {path} to become {new}
        I want {new} instead of {old} in the file {path}
        I need {old} changed to {new} in {path}
        I made a mistake in {path}: {old} should be {new}
        There is a mistake in {path}, {old} should be {new}
        The file {path} says {old} but it should say {new}
        {old} in {path} should be {new}
        {old} must be {new} in the file {path}
        {path}: {old} -> {new}
        {path}: change {old} to {new}
        {path}|{old} -> {new}
        {path}||Replace {old} with {new}
        In {path}, {old} has to be replaced by {new}
        In {path} the text {old} is wrong, it should be {new}
        file: {path}|old: {old}|new: {new}
        File {path}, find {old}, replace with {new}
        edit {path}, old {old}, new {new}
        We use {new} now, so change {old} in {path}
        Please, {new} for {old} in {path}"""),
    ),
)
_OLD_NEW_ENDS = (
    " replace\n{old}\nby\n{new}/ replace\n{old}\nwith\n{new}/ replace this:\n{old}\nby this:\n{new}"
    "/ change\n\n{old}\n\nto\n\n{new}/ change this:\n{old}\nto this:\n{new}"
    "/ change this:\n\n{old}\n\ninto this:\n\n{new}/ turn\n{old}\ninto\n{new}"
)
_OLD_NEW_LISTS = (
    "old:\n{old}\nnew:\n{new}/Old:\n{old}\nNew:\n{new}/Old text:\n{old}\n\nNew text:\n{new}"
    "/Before:\n{old}\nAfter:\n{new}/Before:\n\n{old}\n\nAfter:\n\n{new}/From:\n{old}\nTo:\n{new}"
    "/search:\n{old}\nreplace:\n{new}/Find:\n{old}\nReplace with:\n{new}"
    "/Now:\n{old}\nThen:\n{new}"
)
_BECOMES = (
    "{old}\nmust become\n{new}/{old}\nto become\n{new}/{old}\nhas to become\n{new}"
    "/{old}\nis wrong, it should be\n{new}/{old}\nshould be\n{new}"
)
BLOCK = Bank(
    asks=(
        *combine("In {path}/In the file {path}/In {path},", _OLD_NEW_ENDS),
        *combine("Edit {path},/Update the file {path},/Open {path} and/Change {path},",
                 _OLD_NEW_ENDS),
        *(
            f"{start}{gap}{both}"
            for start in ("Edit {path}.", "Change {path}.", "Update the file {path}.",
                          "Modify {path}.", "Make this change in {path}.")
            for gap in (" ", "\n", "\n\n")
            for both in _OLD_NEW_LISTS.split("/")
        ),
        *lines("""
            Edit {path}: this|{old}|must become|{new}
            Change this part of {path}:|{old}|to:|{new}
            Modify {path}. Search for|{old}|and put there|{new}
            Find this in {path}:|{old}|and replace it with this:|{new}
            Take out this part of {path}:|{old}|and write this instead:|{new}"""),
    ),
    others=(
        *combine("Can you in {path}/Could you in the file {path}/Please in {path}", _OLD_NEW_ENDS),
        *(
            f"{start}{gap}{both}"
            for start in ("{path}", "file: {path}", "I want to change {path}.", "File {path}",
                          "We need a change in {path}.")
            for gap in ("\n", "\n\n")
            for both in _OLD_NEW_LISTS.split("/")
        ),
        *(
            f"{start}\n{end}"
            for start in ("I want this part of {path}", "{path}: this part",
                          "In {path}, this part", "There is a mistake in {path}, this",
                          "This part of the file {path}")
            for end in _BECOMES.split("/")
        ),
        *lines("""
            The file {path} has this:|{old}|It should be:|{new}
            There is a mistake in {path}. It says|{old}|but should say|{new}
            This is in {path} now:||{old}||I want this:||{new}"""),
    ),
)  # fmt: skip
_CHANGE = "this change/this edit/the following change/the following edit/this patch/this"
MERGE = Bank(
    asks=(
        *combine("Apply/Make/Do/Perform/Carry out", _CHANGE,
                 " in {path}:\n{block}/ to {path}:\n{block}/ in the file {path}:\n\n{block}"
                 "/ to the file {path}:\n\n{block}"),
        *combine("Edit/Change/Update/Modify", "{path}/the file {path}",
                 ":\n{block}/:\n\n{block}/ like this:\n{block}/ as follows:\n\n{block}"),
    ),
    others=(
        *combine("The file {path}/{path}/My file {path}", "needs/should get/has to get",
                 " this edit:\n{block}/ this change:\n{block}/ the following change:\n\n{block}"
                 "/ the following edit:\n\n{block}"),
        *lines("""
            {path}|{block}
            Here is a change for {path}:|{block}
            I want this change in {path}:||{block}
            Can you apply this to {path} ?|{block}"""),
    ),
)  # fmt: skip
