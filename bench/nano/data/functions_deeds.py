"""How people ask a function to do something: to send, to remind, to play; by role."""

from bench.nano.data.functions_phrases import Phrasings, one_per_line
from bench.nano.data.wording import combine

_SEND = "Send|Write|Compose and send|Shoot off|Fire off"
_CALLED = "called|titled|named|with the title"

DEEDS: dict[str, tuple[Phrasings, ...]] = {
    "email": (
        Phrasings(combine(_SEND, "an email|an e-mail|a mail", "to {to}",
                          "with the subject {subject}|with subject {subject}",
                          "and the body {body}|and the text {body}.|"
                          "saying {body}|that says {body}.")),
        Phrasings(combine(_SEND, "an email|an e-mail|a mail", "to {to}",
                          "with the subject {subject} and this text:\n{body}|"
                          "with the subject {subject}. The body: {body}|"
                          "with subject {subject} and the following body:\n\n{body}"), bare="body"),
        Phrasings(combine("Email to {to}.|Mail to {to}.|New e-mail to {to}.|One more mail to {to}.",
                          "Subject: {subject}.|The subject is {subject}.|Subject {subject},",
                          "Body: {body}|Text: {body}.|The body is {body}."), ask=False),
        Phrasings(combine("Email {to}|Mail {to}", "with the subject|with subject|and put",
                          "{subject}", "and the body {body}|and the text {body}.|, text {body}")),
    ),
    "message": (
        Phrasings(combine("Send a message|Send a text|Send a text message|Send a chat message",
                          "to {recipient}", "saying {text}|that says {text}.|, text: {text}|"
                          "with the text {text}.|and write {text}.")),
        Phrasings(combine("Text|Message|Write to", "{recipient}", "the following: {text}|"
                          "this: {text}.|the words {text}|these words: {text}.")),
        Phrasings(combine("Text|Message|Send a message to|Send a text to|Write a message to|"
                          "Send this message to|Text the following to",
                          "{recipient}: {text}|{recipient}:\n{text}"), bare="text"),
        Phrasings(one_per_line("""
            {recipient} should get this message: {text}
            message to {recipient}: {text}
            new text message to {recipient}: {text}
            I have to tell {recipient} something by text message: {text}
            I want {recipient} to get the message {text}
            text message, to {recipient}, content {text}
            text message, to {recipient}, text {text}
            message, to {recipient}, content {text}
            new message, to {recipient}, content: {text}
            text message to {recipient}. Content: {text}
            Message for {recipient}: {text}
            A message for {recipient}, please: {text}"""), ask=False, bare="text"),
    ),
    "timer": (
        Phrasings(combine("Set|Start|Create|Run|Make|Begin", "a timer|a countdown|a kitchen timer",
                          "for {minutes} minutes|of {minutes} minutes.|for {minutes} min|"
                          "that rings in {minutes} minutes.|with {minutes} minutes")),
        Phrasings(one_per_line("""
            timer {minutes} minutes
            {minutes} minute timer
            Timer for {minutes} minutes!
            {minutes} minutes timer, starting now
            I am boiling eggs, I need a timer for {minutes} minutes.
            The pizza needs {minutes} minutes. Start a timer.
            I need a countdown of {minutes} minutes.
            My tea takes {minutes} minutes, set a timer.
            My pizza takes {minutes} minutes, set a timer.
            My tea needs {minutes} minutes. Set the timer."""), ask=False),
    ),
    "alarm": (
        Phrasings(combine("Set|Create|Add|Make|Program", "an alarm|my alarm clock|the alarm",
                          "for {time}|at {time}.|to {time}|to ring at {time}|which rings "
                          "at {time}.")),
        Phrasings(combine("Wake me|Wake me up|Ring the alarm|Get me out of bed",
                          "at {time}|at {time}.|at exactly {time}|at {time}, on the dot.")),
        Phrasings(one_per_line("""
            alarm {time}
            Alarm at {time}, please.
            I have to get up at {time}. Set an alarm.
            I need an alarm at {time}.
            {time} alarm
            The train is early, so I need an alarm for {time}.
            New alarm: {time}
            My alarm should ring at {time}."""), ask=False),
    ),
    "reminder": (
        Phrasings(combine("Remind me|Set a reminder|Create a reminder|Add a reminder|Make a "
                          "reminder", "at {time}|for {time}",
                          ": {text}|with the text {text}|saying {text}.")),
        Phrasings(combine("Remind me|Set a reminder|Create a reminder|Add a reminder",
                          "of {text}|about {text}|with the text {text}", "at {time}|at {time}.")),
        Phrasings(combine("Remind me|Set a reminder|Create a reminder|Add a reminder",
                          "at {time}: {text}|for {time} that says: {text}|for {time}:\n{text}|"
                          "for {time} with this text: {text}"), bare="text"),
        Phrasings(one_per_line("""
            reminder {time} {text}
            {time} reminder: {text}
            I must not forget this at {time}: {text}. Remind me.
            Reminder at {time} about {text}
            I need a reminder of {text} at {time}.
            {text} at {time}, remind me
            At {time} I want to be reminded of {text}.
            New reminder: {text}. Time: {time}""")
                  + combine("New reminder|Reminder|A new reminder|Remind me",
                            ": {text}. Time: {time}|: {text}. At {time}|"
                            ", text: {text}, time: {time}|: {text}, at {time}"),
                  ask=False),
    ),
    "event": (
        Phrasings(combine("Create|Add|Schedule|Put|Make|Enter", "an event|a calendar event|"
                          "an appointment", _CALLED, "{title}",
                          "on {date}|for {date}.|on {date}.")),
        Phrasings(combine("Put|Add|Enter|Schedule|Write", "{title}", "into my calendar|in the "
                          "calendar|in my calendar", "on {date}|for {date}|on {date}.")),
        Phrasings(one_per_line("""
            new calendar event on {date}: {title}
            calendar: {title} on {date}
            My calendar needs an entry for {date}: {title}
            I have an appointment on {date}. It is called {title}. Put it into the calendar.
            On {date} there is {title}. Add it to my calendar.
            Event: {title}. Date: {date}.
            {date}: {title} (calendar)
            There should be an event {title} on {date} in my calendar."""), ask=False),
    ),
    "song": (
        Phrasings(combine("Play|Start playing|Put on|Play me|Let me hear|Start",
                          "the song {title}|the track {title}|{title}", "by {artist}|by {artist}.|"
                          "from {artist}|of the artist {artist}")),
        Phrasings(combine("Play|Start playing|Put on|Play me|Let me hear",
                          "the song {title}|the track {title}.|the song {title} now|music: {title}|"
                          "my favourite song, {title}")),
        Phrasings(one_per_line("""
            I want to hear {title} by {artist}.
            I would like to listen to {title} by {artist}.
            play: {title} by {artist}
            {title} by {artist}, please play it
            music! {title} by {artist}
            How about {title} by {artist}? Play it.
            I feel like {artist}. Play {title}.
            Next song: {title} by {artist}
            song {title}, artist {artist}"""), ask=False),
    ),
    "device": (
        Phrasings(combine("Turn|Switch", "the {device} {state}|{state} the {device}|"
                            "the {device} {state}.|{state} the {device}.|the {device} {state} "
                            "now|my {device} {state}|{state} my {device}.|{state} the "
                            "{device} for me")),
        Phrasings(combine("Make sure that the {device} is|Make sure my {device} is|"
                          "See to it that the {device} is|Set the {device} to|Put the {device}",
                          "{state}|{state}.|{state}!")),
        Phrasings(one_per_line("""
            {device} {state}
            {device}: {state}
            The {device} should be {state}.
            I want the {device} {state}.
            I want my {device} to be {state} now.
            It would be nice if the {device} were {state}.
            We need the {device} {state}.
            {state} with the {device}!
            The {device} has to be {state} when I come home, so do it now."""), ask=False),
    ),
    "list_item": (
        Phrasings(combine("Add|Put|Append|Write", "{item}", "to my {list} list|on the {list} list|"
                          "onto the {list} list.|to the {list} list|on my {list} list.")),
        Phrasings(combine("Add this|Add the following|Put this|Append the following",
                          "to my {list} list: {item}|to the {list} list:\n{item}|"
                          "onto the {list} list: {item}"), bare="item"),
        Phrasings(one_per_line("""
            {list} list: {item}
            New item on my {list} list: {item}
            My {list} list needs one more thing: {item}
            We forgot something on the {list} list: {item}
            one more for the {list} list: {item}
            On the {list} list I also want {item}
            What is missing on the {list} list is {item}
            The {list} list should also have {item}
            The {list} list should have {item}
            My {list} list should hold {item}
            My {list} list should also hold {item}"""), ask=False, bare="item"),
    ),
}  # fmt: skip
