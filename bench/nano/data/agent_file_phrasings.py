"""What a user types who wants to see, to search or to change files: see `agent_wording`."""

from bench.nano.data.agent_wording import Bank, combine, lines

READ = Bank(
    asks=(
        *combine("Read/Open/Show me/Look at", "{path}/the file {path}/what is in {path}"),
        *combine(
            "Show/Print/Display/Get/Read/Give me/Cat/Examine/Inspect/Check",
            "the file {path}/the content of {path}/the contents of {path}/the text of {path}",
        ),
        *lines("""
            Read {path} and tell me what is in it.
            Read out {path}
            Open {path} and show me the content.
            Open the file {path} please
            Show me the content of the file {path}
            Show {path}
            Show me what the file {path} contains.
            Print the content of {path}
            Display {path}
            View {path}
            Look into {path}
            Look at the file {path} and tell me what it says.
            Have a look at {path}
            Take a look at the file {path}
            Tell me what {path} contains.
            Tell me what is in the file {path}
            Tell me the content of {path}
            Give me the content of {path}
            Give me the text of the file {path}
            Check what is in {path}
            Check the content of the file {path}
            Get me the file {path}
            Load {path} and show it to me.
            Fetch the text of the file {path}
            Use your tool to read {path}
            See what the file {path} says.
            Inspect {path}
            Bring up {path}
            Examine the file {path}"""),
    ),
    others=lines("""
        What is in {path}
        What is in the file {path} ?
        What's in {path}
        What does {path} contain?
        What does the file {path} say?
        What does it say in {path}
        What are the contents of {path}
        What is the content of the file {path} ?
        What is written in {path}
        What text is in {path}
        Can you read {path} for me?
        Can you show me {path}
        Can you open the file {path} ?
        Could you look at {path} and show me what is there?
        Would you read me the file {path}
        I want to see {path}
        I want to see what is in {path}
        I need the content of {path}
        I'd like to know what {path} contains.
        I have a file {path} here, what is in it?
        I forgot what is in {path}
        We need to know what the file {path} says.
        There is a file {path} in the project, show it to me.
        The file {path} - what does it contain?
        {path}||What is in this file?
        {path}: read it
        {path} please, the whole file
        file: {path}|What does it contain?
        read: {path}
        content of {path}
        show file {path}
        Let me see {path}
        Let's have a look at the file {path}
        Is there anything in {path}
        Do you see what is in {path}"""),
)
LIST = Bank(
    asks=(
        *combine(
            "List/Show/Show me",
            "the folder {path}/the files in {path}/all files of {path}/the directory {path}",
        ),
        *combine(
            "Show me/Tell me/Check/Find out/See/Let me know",
            "what files are in {path}/which files are in {path}/what files {path} has"
            "/which files there are in {path}/what is in the folder {path}"
            "/what files the folder {path} has/which files {path} has/what {path} has"
            "/what the folder {path} has/what is in {path}/what files there are in {path}",
        ),
        "List {path}",
        *lines("""
            List the content of the folder {path}
            List the directory {path}
            List everything in the directory {path}
            List what is in the folder {path} please
            Show the directory {path} and its files.
            Show me the content of the folder {path}
            Tell me which files are in {path}
            Tell me what files the folder {path} has.
            Tell me what is in the directory {path}
            Give me a list of the files in {path}
            Give me all the files of the folder {path}
            Give me the directory listing of {path}
            Get the files of the folder {path}
            Look into the folder {path} and list the files.
            Look at the folder {path}
            Check which files are in {path}
            Check what is in the folder {path}
            Print the files in the directory {path}
            Print the listing of the folder {path}
            Find out which files are in the folder {path}
            Do a listing of {path}
            Display the folder {path}
            Enumerate the files in {path}
            See what the folder {path} contains.
            Use your tool to list {path}
            Go through the folder {path} and name the files."""),
    ),
    others=(
        *combine(
            "What files/Which files/What",
            "are in {path}/are there in {path}/are in the folder {path}/are there in the folder "
            "{path}/does {path} have/does the folder {path} have/does the directory {path} have"
            "/do I have in {path}",
            "/?",
        ),
        *lines("""
        What files are there in the folder {path} ?
        What's in the directory {path}
        What does the folder {path} contain?
        Which files does the directory {path} have?
        Which files do I have in {path}
        Can you list {path} for me?
        Can you list the files in {path}
        Can you show me the folder {path}
        Could you tell me what is in the folder {path} ?
        Would you list the directory {path}
        I want to see the files in {path}
        I need a list of the files in {path}
        I'd like to know what is in the folder {path}
        I lost a file, it should be in the folder {path}. List it.
        We need to know which files are in {path}
        {path}||List this folder.
        {path} is a folder. What files are in it?
        folder: {path}|Which files are there?
        files in {path}
        ls of the folder {path}
        list: {path}
        directory listing of {path}
        content of the folder {path}
        Are there any files in {path}
        Is the folder {path} empty or what is in it?
        Let me see the folder {path}
        How does the folder {path} look?"""),
    ),
)
SEARCH = Bank(
    asks=(
        *combine(
            "Find/Search for/Look for/Grep for",
            "{pattern}/the word {pattern}/the text {pattern}",
            " in the files/ in all files",
        ),
        *lines("""
            Search the files for {pattern}
            Search the project for {pattern}
            Search the code for {pattern}
            Search in the files for:|{pattern}
            Search all files for the text {pattern}
            Search for this text in the files:|{pattern}
            Search the codebase for|{pattern}
            Find where {pattern} is used in the code.
            Find where {pattern} is written.
            Find which files contain {pattern}
            Find every line with {pattern}
            Find this in the files:|{pattern}
            Look through the files for {pattern}
            Check where {pattern} occurs in the project.
            Check which files mention {pattern}
            Tell me where {pattern} is used.
            Tell me which files contain {pattern}
            Show me all lines that contain {pattern}
            Show me where the code has {pattern}
            List all occurrences of {pattern}
            Use your search tool to find {pattern}
            Go through the files and find {pattern}
            Locate {pattern} in the code.
            Grep the project for {pattern}"""),
    ),
    others=(
        *combine(
            "Is/Where is/Where do we have/Do we have",
            "{pattern}/the text {pattern}/the word {pattern}",
            " in the code?/ in the project?/ in the files?/ anywhere?/ anywhere in the code?",
        ),
        *(
            f"{{pattern}}{ask} in the {place}"
            for ask in ("\n\nWhere is this", "\n\nSearch this", "\n\nFind this", ": where is it")
            for place in ("code?", "files?", "project?", "files")
        ),
        *lines("""
        Where is {pattern} used in the code?
        Where do we use {pattern}
        Where does {pattern} occur?
        Where can I find {pattern} in the project?
        In which files is {pattern}
        Which files contain {pattern}
        Which files have the text {pattern} in them?
        Which lines contain {pattern}
        Can you search for {pattern}
        Can you find {pattern} in the files?
        Can you grep for {pattern}
        Could you look for {pattern} in the code?
        Would you search the files for {pattern}
        I am looking for {pattern} in the files.
        I want to know where {pattern} is used.
        I need all places with {pattern}
        I need to find {pattern} in our code.
        We have {pattern} somewhere in the files, find it.
        Does the project contain {pattern}
        Does any file contain {pattern}
        {pattern}||Search this in the files.
        {pattern}||Where is this in the code?
        {pattern} - where is it used?
        search: {pattern}
        search term: {pattern}
        grep {pattern}
        find in files: {pattern}
        occurrences of {pattern}"""),
    ),
)
SEARCH_IN = Bank(
    asks=(
        *combine(
            "Find/Search for/Look for/Grep for",
            "{pattern}/the word {pattern}/the text {pattern}",
            " in {path}/ in the folder {path}/ in the files of {path}",
        ),
        *lines("""
            Search the folder {path} for {pattern}
            Find all files in {path} with {pattern}
            Find the lines in {path} with {pattern}
            Go through {path} and find {pattern}
            Go through the files in {path} and search for {pattern}
            Search the files in {path} for {pattern}
            Search {path} for the text {pattern}
            In the folder {path} search for {pattern}
            Find all lines in {path} with {pattern}
            Find which files of {path} contain {pattern}
            Find this in the folder {path}:|{pattern}
            Search in {path} for:|{pattern}
            Look through the folder {path} for {pattern}
            Look into the files of {path} and find {pattern}
            Check where {pattern} occurs in the folder {path}
            Check which files in {path} mention {pattern}
            Tell me where {pattern} is used in {path}
            Tell me which files of the folder {path} contain {pattern}
            Show me all lines in {path} that contain {pattern}
            List all occurrences of {pattern} below {path}
            Use your search tool in {path} to find {pattern}
            Go through the folder {path} and find {pattern}
            Grep {path} for {pattern}"""),
    ),
    others=(
        *combine(
            "Where in/Where in the folder/Where in the files of/Where below",
            "{path}",
            " is {pattern}/ is the text {pattern}/ do we have {pattern}/ does {pattern} occur"
            "/ is {pattern} used/ can I find {pattern}",
        ),
        *combine(
            "Which files/Which lines/What files",
            "in {path}/below {path}/of the folder {path}",
            " contain {pattern}/ have {pattern}/ mention {pattern}/ use {pattern}",
        ),
        *lines("""
        Where is {pattern} used in {path}
        Where does {pattern} occur in the folder {path}
        Which lines below {path} have {pattern}
        Can you search {path} for {pattern}
        Can you find {pattern} in the folder {path}
        Could you look in {path} for {pattern}
        Would you grep for {pattern} in {path}
        I am looking for {pattern} in the folder {path}
        I want to know where {pattern} is used in {path}
        I need all places in {path} with {pattern}
        We have {pattern} somewhere in {path} and I want to find it.
        Does the folder {path} contain {pattern}
        Is {pattern} used anywhere in {path}
        folder: {path}|search term: {pattern}
        search {path}: {pattern}
        grep {pattern} in {path}
        find in {path}: {pattern}
        occurrences of {pattern} in {path}
        {pattern}||Search this in the folder {path}"""),
    ),
)
