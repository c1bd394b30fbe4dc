"""The functions that every API's documentation shows: names, arguments, and values for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bench.nano.data.functions_values import (
    LANGUAGES,
    LISTS,
    Schema,
    draw_amount,
    draw_artist,
    draw_city,
    draw_currency,
    draw_date,
    draw_device,
    draw_email_address,
    draw_expression,
    draw_record_id,
    draw_symbol,
    draw_time,
    draw_word,
    free_text,
    one_of,
    short_text,
)
from bench.nano.data.source import Source

TEXT: Schema = {"type": "string"}
NUMBERS: tuple[Schema, ...] = ({"type": "number"}, {"type": "integer"})


class Argument(NamedTuple):
    """One argument of a family's functions.

    Attributes:
        slot: What phrasings call it.
        draw: A value as the user writes it, which the schema can take.
        is_free: Any text, which needs quotes within a sentence.
    """

    slot: str
    names: str
    descriptions: str
    draw: Callable[[Source, Schema], object]
    schemas: tuple[Schema, ...] = (TEXT,)
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Functions with one purpose. `|` separates variants.

    Attributes:
        thing: What the user wants, as a noun phrase with slots of short values only.
    """

    role: str
    names: str
    descriptions: str
    thing: str
    arguments: tuple[Argument, ...]


_UNITS = ("celsius|fahrenheit", "fahrenheit|celsius", "C|F", "metric|imperial",
          "Celsius|Fahrenheit")  # fmt: skip

SAME = {
    "celsius": ("celsius", "C", "metric", "Celsius"),
    "fahrenheit": ("fahrenheit", "F", "imperial", "Fahrenheit"),
    "on": ("on", "ON"),
    "off": ("off", "OFF"),
}
"""What a schema's enum may call the user's words."""


def _enums(options: tuple[str, ...]) -> tuple[Schema, ...]:
    return tuple({"type": "string", "enum": option.split("|")} for option in options)


_PLACE = Argument("city", "city|location|place|city_name|cityName|town|q|address",
                  "City|The city|Name of the city|The city and state, e.g. San Francisco, CA|"
                  "The location|Where|City name, as the user wrote it|", draw_city)  # fmt: skip
