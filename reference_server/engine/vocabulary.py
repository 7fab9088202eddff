"""A transformers tokenizer as the engine's `Vocabulary`: bytes of tokens, prompts, chat templates.

What a token stands for is read from the tokenizer's own decoder, never from the model's name:

* byte-level BPE (decoder `ByteLevel`): every character of a token stands for one byte;
* SentencePiece-like (`Replace`, `ByteFallback`, `Fuse`, `Strip`, `Metaspace`): `▁` is a space and
  `<0xNN>` a byte. The first space of a whole sequence is the decoder's invention and stripped; an
  answer goes on after a prompt, so its first space is the model's;
* anything else: tokens have no bytes of their own, and the text is what two decode calls differ by
  (`window`).

Control tokens (`special` in the tokenizer) have no bytes: they are never text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from reference_server.engine.interface import Message, TokenLogprob
from reference_server.engine.longest import longest
from reference_server.engine.text import TextPath, spelled
from reference_server.engine.window import Window

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")
_MARK = "streamproof"  # what an assistant says to find out how its turn ends


class TokenizerVocabulary:
    """See `runner.Vocabulary`. `tokenizer` is a PreTrainedTokenizerFast, ours from here on.

    `ends` are the model's (`eos_token_id` of its generation config); the tokenizer's own end and
    the token with which the chat template ends a turn are added. `window` forces the third way.
    """

    def __init__(
        self, tokenizer: Any, ends: int | Collection[int] | None = None, window: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        # Only the Rust object is used from here on: it may be shared by threads once it is told
        # not to cut and not to pad, which transformers' own calls set anew each time.
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        added = tokenizer.added_tokens_decoder
        self._special = frozenset(token for token, each in added.items() if each.special)
        self._added = {token: each.content for token, each in added.items()}
        self._steps = _steps(self._backend)
        self._spelling = None if window else _spelling(self._steps)
        self._strips = _strips(self._steps)
        self._before = self._beginning()
        self._size = 1 + max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)
        self._ends = frozenset(_listed(ends)) | self._own_ends()
        self._raws: dict[int, bytes] = {}
        self._longest = self._find_longest(added.values())

    @property
    def size(self) -> int:
        return self._size

    @property
    def ends(self) -> frozenset[int]:
        return self._ends

    @property
    def longest(self) -> int | None:
        return self._longest

    def _find_longest(self, added: Iterable[Any]) -> int | None:
        if self._spelling is None:
            return None
        own = (token for token in range(self._size) if token not in self._added)
        return longest(self._backend, map(self._raw, own), added)

    # -- text to ids -------------------------------------------------------------------------

    def encode(self, prompt: str) -> tuple[int, ...]:
        """With the beginning that the tokenizer puts there, unless the text has it already.

        Control tokens that the text spells out are taken for what they are: chat templates do so.
        """
        ids = self._ids(prompt)
        return ids if ids[: len(self._before)] == self._before else self._before + ids

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Ids whose bytes are exactly `text`, a space that the tokenizer invents left away."""
        wanted = text.encode()
        for ids in self._continuations(text):
            if self._spelling is None or b"".join(map(self.raw, ids)) == wanted:
                return ids
        raise ValueError(f"this tokenizer cannot spell {text[:60]!r}")

    def _ids(self, text: str) -> tuple[int, ...]:
        # A batch of one, without offsets: half the time, and other threads go on meanwhile.
        (made,) = self._backend.encode_batch_fast([text], add_special_tokens=False)
        return tuple(made.ids)

    def _beginning(self) -> tuple[int, ...]:
        """What the post-processor puts before a text (what it puts behind one is an end)."""
        whole, plain = tuple(self._backend.encode("a").ids), self._ids("a")
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return whole[:start]
        return ()

    def _continuations(self, text: str) -> Iterator[tuple[int, ...]]:
        """Ways to write `text` in the middle of a sequence, the natural ones first."""
        yield self._ids(text)
        for anchor in ("\n", "a", "."):
            before, ids = self._ids(anchor), self._ids(anchor + text)
            if ids[: len(before)] == before:
                yield ids[len(before) :]
        byte = self._backend.token_to_id
        names = [byte(f"<0x{value:02X}>") for value in text.encode()]
        if None not in names:
            yield tuple(names)
        # Text that spells a control token out is no control token: it is written in two parts.
        yield tuple(token for part in self._parts(text) for token in self._ids(part))

    def _parts(self, text: str) -> list[str]:
        """`text`, cut behind the first character of whatever spells a control token."""
        controls = [self._added[token] for token in self._special]
        cuts = [
            found.start() + 1 for word in controls for found in re.finditer(re.escape(word), text)
        ]
        places = [0, *sorted(set(cuts)), len(text)]
        return [text[start:end] for start, end in pairwise(places)]

    # -- ids to text -------------------------------------------------------------------------

    def raw(self, token: int) -> bytes:
        found = self._raws.get(token)
        if found is None:
            found = self._raws[token] = self._raw(token)
        return found

    def _raw(self, token: int) -> bytes:
        if token in self._special or not 0 <= token < self._size:
            return b""
        if self._spelling is None:
            return self._after_another(token).encode()
        return self._spelling(self._backend.id_to_token(token) or "", token in self._added)

    def _after_another(self, token: int) -> str:
        """What the token adds to a text that has begun: the nearest to bytes of its own."""
        before = list(self._ids("a"))
        return self._decode([*before, token])[len(self._decode(before)) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def path(self, stops: Sequence[str], aligned: bool, whole: bool = False) -> TextPath:
        if self._spelling is None:
            return _WindowPath(stops, aligned, self._window())
        return _WholePath(stops, aligned) if whole and self._strips else TextPath(stops, aligned)

    def _window(self) -> Window:
        bytewise = any(step["type"] == "ByteFallback" for step in self._steps)
        return Window(self._decode, bytewise)

    def spell(self, path: TextPath, token: int, entry: TokenLogprob | None = None) -> None:
        raw = self.raw(token)
        if isinstance(path, _WindowPath):
            raw = b"" if token in self._special else path.window.feed(token).encode()
        elif isinstance(path, _WholePath):
            raw = path.stripped(raw)
        else:
            return path.feed(raw, entry)
        # An entry's bytes are those that its token adds to this very text.
        path.feed(raw, entry and replace(entry, token=spelled(raw), raw=raw))

    # -- chats -------------------------------------------------------------------------------

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        return self._templated([{"role": m.role, "content": m.content} for m in messages], True)

    def _templated(self, messages: list[dict[str, str]], asks: bool) -> str:
        """Raises ValueError in one line, in the template's own words where it refuses."""
        if not self._tokenizer.chat_template:
            raise ValueError("this model has no chat template: use /v1/completions")
        template = self._tokenizer.apply_chat_template
        try:
            return str(template(messages, tokenize=False, add_generation_prompt=asks))
        except Exception as error:  # Jinja's, or whatever an expression of the template raises
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"the model's chat template refuses these messages: {reason}"
            ) from None

    def _own_ends(self) -> frozenset[int]:
        return frozenset(_listed(self._tokenizer.eos_token_id)) | self._end_of_turn()

    def _end_of_turn(self) -> frozenset[int]:
        """The control token that the chat template writes right after what an assistant says."""
        said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _MARK}]
        try:
            after = self._ids(self._templated(said, False).rpartition(_MARK)[2])
        except ValueError:
            return frozenset()
        return frozenset(after[:1]) & self._special


