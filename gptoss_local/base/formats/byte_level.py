"""GPT-2's spelling of bytes as printable characters, in which tokenizers store their tokens.

Source: `bytes_to_unicode` in OpenAI's gpt-2/src/encoder.py.
"""

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

CHAR_OF_BYTE = {b: chr(b) for b in _PRINTABLE} | {b: chr(256 + i) for i, b in enumerate(_OTHERS)}

BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}
