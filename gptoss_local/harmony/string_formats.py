"""`format` of strings, as far as llguidance or an expression of ours enforces it.

Other formats are annotations (JSON Schema 2020-12, validation, 7.2.1). Source: RFC 3339, 1123
(hostname), 3986, 3.2.2 (IPv6); llguidance's json/formats.rs is too wide, and too narrow for IPv6.
"""

NATIVE = frozenset({"duration", "email", "ipv4", "uri"})

# Year 0 exists for RFC 3339 only, and few programs read it.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
# Without leap seconds: when there are some is not in the text, and few programs read them.
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_CLOCK}:[0-5][0-9](?:[.][0-9]+)?(?:[zZ]|[+-]{_CLOCK})"
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HEX = "[0-9a-fA-F]{1,4}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LAST_32_BITS = f"(?:{_HEX}:{_HEX}|(?:{_BYTE}[.]){{3}}{_BYTE})"


def _ipv6() -> str:
    full = f"(?:{_HEX}:){{6}}{_LAST_32_BITS}"
    options = [full, f"(?:{_HEX}(?::{_HEX}){{0,6}})?::", f"(?:{_HEX}(?::{_HEX}){{0,5}})?::{_HEX}"]
    for n in range(6):  # groups before `::`
        before = f"{_HEX}(?::{_HEX}){{{n - 1}}}" if n else ""
        options.append(f"{before}::(?:{_HEX}:){{0,{5 - n}}}{_LAST_32_BITS}")
    return "|".join(options)


PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[tT]{_TIME}$",
    "hostname": f"^(?=[^]{{0,253}}$){_LABEL}(?:[.]{_LABEL})*$",
    "uuid": "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "ipv6": f"^(?:{_ipv6()})$",
}
"""By format. llguidance has `uuid`, too, but names of properties may be one."""

IMPLIED = {
    "duration": r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?"
    r"(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
}
"""Patterns that zod sends with a format, which demands more."""