_AT = Argument("time", "time|at|when|due|alarm_time|clock|time_of_day|dueAt",
               "The time|Time of day|When|e.g. 07:30|", draw_time)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family("weather", "get_weather|get_current_weather|weather|fetchWeather|getWeather|GetWeather|"
           "current_weather|weather_lookup|getCurrentWeather|check_weather|weather_api",
           "Get the current weather in a given location|Get the weather|Returns the weather of a "
           "city.|Current weather for a place|Gets the current temperature and conditions.|",
           "the weather in {city}",
           (_PLACE, Argument("unit", "unit|units|format|temperature_unit|scale",
                             "Unit of the temperature|celsius or fahrenheit|The unit|",
                             one_of("celsius", "fahrenheit"), _enums(_UNITS)))),
    Family("city_time", "get_time|get_current_time|current_time|getTime|world_clock|local_time|"
           "GetCurrentTime|time_in_city|clock", "Get the local time of a city|The current time in "
           "a place|World clock.|Returns what time it is in a city.|", "the time in {city}",
           (_PLACE,)),
    Family("stock", "get_stock_price|stock_price|getStockPrice|quote|get_quote|StockQuote|"
           "lookup_ticker|share_price", "Get the current price of a stock|Stock quote|Returns the "
           "latest share price.|Market price of a share|", "the stock price of {symbol}",
           (Argument("symbol", "symbol|ticker|stock|ticker_symbol|stockSymbol|code",
                     "The ticker symbol|e.g. ABCD|Stock symbol|", draw_symbol),)),
    Family("currency", "convert_currency|currency_converter|convertCurrency|exchange|fx_convert|"
           "ConvertMoney|exchange_rate", "Convert money between currencies|Converts an amount from "
           "one currency to another.|Foreign exchange|",
           "{amount} {origin} in {target}",
           (Argument("amount", "amount|value|sum|quantity", "How much|The amount to convert|",
                     draw_amount, NUMBERS),
            Argument("origin", "from|from_currency|source|base|fromCurrency",
                     "Currency to convert from|ISO code|", draw_currency),
            Argument("target", "to|to_currency|target|into|toCurrency",
                     "Currency to convert to|ISO code|", draw_currency))),
    Family("email", "send_email|sendEmail|email|send_mail|SendEmail|compose_email|mail_send",
           "Send an e-mail|Sends an email to someone.|Compose and send a mail|", "an e-mail",
           (Argument("to", "to|recipient|address|email|to_address", "E-mail address|The recipient|",
                     draw_email_address),
            Argument("subject", "subject|title|subject_line", "Subject line|The subject|",
                     short_text, is_free=True),
            Argument("body", "body|text|content|message", "Text of the mail|The body|",
                     free_text, is_free=True))),
    Family("message", "send_message|sendMessage|send_text|sms|post_message|SendSms|text_message|"
           "chat_send", "Send a text message|Sends a message to a contact.|Write to someone|",
           "a message to {recipient}",
           (Argument("recipient", "recipient|to|contact|name|person|receiver",
                     "Who gets it|Name of the contact|", lambda source, _: source.person()),
            Argument("text", "text|message|body|content|msg", "What to send|The message|",
                     free_text, is_free=True))),
    Family("timer", "set_timer|setTimer|start_timer|timer|countdown|StartCountdown|create_timer",
           "Set a timer|Starts a countdown.|Kitchen timer|", "a timer for {minutes} minutes",
           (Argument("minutes", "minutes|duration|duration_minutes|mins|length|durationMinutes",
                     "Minutes|Duration in minutes|How long, in minutes|",
                     lambda source, _: source.rng.randrange(1, 600), NUMBERS),)),
    Family("alarm", "set_alarm|setAlarm|alarm|create_alarm|wake_up|AlarmClock|add_alarm",
           "Set an alarm|Alarm clock|Wakes the user at a time.|", "an alarm at {time}", (_AT,)),
    Family("reminder", "set_reminder|create_reminder|remind|addReminder|reminders_add|RemindMe",
           "Create a reminder|Reminds the user of something.|", "a reminder at {time}",
           (Argument("text", "text|title|about|message|note|task", "What to remind of|The text|",
                     free_text, is_free=True), _AT)),
    Family("translation", "translate|translate_text|translateText|translator|Translate|to_language",
           "Translate a text|Translates text into another language.|",
           "a translation to {language}",
           (Argument("text", "text|input|q|phrase|source_text", "The text|What to translate|",
                     free_text, is_free=True),
            Argument("language", "language|target_language|to|targetLanguage|lang",
                     "Target language|Language to translate to|", one_of(*LANGUAGES)))),
    Family("web_search", "web_search|search_web|searchWeb|google|internet_search|search_internet|"
           "WebSearch|browse_search", "Search the web|Search the internet for information.|Web "
           "search engine|", "a web search",
           (Argument("query", "query|q|search|keywords|search_term|searchQuery",
                     "What to search for|The search query|", free_text, is_free=True),)),
    Family("calculator", "calculator|calculate|calc|evaluate_expression|evalMath|Compute|do_math",
           "Evaluate an arithmetic expression|A calculator.|Computes the value of an expression|",
           "a calculation", (Argument("expression", "expression|expr|formula|input|calculation",
                                      "The expression|e.g. 2 + 2|", draw_expression),)),
    Family("record", "get_customer|lookup_user|getUserById|find_record|fetch_customer|GetAccount|"
           "user_lookup|crm_lookup", "Look up a user or customer by id|Fetch a record by its id.|"
           "Data of an account|", "the data of {kind} {id}",
           (Argument("id", "id|user_id|customer_id|userId|record_id|number", "The id|Its number|",
                     draw_record_id, ({"type": "string"}, {"type": "integer"})),)),
    Family("event", "create_event|add_calendar_event|createEvent|calendar_add|schedule_event|"
           "NewAppointment", "Create a calendar event|Adds an appointment to the calendar.|",
           "a calendar event on {date}",
           (Argument("title", "title|summary|name|event|subject", "Title of the event|",
                     short_text, is_free=True),
            Argument("date", "date|day|when|on|start_date", "The date|The day|", draw_date))),
    Family("song", "play_song|play_music|playSong|music_play|start_playback|PlayTrack|spotify_play",
           "Play a song|Starts a song on the speaker.|Music player|", "a song",
           (Argument("title", "title|song|track|name|song_title", "Title of the song|The song|",
                     short_text, is_free=True),
            Argument("artist", "artist|by|band|performer|artist_name", "Who plays it|Artist|",
                     draw_artist))),
    Family("device", "set_device|control_device|turn_device|switchDevice|smart_home|SetPower|"
           "home_control|toggle_power", "Turn a device on or off|Controls a device at home.|Smart "
           "home switch|", "the {device} {state}",
           (Argument("device", "device|name|device_name|entity|appliance|deviceId",
                     "Which device|The device|", draw_device),
            Argument("state", "state|power|on|enabled|status", "On or off|The new state|",
                     one_of("on", "off"), ({"type": "boolean"}, *_enums(("on|off", "off|on",
                                                                       "ON|OFF")))))),
    Family("list_item", "add_to_list|add_item|addToList|list_add|append_item|AddListItem|todo_add",
           "Add an item to a list|Puts something on a shopping or todo list.|",
           "something on the {list} list",
           (Argument("list", "list|list_name|listName|which|target", "Which list|Name of the list|",
                     one_of(*LISTS)),
            Argument("item", "item|text|entry|what|content", "The item|What to add|",
                     short_text, is_free=True))),
    Family("definition", "define|get_definition|dictionary|lookup_word|getDefinition|DefineWord|"
           "word_meaning", "Look up a word in the dictionary|Definition of a word|", "the meaning "
           "of {word}", (Argument("word", "word|term|lemma|q|entry", "The word|Word to define|",
                                  draw_word),)),
)  # fmt: skip
