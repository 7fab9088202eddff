"""Other people's text made safe for the medium it is printed in.

What a server sent ends up in terminals, CI logs and pull requests. One escaping is shared by all:
a character that a terminal would not print becomes `\\n`, `\\r`, `\\t`, `\\xNN` (one byte) or
`\\u{…}` (one character), and a backslash is doubled, so the exact bytes can be read back. Bidi
controls and zero-width characters are not printable either and go the same way.
"""

from __future__ import annotations

import html as html_entities
import re

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_BACK = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u\{([0-9a-f]{1,6})\}|([nrt\\]))")
# What Markdown could read as markup, an autolink, or (on the usual forges) a mention.
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~#&!$@:]|www\.", re.IGNORECASE)


def excerpt(data: bytes) -> str:
    """Bytes as one printable line: UTF-8 where it is valid, `\\xNN` for every byte that is not."""
    return "".join(map(_printable, data.decode("utf-8", "surrogateescape")))


def unescape(text: str) -> bytes:
    """The bytes that `excerpt` was given. Raises ValueError for what it never writes."""
    out, position = bytearray(), 0
    for match in _ESCAPED.finditer(text):
        out += _literal(text[position : match.start()])
        byte, character, name = match.groups()
        if byte:
            out.append(int(byte, 16))
        else:
            out += _BACK[name] if name else chr(int(character, 16)).encode()
        position = match.end()
    return bytes(out + _literal(text[position:]))


def _literal(text: str) -> bytes:
    if "\\" in text:
        raise ValueError("a backslash that escapes nothing")
    return text.encode()


def _printable(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape: one byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{{{code:x}}}"


def terminal(text: str) -> str:
    """One line without control characters, escape sequences or reordering."""
    return "".join(
        character if character == "\\" or character.isprintable() else _printable(character)
        for character in text
    )


def xml(text: str) -> str:
    """Only characters that XML 1.0 section 2.2 allows; markup is left to the serializer."""
    return "\n".join(terminal(line) for line in text.split("\n"))


def html(text: str) -> str:
    return html_entities.escape(terminal(text), quote=True)


def markdown(text: str) -> str:
    """Text for a paragraph or a table cell: no markup, no links, no mentions, no row breaks."""
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[0][-1])};", terminal(text)) if text else ""


def markdown_code(text: str) -> str:
    """A code span that its content cannot leave, also inside a table row."""
    line = terminal(text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line[:1] in "` " or line[-1:] in "` " else ""
    return f"{fence}{pad}{line}{pad}{fence}"