class _WindowPath(TextPath):
    def __init__(self, stops: Sequence[str], aligned: bool, window: Window) -> None:
        super().__init__(stops, aligned)
        self.window = window


class _WholePath(TextPath):
    """A sequence from its beginning on: the space that the tokenizer invented is taken away."""

    _begun = False

    def stripped(self, raw: bytes) -> bytes:
        if self._begun or not raw:
            return raw
        self._begun = True
        return raw.removeprefix(b" ")


def _listed(ends: int | Collection[int] | None) -> Collection[int]:
    if ends is None:
        return ()
    return (ends,) if isinstance(ends, int) else ends


# -- the decoder's steps -------------------------------------------------------------------------

Step = dict[str, Any]
Spelling = Callable[[str, bool], bytes]


def _steps(backend: Any) -> list[Step]:
    """The decoder as a list of plain steps; empty where there is none."""
    if backend.decoder is None:
        return []
    whole: Step = json.loads(backend.decoder.__getstate__())
    return list(_flat(whole))


def _flat(step: Step) -> Iterator[Step]:
    if step["type"] != "Sequence":
        yield step
        return
    for inner in step["decoders"]:
        yield from _flat(inner)


def _spelling(steps: list[Step]) -> Spelling | None:
    """How to spell a token on its own: (its name, whether it was added) → bytes. None: not so."""
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _byte_level
    replaced = [_replacement(step) for step in steps if step["type"] in ("Replace", "Metaspace")]
    known = {"Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"}
    if not kinds or not known.issuperset(kinds) or None in replaced or not _only_first(steps):
        return None
    pairs = [pair for pair in replaced if pair is not None]

    def sentencepiece(name: str, added: bool) -> bytes:
        if "ByteFallback" in kinds and (found := _BYTE.match(name)):
            return bytes([int(found[1], 16)])
        for old, new in pairs:
            name = name.replace(old, new)
        return name.encode()

    return sentencepiece


def _replacement(step: Step) -> tuple[str, str] | None:
    """(what, by what); None for a pattern that is no plain string."""
    if step["type"] == "Metaspace":
        return step["replacement"], " "
    plain = step["pattern"].get("String")
    return None if plain is None else (plain, step["content"])


def _only_first(steps: list[Step]) -> bool:
    """Every `Strip` takes at most one space, after `Fuse`, from the beginning."""
    kinds = [step["type"] for step in steps]
    for place, step in enumerate(steps):
        fused = "Fuse" in kinds[:place]
        if step["type"] == "Strip" and not (
            fused and step["content"] == " " and step["start"] <= 1 and step["stop"] == 0
        ):
            return False
    return True


def _strips(steps: list[Step]) -> bool:
    """Whether the decoder takes one space from the beginning of a sequence."""
    return any(
        (step["type"] == "Strip" and step["start"] > 0)
        or (step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
        for step in steps
    )


def _byte_table() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable ones as themselves, the others from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(own)]
    table = {chr(byte): byte for byte in own}
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_table()


def _byte_level(name: str, added: bool) -> bytes:
    """An added token is its own text: it was never spelled with the table."""
    if added or not all(char in _BYTES for char in name):
        return name.encode()
    return bytes(_BYTES[char] for char in name)
