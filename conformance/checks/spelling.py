"""What log-probability entries spell, beside the text that came with them."""

from __future__ import annotations

from conformance.capture import Json
from conformance.chunks import Choice, member
from conformance.lifecycle import ChoiceLife


def has_entries(choice: Choice) -> bool:
    """Has the chunk log-probabilities, in the form of either API?"""
    return bool(member(choice.logprobs, "content") or member(choice.logprobs, "tokens"))


def lacking(life: ChoiceLife) -> list[int]:
    """Chunks with text and no entry, unless the entries of other chunks spell the whole text."""
    bare = [at for at, choice in life.pieces if choice.text and not has_entries(choice)]
    if bare and any(has_entries(choice) for _, choice in life.pieces):
        whole = b"".join(spelled(choice) or b"" for _, choice in life.pieces)
        return [] if whole == life.text.encode("utf-8", "replace") else bare
    return bare


def spelled(choice: Choice) -> bytes | None:
    """What a chunk's entries spell: their bytes, else their tokens' text; None: not known."""
    content = member(choice.logprobs, "content")
    if isinstance(content, list):
        parts = [_octets(entry) for entry in content]
        return None if None in parts else b"".join(part for part in parts if part is not None)
    tokens = member(choice.logprobs, "tokens")
    if isinstance(tokens, list) and all(isinstance(t, str) for t in tokens):
        return "".join(t for t in tokens if isinstance(t, str)).encode("utf-8", "replace")
    return b""


def _octets(entry: Json) -> bytes | None:
    octets, token = member(entry, "bytes"), member(entry, "token")
    if isinstance(octets, list) and are_octets(octets):
        return bytes(b for b in octets if type(b) is int)
    return token.encode("utf-8", "replace") if isinstance(token, str) else None


def are_octets(value: object) -> bool:
    """Is it an array of integers from 0 to 255?"""
    return isinstance(value, list) and all(type(b) is int and 0 <= b <= 255 for b in value)


def bytes_given(life: ChoiceLife) -> bool:
    """Has every entry its bytes? Token texts alone may hold replacement characters."""
    lists = [member(choice.logprobs, "content") for _, choice in life.pieces]
    entries = [entry for found in lists if isinstance(found, list) for entry in found]
    return bool(entries) and all(are_octets(member(entry, "bytes")) for entry in entries)


def wrong_bytes(life: ChoiceLife) -> bool:
    """Do the entries' bytes, where all are given, not begin with the text?"""
    if not bytes_given(life):
        return False
    whole = b"".join(spelled(choice) or b"" for _, choice in life.pieces)
    return not whole.startswith(life.text.encode("utf-8", "replace"))


def first_mismatch(life: ChoiceLife, held_back: bool) -> int | None:
    """Index of the chunk where tokens and text part; text held back for a stop may come later."""
    text = tokens = b""
    for at, choice in life.pieces:
        part = spelled(choice)
        if part is None:
            return None
        text += choice.text.encode("utf-8", "replace")
        tokens += part
        size = len(text)
        if tokens[:size] != text:
            return at
        text, tokens = b"", tokens[size:]
        if tokens and not held_back and not _unfinished(tokens):
            return at
    return None


def _unfinished(rest: bytes) -> bool:
    """Are the tokens ahead of the text by part of one character?"""
    try:
        rest.decode()
    except UnicodeDecodeError as error:
        return error.start == 0 and error.reason == "unexpected end of data"
    return False
