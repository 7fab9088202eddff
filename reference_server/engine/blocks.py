"""Who holds which blocks of the key-value cache, and what stands in them. Integers, no tensors.

A block keeps the keys and values of `block_size` consecutive tokens of a sequence; the sequence's
*table* lists its blocks in order. A sequence claims all the blocks it can ever need before it runs,
so nothing that runs waits for a block, and nobody has to be thrown out halfway.

A full block never changes, so sequences that begin alike may share it: each full block has a name,
a digest of all tokens from the first to its last, and is published under it once it is computed.
A block that nobody holds keeps its name, and can be found again until it is taken for other tokens.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, islice


def name_of(tokens: Iterable[int], before: bytes = b"") -> bytes:
    """The name of a full block: its tokens, and `before`, the name of the block in front of it."""
    return hashlib.sha256(before + array("q", tokens).tobytes()).digest()


def needed(tokens: int, block_size: int) -> int:
    """Blocks for that many tokens."""
    return -(-tokens // block_size)


class BlockPool:
    """Blocks are numbers from 0. An owner holds one table at a time and releases it once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._tables: dict[Hashable, list[int]] = {}
        self._holders = [0] * count
        self._free = OrderedDict.fromkeys(range(count))  # in the order in which they are reused
        self._named: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def owners(self) -> set[Hashable]:
        return set(self._tables)

    def table(self, owner: Hashable) -> list[int]:
        return list(self._tables[owner])

    def find(self, names: Iterable[bytes]) -> list[int]:
        """The blocks published under `names`, up to the first that is not there."""
        found: list[int] = []
        for name in names:
            if name not in self._named:
                break
            found.append(self._named[name])
        return found

    def fits(self, shared: Sequence[int], count: int) -> bool:
        """Whether `claim` would succeed. What is shared is not among the others, held or not."""
        return count <= self.free - sum(block in self._free for block in shared)

    def claim(self, owner: Hashable, shared: Sequence[int], count: int) -> list[int]:
        """The table of `owner`: the `shared` blocks that `find` gave, then `count` others.

        Raises RuntimeError, and claims nothing, where that many are not free.
        """
        if owner in self._tables or not self.fits(shared, count):
            raise RuntimeError(f"{owner} cannot claim {count} blocks beside {list(shared)}")
        for block in shared:
            self._hold(block)
        fresh = self._choose(count, shared[-1] + 1 if shared else None)
        for block in fresh:
            self._forget(block)
            self._hold(block)
        self._tables[owner] = [*shared, *fresh]
        return self.table(owner)

    def publish(self, block: int, name: bytes) -> None:
        """Say what `block` holds, now that it is computed. The first block of a name keeps it."""
        if not self._holders[block]:
            raise RuntimeError(f"block {block} is published, but nobody holds it")
        if name not in self._named and block not in self._names:
            self._named[name], self._names[block] = block, name

    def release(self, owner: Hashable) -> None:
        """Give the table back. Raises RuntimeError where there is none: a second release."""
        if (table := self._tables.pop(owner, None)) is None:
            raise RuntimeError(f"{owner} holds no blocks to release")
        for block in table:
            self._holders[block] -= 1
        self._put_back([block for block in table if not self._holders[block]])

    def check_integrity(self) -> None:
        """Raises AssertionError unless free + owned = all and the counts match the tables."""
        held = Counter(block for table in self._tables.values() for block in table)
        assert [held[block] for block in range(self.count)] == self._holders, "holders miscounted"
        assert set(self._free) == set(range(self.count)) - set(held), "free + owned is not all"
        assert all(len(set(table)) == len(table) for table in self._tables.values()), "twice in one"
        assert self._names == {block: name for name, block in self._named.items()}, "names differ"

    def _hold(self, block: int) -> None:
        self._holders[block] += 1
        self._free.pop(block, None)

    def _forget(self, block: int) -> None:
        name = self._names.pop(block, None)
        if name is not None:
            del self._named[name]

    def _put_back(self, blocks: Sequence[int]) -> None:
        """Named blocks are reused last, the longest free first: what is in them may be wanted."""
        for block in reversed(blocks):
            self._free[block] = None
            if block not in self._names:
                self._free.move_to_end(block, last=False)
        for block in blocks:
            if block in self._names:
                self._free.move_to_end(block)

    def _choose(self, count: int, wanted: int | None) -> list[int]:
        """`count` free blocks, in one ascending run where there is one, best from `wanted` on.

        A table that is one run can be read as one slice of the cache.
        """
        known: dict[int, int] = {}
        for start in chain([] if wanted is None else [wanted], self._free):
            if self._is_run(start, count, known):
                return list(range(start, start + count))
        return sorted(islice(self._free, count))

    def _is_run(self, start: int, count: int, known: dict[int, int]) -> bool:
        """Whether so many blocks from `start` on are free.

        `known` keeps, from call to call, how many are free from a block on where they were too few:
        no block is counted twice, however torn the pool is.
        """
        end = start
        while end < start + count and end in self._free and end not in known:
            end += 1
        behind = known.get(end, 0)
        if end - start + behind >= count:
            return True
        for block in range(start, end):
            known[block] = end - block + behind
        return False
