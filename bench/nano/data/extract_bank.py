"""All the fields of `extract_fields`, each with its keys and sentences."""

from typing import Any

from bench.nano.data import extract_fields as f
from bench.nano.data.extract_fields import BOOLEAN, INTEGER, NUMBER, STRING, STRINGS, Field
from bench.nano.data.source import Source
from bench.nano.data.wording import combine
from bench.nano.data.words import ADJECTIVES, NOUNS

_LANGUAGES = (
    "English", "French", "Spanish", "German", "Italian", "Dutch", "Polish", "Japanese", "Korean",
    "Arabic", "Hindi", "Turkish", "Greek", "Swedish", "Finnish", "Portuguese", "Python", "Rust",
)  # fmt: skip
_HOBBIES = (
    "chess", "running", "painting", "cooking", "swimming", "reading", "fishing", "hiking",
    "dancing", "cycling", "gardening", "singing", "sailing", "knitting", "photography",
)  # fmt: skip
_COLORS = (
    "red", "blue", "green", "yellow", "purple", "orange", "black", "white", "gray", "pink",
    "brown", "turquoise", "silver", "golden", "beige", "violet",
)  # fmt: skip
_JOBS = (
    "teacher", "doctor", "engineer", "farmer", "nurse", "pilot", "painter", "lawyer", "baker",
    "designer", "writer", "chemist", "driver", "librarian", "carpenter", "plumber", "data analyst",
)  # fmt: skip
_STATUS = ("open", "closed", "pending", "shipped", "cancelled", "failed", "done", "blocked")
_PRIORITY = ("low", "medium", "high", "urgent", "critical", "normal")
_SIZES = ("XS", "S", "M", "L", "XL", "XXL", "small", "medium", "large", "38", "42", "10.5")


def _status(source: Source) -> str:
    return source.choice(_STATUS)


