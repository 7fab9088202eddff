"""A local tokenizer.json, read by the library `tokenizers`, which is imported when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.errors import UsageError

FILE = "tokenizer.json"


def load(path: Path) -> Any:
    """A `tokenizers.Tokenizer`, from the file or the folder that holds it. Raises UsageError."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        known = "auto, endpoint, usage, words, a FILE or a DIR with a tokenizer.json"
        raise UsageError(f"--tokenizer {path}: expected {known}")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        need = "needs the library tokenizers: pip install tokenizers"
        raise UsageError(f"--tokenizer {path}: {need}") from None
    try:
        tokenizer = Tokenizer.from_file(str(file))
        # Some files ask for either: what is filled up or cut off is no length of a prompt.
        tokenizer.no_padding()
        tokenizer.no_truncation()
    except Exception as error:  # it raises Exception itself, whatever is wrong with the file
        raise UsageError(f"--tokenizer {file}: cannot be read: {error}"[:200]) from None
    return tokenizer


def ids(tokenizer: Any, text: str) -> Sequence[int]:
    """Without what a template would add. Raises UsageError, as where no token stands for a word."""
    try:
        found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    except Exception as error:  # as in `load`
        raise UsageError(f"--tokenizer: a prompt cannot be encoded: {error}"[:200]) from None
    return found
