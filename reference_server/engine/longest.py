"""How many bytes of a text one token may stand for, read from a tokenizer before it reads a text.

A text that is longer than the context times that has more tokens than the context, and can be
refused before it is cut. Only tokenizers that keep every byte have such a number: where a part may
drop something, or an unknown stretch is one token, any length may come down to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

# These cut a text, or make it longer.
_KEEPING = frozenset({"ByteLevel", "Metaspace", "Digits", "Prepend"})
# Composition shortens: U+1FBE U+0308 U+0301, seven bytes, is U+0390, which has two. No character
# is four times as short as what it may be composed of.
_COMPOSES, _COMPOSED = "NFC", 4


def longest(backend: Any, spelled: Iterable[bytes], added: Iterable[Any]) -> int | None:
    """`backend`: a tokenizer of the library `tokenizers`; `spelled`: the bytes of its own tokens.

    `added`: its AddedTokens, which stand for themselves. None: there is no bound.
    """
    added, lengths, singles = list(added), [0], set[bytes]()
    for raw in spelled:
        lengths.append(len(raw))
        if len(raw) == 1:
            singles.add(raw)
    parts = [*_parts(backend.normalizer), *_parts(backend.pre_tokenizer)]
    if len(singles) < 256 or not all(map(_keeps, parts)):
        return None
    if any(token.lstrip or token.rstrip for token in added):  # it takes all spaces around it
        return None
    lengths += (len(token.content.encode()) for token in added)
    return max(lengths) * (_COMPOSED if any(part["type"] == _COMPOSES for part in parts) else 1)


def _parts(whole: Any) -> Iterator[dict[str, Any]]:
    """A normalizer or pre-tokenizer as its plain parts; none where there is none."""
    if whole is not None:
        yield from _flat(json.loads(whole.__getstate__()))


def _flat(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inner = part.get("normalizers", part.get("pretokenizers"))
    if inner is None:
        yield part
        return
    for each in inner:
        yield from _flat(each)


def _keeps(part: dict[str, Any]) -> bool:
    if part["type"] == "Replace":  # of a space by SentencePiece's, which the decoder turns back
        return bool(part["pattern"].get("String") == " " and part["content"] == "▁")
    if part["type"] in ("Split", "Punctuation"):
        return bool(part["behavior"] != "Removed")
    return part["type"] in _KEEPING or part["type"] == _COMPOSES
