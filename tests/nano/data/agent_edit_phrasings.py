"""What a user types who wants a text in a file to be replaced: see `agent_wording`."""

from tests.nano.data.agent_wording import Bank, combine, lines

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
    others=lines("""
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
)
BLOCK = Bank(
    asks=lines("""
        In {path} replace|{old}|by|{new}
        In {path} replace|{old}|with|{new}
        In the file {path} replace this:|{old}|by this:|{new}
        In the file {path} change||{old}||to||{new}
        In {path}, change this:||{old}||into this:||{new}
        Replace this in {path}:|{old}|with this:|{new}
        Replace in the file {path}:||{old}||New text:||{new}
        Edit {path}. Old:|{old}|New:|{new}
        Edit the file {path}.||Old text:|{old}||New text:|{new}
        Edit {path}: this|{old}|must become|{new}
        Change this part of {path}:|{old}|to:|{new}
        Change {path}. Before:|{old}|After:|{new}
        Update {path}, replace|{old}|with|{new}
        Update the file {path}. Find:|{old}|Replace with:|{new}
        Modify {path}. Search for|{old}|and put there|{new}
        Find this in {path}:|{old}|and replace it with this:|{new}
        Open {path} and turn|{old}|into|{new}
        Make this change in {path}. From:|{old}|To:|{new}
        Take out this part of {path}:|{old}|and write this instead:|{new}"""),
    others=lines("""
        Can you change this in {path} :|{old}|to this:|{new}
        Could you edit {path} and replace|{old}|by|{new}
        I want to change {path}. Old:|{old}|New:|{new}
        I want this part of {path}|{old}|to become|{new}
        The file {path} has this:|{old}|It should be:|{new}
        There is a mistake in {path}. It says|{old}|but should say|{new}
        {path}|old:|{old}|new:|{new}
        {path}||Before:|{old}||After:|{new}
        {path}: this part|{old}|is wrong, it should be|{new}
        file: {path}|search:|{old}|replace:|{new}
        This is in {path} now:||{old}||I want this:||{new}
        We need a change in {path}. Replace|{old}|with|{new}"""),
)
MERGE = Bank(
    asks=lines("""
        Apply this change to {path}:|{block}
        Apply this to the file {path}:||{block}
        Edit {path}:|{block}
        Change {path} like this:|{block}
        Make this edit in {path}:|{block}
        Update the file {path}:||{block}
        Do this replacement in {path}:|{block}"""),
    others=lines("""
        {path}|{block}
        Here is a change for {path}:|{block}
        I want this change in {path}:||{block}
        Can you apply this to {path} ?|{block}
        The file {path} needs this edit:|{block}"""),
)