# fmt: off
FIELDS: tuple[Field, ...] = (
    Field(("name", "full_name", "fullName", "person", "person_name", "customerName"),
          "the person's name", STRING, Source.person,
          ("My name is {v}.", "The person's name is {v}.", "The customer is called {v}.",
           "I spoke with {v}.", "The form was filled in by {v}.", "Name of the person: {v}.",
           "Hello, {v} here.", "My colleague is {v}.", "I am {v}.", "Signed by {v}.")),
    Field(("age", "person_age", "personAge", "age_years", "ageInYears"),
          "the age in years", INTEGER, f.whole(1, 99),
          ("I am {v} years old.", "The age is {v}.", "The person is {v} years old.",
           "Age: {v} years.", "The customer turned {v} this year.")),
    Field(("city", "town", "home_city", "homeCity", "location", "city_name"),
          "the city", STRING, Source.city,
          ("I live in {v}.", "The person lives in {v}.", "The city is {v}.",
           "The home town is {v}.", "City of residence: {v}.", "We moved to {v} in spring.",
           "My home is in {v} now.", "City: {v}."), group="address"),
    Field(("country", "country_name", "countryName", "home_country"),
          "the country", STRING, f.country,
          ("The country is {v}.", "The country of origin is {v}.",
           "Country: {v}.", "The passport is from {v}.", "I come from {v} by the way.")),
    Field(("email", "email_address", "emailAddress", "mail", "contact_email"),
          "the e-mail address", STRING, f.email,
          ("You can write to {v}.", "The email address is {v}.", "Email: {v}",
           "My e-mail is {v}.", "Send mail to {v}.", "Reachable at {v} by email.")),
    Field(("phone", "phone_number", "phoneNumber", "tel", "telephone", "mobile"),
          "the phone number", STRING, f.phone,
          ("The phone number is {v}.", "Call me at {v}.", "Phone: {v}.", "My number is {v}.",
           "By phone: {v}.")),
    Field(("company", "company_name", "companyName", "employer", "organization"),
          "the company", STRING, f.company,
          ("I work for {v}.", "The company is {v}.", "The company is called {v}.",
           "The employer is {v}.", "The invoice was sent by {v}.", "We at {v} say hello.",
           "The firm {v} pays me.", "Company: {v}.", "My boss owns {v}.")),
    Field(("job", "job_title", "jobTitle", "occupation", "profession"),
          "the occupation", STRING, lambda s: s.choice(_JOBS),
          ("I work as a {v}.", "The job is {v}.", "Occupation: {v}.", "By profession: {v}.",
           "The person is employed as a {v}.", "A {v} by trade.", "Job: {v}.")),
    Field(("product", "product_name", "productName", "article"),
          "the product", STRING, f.any_words,
          ("The product is {v}.", "The product is called {v}.", "I bought {v} in your shop.",
           "The ordered product was {v}.", "Product: {v}.", "We sell {v} here.",
           "The article {v} was ordered.", "I am writing about {v} again."),
          group="items", is_quoted=True),
    Field(("price", "cost", "unit_price", "unitPrice", "total", "amount", "total_price"),
          "the price", NUMBER, f.price,
          ("It costs ${v}.", "The price is {v} dollars.", "The total is {v} euros.",
           "I paid {v} dollars for it.", "Price: {v} EUR."), group="items"),
    Field(("quantity", "qty", "count", "item_count", "itemCount", "n_units"),
          "how many pieces", INTEGER, f.whole(1, 500),
          ("The quantity is {v}.", "I need {v} pieces.", "Number of units: {v}.",
           "We ordered {v} of them.", "Please send {v} units."), group="items"),
    Field(("date", "event_date", "eventDate", "day", "due_date", "dueDate"),
          "the date as it is written", STRING, f.date,
          ("The date is {v}.", "It takes place on {v}.", "Date: {v}.", "It is due on {v}.",
           "Everything is planned for {v}.")),
    Field(("time", "start_time", "startTime", "starts_at", "hour"),
          "the time of day", STRING, f.clock_time,
          ("It starts at {v}.", "The time is {v}.", "We begin at {v}.", "Start time: {v}.",
           "Be there at {v}.")),
    Field(("order_id", "orderId", "order_number", "orderNumber", "order", "reference"),
          "the order id", STRING, f.reference,
          ("The order id is {v}.", "My order number is {v}.", "It is about order {v}.",
           "Order: {v}.", "The reference of the order is {v}.", "My order {v} is late.",
           "Please look at order {v} today.")),
    Field(("color", "colour", "main_color", "mainColor", "paint"),
          "the color", STRING, lambda s: s.choice(_COLORS),
          ("The color is {v}.", "It comes in {v}.", "Color: {v}.", "It was painted {v}.",
           "The chosen color was {v}.", "I like the {v} one.", "Please send the {v} one.")),
    Field(("size", "shirt_size", "shirtSize", "item_size"),
          "the size", STRING, lambda s: s.choice(_SIZES),
          ("The size is {v}.", "I take size {v}.", "Size: {v}.", "In size {v}, please.")),
    Field(("rating", "score", "stars", "user_rating", "userRating"),
          "the rating", NUMBER, lambda s: s.choice((1, 2, 3, 4, 5, 1.5, 2.5, 3.5, 4.5)),
          ("I give it {v} stars.", "The rating is {v}.", "Rated {v} out of 5.",
           "My rating: {v} of 5.", "It got {v} stars in the review.")),
    Field(("is_active", "isActive", "active", "enabled"),
          "whether the account is active", BOOLEAN, f.coin,
          ("The account is active.", "The account is still active.", "Account state: active."),
          ("The account is not active.", "The account is inactive.", "Account state: inactive.")),
    Field(("is_member", "isMember", "member", "has_membership"),
          "whether the person is a member", BOOLEAN, f.coin,
          ("I am a member of the club.", "The person is a member.", "Membership: yes."),
          ("I am not a member of the club.", "The person is not a member.", "Membership: no.")),
    Field(("in_stock", "inStock", "available", "is_available"),
          "whether it is in stock", BOOLEAN, f.coin,
          ("It is in stock.", "The article is available now.", "In stock: yes."),
          ("It is out of stock.", "The article is not available.", "In stock: no.")),
    Field(("is_paid", "isPaid", "paid", "payment_done"),
          "whether it has been paid", BOOLEAN, f.coin,
          ("The bill has been paid.", "It is already paid.", "Paid: yes."),
          ("The bill has not been paid.", "It is not paid yet.", "Paid: no.")),
    Field(("languages", "spoken_languages", "spokenLanguages", "langs"),
          "the languages", STRINGS, f.some_words(_LANGUAGES),
          ("I speak {v}.", "Languages: {v}.", "The spoken languages are {v}.",
           "The person speaks {v}.")),
    Field(("hobbies", "interests", "hobby_list", "hobbyList", "activities"),
          "the hobbies", STRINGS, f.some_words(_HOBBIES),
          ("My hobbies are {v}.", "Hobbies: {v}.", "In free time there is {v}.",
           "The person enjoys {v}.")),
    Field(("tags", "labels", "keywords", "tag_list", "topics"),
          "the tags", STRINGS, f.some_words(tuple(ADJECTIVES)),
          ("The tags are {v}.", "Tags: {v}.", "It is tagged {v}.", "Tagged with {v}.")),
    Field(("items", "order_items", "orderItems", "lines", "articles"),
          "the ordered items", f.items_schema(priced=False), f.items(priced=False),
          ("The order contains {v}.", "Items: {v}.", "I would like {v}.", "Please send {v}.",
           "In the cart: {v}."), group="items"),
    Field(("items", "cart", "purchases", "lineItems", "line_items"),
          "the ordered items", f.items_schema(priced=True), f.items(priced=True),
          ("The order contains {v}.", "Items: {v}.", "I bought {v}.", "The receipt lists {v}."),
          group="items"),
    Field(("address", "home_address", "homeAddress", "shipping_address", "shippingAddress"),
          "the postal address", f.ADDRESS, f.address,
          ("The address is {v}.", "Ship it to {v}.", "Address: {v}.", "I live at {v}."),
          group="address"),
    Field(("status", "state", "order_status", "orderStatus"),
          "the status", {"type": "string", "enum": list(_STATUS)}, _status,
          ("The status is {v}.", "It is marked as {v}.", "Status: {v}.", "It is now {v}.")),
    Field(("priority", "priority_level", "priorityLevel", "prio"),
          "the priority", {"type": "string", "enum": list(_PRIORITY)},
          lambda s: s.choice(_PRIORITY),
          ("The priority is {v}.", "Priority: {v}.", "It has {v} priority.",
           "Treat it with {v} priority.")),
    Field(("title", "book_title", "bookTitle", "headline", "heading"),
          "the title", STRING, f.any_words,
          ("The title is {v}.", "It is titled {v}.", "Title: {v}.", "The book is called {v}.",
           "It has {v} as its title.", "Under the heading {v} it appeared."),
          is_quoted=True),
    Field(("author", "written_by", "writer", "author_name", "authorName"),
          "the author", STRING, Source.person,
          ("It was written by {v}.", "The author is {v}.", "Author: {v}.",
           "Its author is called {v}.", "A book by {v}.", "The writer {v} made it.")),
    Field(("year", "release_year", "releaseYear", "published", "published_year"),
          "the year", INTEGER, f.whole(1850, 2035),
          ("It came out in {v}.", "The year is {v}.", "Year: {v}.", "It was published in {v}.")),
    Field(("duration_minutes", "durationMinutes", "minutes", "duration_min", "length_minutes"),
          "the duration in minutes", INTEGER, f.whole(1, 400),
          ("The drive takes {v} minutes.", "The duration is {v} minutes.", "Duration: {v} min.",
           "It lasts {v} minutes.")),
    Field(("temperature", "temp", "temperature_celsius", "tempC", "degrees"),
          "the temperature in degrees Celsius", NUMBER, f.decimal(-20, 45),
          ("The temperature is {v} degrees.", "It is {v} °C.", "Temperature: {v} °C.",
           "The sensor shows {v} degrees.")),
    Field(("weight", "weight_kg", "weightKg", "mass"),
          "the weight in kilograms", NUMBER, f.decimal(0, 120),
          ("It weighs {v} kg.", "The weight is {v} kilograms.", "Weight: {v} kg.",
           "On the scale it has {v} kg.")),
    Field(("website", "url", "homepage", "link", "site_url"),
          "the web address", STRING, f.website,
          ("The website is {v} for now.", "See {v} for more.", "Website: {v}",
           "More on {v} if you like.")),
    Field(("note", "comment", "message", "remark", "text"),
          "the note", STRING, Source.line,
          ("The note says {v}.", "There is a comment: {v}.", "Note: {v}.",
           "A remark was added: {v}."), is_quoted=True),
    Field(("room", "room_number", "roomNumber", "room_no"),
          "the room number", INTEGER, f.whole(1, 999),
          ("The room is number {v}.", "It is in room {v}.", "Room: {v}.", "We meet in room {v}.")),
)
# fmt: on

