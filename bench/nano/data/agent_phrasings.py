"""What a user types who wants a command to be run or a file to be made: see `agent_wording`."""

from bench.nano.data.agent_wording import Bank, combine, lines

_RUN_ENDS = "/ in the terminal/ with your shell tool/ and show me the output/ in the shell"
SHELL = Bank(
    asks=(
        *combine("Run/Execute", "{command}/the command {command}/this: {command}", _RUN_ENDS),
        *combine(
            "Do/Invoke/Launch/Start/Issue/Perform",
            "{command}/the command {command}/a {command}",
            " in the shell./ on the command line./ in a terminal/ for me/ now.",
        ),
        *lines("""
            Run the command {command} and tell me what it prints.
            Run the shell command {command}
            Run this command: {command}
            Run the following command:|{command}
            Run this for me:|{command}
            Execute this in a shell:|{command}
            Execute the following:||{command}
            Use your shell tool to run {command}
            Use the terminal to run {command}
            Use bash for {command}
            Use the shell and run:|{command}
            Try the command {command}
            Try {command} in the terminal
            Try to run {command}
            Show me the output of {command}
            Show what {command} prints.
            Tell me what {command} prints.
            Tell me the output of the command {command}
            Give me the output of {command}
            Get the output of this command:|{command}
            Type {command} into the terminal.
            Enter {command} in your shell.
            Start {command}
            Call your shell with {command}
            Send {command} to the shell.
            Do a {command} in the shell.
            Launch the command {command} and report the result.
            Check what the command {command} gives.
            Perform the shell command {command}
            Open a terminal and run {command}
            See what happens if you run {command}
            Invoke {command} on the command line.
            Make the shell execute {command}"""),
    ),
    others=(
        *combine("shell/bash/terminal/run/command/exec", ": {command}/ -> {command}/:\n{command}"),
        *lines("""
            What does {command} print?
            What does the command {command} print?
            What is the output of {command}?
            What do you get when you run {command}?
            What happens if you run {command}?
            What's the result of running {command} in the terminal?
            What comes out of this command?|{command}
            What does this print?|{command}
            Can you try {command}?
            Could you execute {command} for me?
            Would you run {command} in the shell?
            Can you run this command?|{command}
            Can you run the following?||{command}
            I need the output of {command}
            I want to see what {command} prints.
            I'd like you to run {command}
            I want this command to be run:|{command}
            My colleague asked me to run {command}, can you do it?
            The command {command} should be run now.
            {command} - run this in the shell
            {command}||Run this.
            {command}||Please run this command and show the output.
            {command}||What does it print?
            {command} is the command that I want you to run.
            {command}, run it please
            $ {command}
            Here is a command, run it:|{command}
            Next command:|{command}
            Let's run {command}
            Let us see what {command} says.
            It would help to see the output of {command}
            Is there any output if you run {command}?
            How does the machine react to {command}?
            New job for the shell: {command}"""),
    ),
)
CREATE = Bank(
    asks=(
        *combine(
            "Create/Write/Make/Save/Add",
            "the file {path} with the content {content}/a file {path} that contains {content}"
            "/a new file {path} with this content:\n{content}/a file {path}:\n\n{content}",
        ),
        *combine(
            "Create/Make/Add/Write/Open",
            "file {path} and/a new file {path} and/the file {path} and",
            " put {content} into it./ write {content} into it./ save {content} in it."
            "/ fill it with {content}",
        ),
        *combine(
            "Write/Save/Put/Store",
            "the following/this/the following text/these lines/the text below",
            " to {path}:\n{content}/ into {path}:\n{content}/ in the file {path}:\n\n{content}"
            "/ as {path}:\n\n{content}",
        ),
        *lines("""
            Create the file {path} with the content {content}
            Create {path} with {content} in it.
            Create {path} with the text {content}
            Create a file named {path} with the following content:|{content}
            Create a file called {path}. Its content is {content}
            Create {path}. Content:|{content}
            Create {path} with this:||{content}
            Create file {path} and put {content} into it.
            Write {content} to {path}
            Write {content} into the file {path}
            Write the text {content} into a new file {path} please
            Write the following to {path}:|{content}
            Write this to the file {path}:||{content}
            Save {content} as {path}
            Save {content} in a file called {path} for me
            Save this as {path}:|{content}
            Save the following text to {path}:||{content}
            Store {content} in the file {path}
            Store this in {path}:|{content}
            Put {content} into {path} as a new file
            Put this into a new file {path}:|{content}
            Add a file {path} to the project. It contains {content}
            Add a new file {path}:|{content}
            Make {path} with the content {content}
            Make a file {path}, the content shall be {content}
            Generate the file {path} with exactly this content:|{content}
            Produce a file {path} which contains only {content}
            Set up {path} with this content:||{content}
            Use your tool to create {path} with the content {content}
            Use the file tool: path {path} and content {content}"""),
    ),
    others=(
        *combine(
            "My notes/My text/The text/The notes/These lines/My list",
            "should be in {path}./must go into {path}./belong in {path}."
            "/should be saved as {path}.",
            " Here they are, save them:\n{content}/ Here it is:\n{content}/ Save it:\n{content}"
            "/ The text is {content}",
        ),
        *combine(
            "New file/new file/File/file/Path/Create",
            "{path}:\n{content}/{path}\n\n{content}"
            "/{path}\ncontent:\n{content}/{path}\nContent: {content}/{path}, content: {content}",
        ),
        *lines("""
        I need a file {path} with the content {content}
        I want a new file {path} that says {content}
        I want {content} saved in {path} please
        We need {path} in the project. It should contain:|{content}
        There should be a file {path} with this text:|{content}
        The file {path} is missing. Create it with {content}
        New file {path}:|{content}
        new file: {path}|content:|{content}
        File: {path}|Content: {content}
        path {path}, content {content}, create it
        {path} does not exist yet, create it with the content {content}
        {content}||Save this as {path}
        {content}||Write that to {path}
        {content}||Create the file {path} with the text above.
        {content} should be written to the file {path}
        {content} is what I want in a new file {path}
        Can you create {path} with the content {content}
        Can you write this to {path}?|{content}
        Could you save the following as {path}?||{content}
        Would you make me a file {path} containing {content}
        Let {path} be a file with the content {content}
        This goes to {path}:|{content}
        Here is the content of the new file {path}:||{content}
        Please, a file {path} with {content} inside
        My notes should be in {path}. Here they are, save them:|{content}"""),
    ),
)
