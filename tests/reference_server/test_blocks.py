"""The block pool: exactly-once release, shared blocks, what is reused first."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from reference_server.engine.blocks import BlockPool, name_of, needed


def names(*tokens: int) -> list[bytes]:
    """A chain of names of blocks that hold one token each."""
    out: list[bytes] = []
    for token in tokens:
        out.append(name_of([token], out[-1] if out else b""))
    return out


def filled(pool: BlockPool, owner: str, chain: list[bytes]) -> list[int]:
    """Claim a block for each name of `chain` and publish it."""
    table = pool.claim(owner, [], len(chain))
    for block, name in zip(table, chain, strict=True):
        pool.publish(block, name)
    return table


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_started_block_is_a_whole_block(tokens: int, blocks: int) -> None:
    assert needed(tokens, 4) == blocks


def test_a_claim_is_one_ascending_run_where_there_is_one() -> None:
    pool = BlockPool(10)
    assert pool.claim("a", [], 3) == [0, 1, 2]
    assert pool.claim("b", [], 2) == [3, 4]
    pool.release("a")
    assert pool.claim("c", [], 4) == [5, 6, 7, 8]  # three are free at the beginning, not enough
    assert pool.claim("d", [], 3) == [0, 1, 2]


def test_without_a_run_a_claim_takes_what_there_is_in_ascending_order() -> None:
    pool = BlockPool(6)
    for owner in "abcdef":
        pool.claim(owner, [], 1)
    for owner in "eac":
        pool.release(owner)
    assert pool.claim("g", [], 3) == [0, 2, 4]
    pool.check_integrity()


def test_without_a_run_a_claim_takes_what_is_free_for_the_longest_time() -> None:
    pool = BlockPool(6)
    for number, owner in enumerate("abcdef"):
        filled(pool, owner, names(number))
    for owner in "eac":
        pool.release(owner)
    assert pool.claim("g", [], 2) == [0, 4]


def test_a_claim_goes_on_right_behind_the_blocks_it_shares() -> None:
    pool = BlockPool(10)
    pool.claim("gap", [], 2)
    shared = filled(pool, "a", names(1, 2))
    pool.release("gap")
    assert pool.claim("b", shared, 2) == [*shared, 4, 5]  # not 0 and 1


def test_a_claim_that_does_not_fit_raises_and_takes_nothing() -> None:
    pool = BlockPool(3)
    pool.claim("a", [], 2)
    with pytest.raises(RuntimeError, match="b cannot claim 2"):
        pool.claim("b", [], 2)
    assert (pool.free, pool.owners) == (1, {"a"})
    pool.check_integrity()


def test_an_owner_holds_one_table_at_a_time() -> None:
    pool = BlockPool(3)
    pool.claim("a", [], 1)
    with pytest.raises(RuntimeError, match="a cannot claim"):
        pool.claim("a", [], 1)


def test_a_second_release_raises() -> None:
    pool = BlockPool(3)
    pool.claim("a", [], 2)
    pool.release("a")
    with pytest.raises(RuntimeError, match="a holds no blocks to release"):
        pool.release("a")
    assert pool.free == 3


def test_a_shared_block_is_free_after_its_last_holder_left() -> None:
    pool = BlockPool(4)
    shared = filled(pool, "a", names(1, 2))
    pool.claim("b", shared, 1)
    pool.release("a")
    assert pool.free == 1
    pool.check_integrity()
    pool.release("b")
    assert pool.free == 4


def test_shared_blocks_that_nobody_holds_are_not_among_the_free_ones_too() -> None:
    pool = BlockPool(3)
    shared = filled(pool, "a", names(1, 2))
    pool.release("a")
    assert pool.fits(shared, 1)
    assert not pool.fits(shared, 2)
    assert pool.fits([], 3)


def test_a_freed_block_is_found_until_it_is_reused() -> None:
    pool = BlockPool(2)
    table = filled(pool, "a", names(1, 2))
    pool.release("a")
    assert pool.find(names(1, 2)) == table
    pool.claim("b", [], 1)
    assert pool.find(names(1, 2)) == []
    pool.check_integrity()


def test_what_is_found_ends_at_the_first_gap() -> None:
    pool = BlockPool(4)
    table = filled(pool, "a", names(1, 2))
    assert pool.find(names(1, 3, 2)) == table[:1]
    assert pool.find(names(2, 1)) == []


def test_nothing_is_found_before_it_is_published() -> None:
    pool = BlockPool(4)
    table = pool.claim("a", [], 2)
    assert pool.find(names(1, 2)) == []
    pool.publish(table[0], names(1)[0])
    assert pool.find(names(1, 2)) == table[:1]


def test_blocks_that_hold_nothing_known_are_reused_first_then_the_longest_free() -> None:
    pool = BlockPool(6)
    filled(pool, "a", names(1, 2))
    filled(pool, "b", names(3, 4))
    pool.claim("c", [], 2)
    for owner in "bac":
        pool.release(owner)
    assert pool.claim("d", [], 2) == [4, 5]
    assert pool.claim("e", [], 2) == [2, 3]
    assert pool.find(names(1, 2)) == [0, 1]


def test_who_publishes_first_keeps_the_name() -> None:
    pool = BlockPool(4)
    table = filled(pool, "a", names(1))
    filled(pool, "b", names(1))
    pool.release("b")
    assert pool.find(names(1)) == table
    pool.check_integrity()


def test_only_a_held_block_is_published() -> None:
    with pytest.raises(RuntimeError, match="block 1 is published, but nobody holds it"):
        BlockPool(2).publish(1, b"name")


def test_a_name_tells_the_tokens_and_all_that_stands_before() -> None:
    many = [name_of([1, 2]), name_of([2, 1]), name_of([1, 2], b"x"), name_of([1]), name_of([258])]
    assert len(set(many)) == len(many)
    assert name_of([1, 2], b"x") == name_of((1, 2), b"x")


@pytest.mark.parametrize("seed", range(20))
def test_a_run_is_found_whenever_there_is_one(seed: int) -> None:
    rng, pool = random.Random(seed), BlockPool(24)
    for block in range(24):
        pool.claim(block, [], 1)
    for block in rng.sample(range(24), k=16):  # in any order: that of reuse
        pool.release(block)
    free = [block in pool._free for block in range(24)]
    longest = max(len(run) for run in "".join(" x"[is_free] for is_free in free).split())
    for count in range(1, longest + 1):
        table = pool.claim("run", [], count)
        assert table == list(range(table[0], table[0] + count)), f"seed {seed}"
        pool.release("run")
    table = pool.claim("torn", [], longest + 1)
    assert table == sorted(table) != list(range(table[0], table[0] + len(table))), f"seed {seed}"


@pytest.mark.parametrize("seed", range(30))
def test_any_schedule_keeps_the_books(seed: int) -> None:
    """Against a plain account: who holds what, and how often."""
    rng, pool = random.Random(seed), BlockPool(12)
    held: dict[int, list[int]] = {}
    for turn in range(120):
        chain = names(*(rng.randint(0, 1) for _ in range(rng.randint(0, 4))))
        shared, fresh = pool.find(chain), rng.randint(0, 5)
        if pool.fits(shared, fresh):
            held[turn] = pool.claim(turn, shared, fresh)
            for block, name in zip(held[turn], chain, strict=False):
                pool.publish(block, name)
        for owner in rng.sample(sorted(held), k=min(len(held), rng.randint(0, 2))):
            pool.release(owner)
            del held[owner]
        counts = Counter(block for table in held.values() for block in table)
        assert pool.free == 12 - len(counts), f"seed {seed}, turn {turn}"
        pool.check_integrity()


def test_the_integrity_check_sees_a_lost_block_and_a_wrong_count() -> None:
    lost, miscounted, twice, nameless = (BlockPool(3) for _ in range(4))
    lost._free.popitem()
    miscounted._holders[1] = 1
    twice._tables["a"], twice._holders[0] = [0, 0], 2
    del twice._free[0]
    nameless._names[0] = b"name"
    for pool in (lost, miscounted, twice, nameless):
        with pytest.raises(AssertionError):
            pool.check_integrity()