_STATEMENTS = (
    "The LABEL is {v}.", "LABEL: {v}.", "As LABEL we noted {v}.", "We noted {v} as the LABEL.",
    "Its LABEL is {v}.", "The LABEL was {v} last time.", "They gave {v} as the LABEL.",
    "The LABEL has been set to {v}.", "For the LABEL it says {v} here.", "LABEL = {v}.",
)  # fmt: skip


def custom_field(source: Source) -> Field:
    """Make up a field that nobody has seen."""
    first = source.choice(NOUNS) if source.chance(0.5) else source.token_word().lower()
    second = source.choice(("code", "id", "kind", "value", "level", "count", "mode", "index"))
    keys = (f"{first}_{second}", f"{first}{second.capitalize()}")
    patterns = tuple(pattern.replace("LABEL", f"{first} {second}") for pattern in _STATEMENTS)
    schema: dict[str, Any] = INTEGER if second in ("count", "level", "index") else STRING
    draw = f.whole(0, 9999) if schema is INTEGER else f.any_words
    hint = f"the {first} {second}"
    return Field(keys, hint, schema, draw, patterns, is_quoted=schema is STRING)


# Short requests as people type them: keys and text in one line, two facts in a sentence.
INLINE = combine(
    "Extract|Read|Get|Find|Take|Give me|Return", "{keys}",
    "as JSON|as a JSON object|from this as JSON", ": {text}",
)  # fmt: skip
JOINT = (
    ("name", "age", "{name} is {age} years old."),
    ("name", "age", "{name}, {age} years old, is here."),
    ("name", "age", "This is {name}, aged {age}."),
    ("name", "city", "{name} lives in {city}."),
    ("name", "city", "{name} is from {city}."),
    ("name", "city", "{name} moved to {city}."),
)
