"""KVCache under any series of operations: what a sequence sees is its own tokens' values, to the last place, and their state."""

from __future__ import annotations

import pytest
from cache_model import CacheModel, MemoryStorage, extend_path, longest_usable, make_layers
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgellm.cache import states
from edgellm.cache.kv import KVCache
from edgellm.cache.memory import needed_bytes
from edgellm.errors import ContextError, ResourceError
from edgellm.kernels.ops import StateLayer

MAX_SEQUENCES = 3
REACHES = st.lists(
    st.sampled_from([(None, 0), (1, 0), (8, 0), (63, 0), (64, 4), (65, 0), (130, 64)]),
    min_size=1,
    max_size=3,
    unique=True,
)
PICK = st.integers(0, 1 << 16)
TOKENS = st.integers(0, 1)  # few, so that beginnings meet again
COUNT = st.sampled_from([1, 2, 8, 31, 63, 64, 65, 127, 128, 150]) | st.integers(1, 200)


class Machine(RuleBasedStateMachine):
    """Slots with the tokens that they hold, checked after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.slots: dict[int, list[int]] = {}
        self.paths: dict[int, list[int]] = {}
        self.seen: list[list[int]] = [[]]
        self.cache: KVCache | None = None

    @initialize(
        reaches=REACHES,
        context=st.sampled_from([60, 128, 300, 700, None]),
        chunk=st.sampled_from([1, 7, 64, 150]),
        spare=st.sampled_from([None, 0, 1, 3]),
        stores=st.booleans(),
        state=st.sampled_from([None, None, "small", "large"]),
    )
    def start(
        self,
        reaches: list[tuple[int | None, int]],
        context: int | None,
        chunk: int,
        spare: int | None,
        stores: bool,
        state: str | None,
    ) -> None:
        if (None, 0) in reaches and context is None:
            context = 700
        layers, self.chunk = make_layers(reaches), chunk
        state_layers = [] if state is None else [StateLayer(1), StateLayer(20)]
        stores = stores and state is None
        one = needed_bytes(layers, context, 1, chunk)
        fixed = states.state_bytes(state_layers, MAX_SEQUENCES)
        memory = None if spare is None else one + spare * one // 4 + fixed
        self.cache = KVCache(layers, context, MAX_SEQUENCES, chunk, memory_bytes=memory, state_layers=state_layers)
        if self.cache.states is not None and state == "large":
            self.cache.states.saves_guesses, self.cache.states._num_recent = False, 2
        self.storage = MemoryStorage() if stores else None
        self.cache.storage = self.storage
        self.model = CacheModel(self.cache, layers)

    @rule(base=st.integers(0, 5), cut=st.sampled_from([0, 0, 1, 2, 63, 64, 65, 100]), more=st.lists(TOKENS, max_size=4))
    def open(self, base: int, cut: int, more: list[int]) -> None:
        """Begin as one of the last few did."""
        assert self.cache is not None
        known = self.seen[-1 - base % len(self.seen)]
        ids = [*known[: max(0, len(known) - cut)], *more][: self.cache.max_context]
        if len(self.slots) == MAX_SEQUENCES:
            with pytest.raises(ResourceError, match="all 3 cache slots"):
                self.cache.open(ids)
            return
        expected = longest_usable(self.model, ids) if self.storage is None else None
        slot, cached = self.cache.open(ids)
        assert slot not in self.slots
        assert expected is None or cached == expected, f"{cached} tokens are reused where {expected} could be"
        self.slots[slot], self.paths[slot] = ids[:cached], []
        extend_path(self.paths[slot], ids[:cached])
        self.check(slot)
        for start in range(cached, len(ids), self.chunk):
            if slot in self.slots:
                self.append_chunk(slot, ids[start : start + self.chunk])

    @precondition(lambda self: self.slots)
    @rule(pick=PICK, count=COUNT, token=TOKENS, odd=st.lists(TOKENS, max_size=3))
    def append(self, pick: int, count: int, token: int, odd: list[int]) -> None:
        slot = self.pick(pick)
        ids = [*odd, *[token] * count]
        for start in range(0, len(ids), self.chunk):
            if slot in self.slots:
                self.append_chunk(slot, ids[start : start + self.chunk])

    def append_chunk(self, slot: int, ids: list[int]) -> None:
        assert self.cache is not None
        length = len(self.slots[slot])
        ids = ids[: self.cache.max_context - length]
        if not self.reserve(slot, length + len(ids)):
            return
        self.slots[slot] += ids
        extend_path(self.paths[slot], ids)
        if self.cache.states is not None:  # some of them may be a guess, and the prompt may end anywhere
            guessed, prompt = len(ids) // 3 * (len(ids) % 2), length + len(ids) // 2
            writes = self.cache.states.plan(slot, length, len(ids) - guessed, guessed, prompt)
            self.model.write_states(self.paths[slot], length, self.cache.states.reads[slot], writes)
            self.cache.keep_states(slot, self.slots[slot])
        self.model.write(slot, length, self.paths[slot])
        self.model.check(slot, self.paths[slot], length)
        self.check(slot)

    def reserve(self, slot: int, length: int) -> bool:
        """Make room as a scheduler does, the last to come giving way. -> False if that is this slot."""
        assert self.cache is not None
        while True:
            try:
                self.cache.reserve(slot, length)
                return True
            except ResourceError:
                self.check(slot)
                assert len(self.slots) > 1, "a sequence alone has room"
                youngest = list(self.slots)[-1]
                self.leave(youngest, keep=True)
                if youngest == slot:
                    return False

    @precondition(lambda self: self.slots)
    @rule(pick=PICK, count=COUNT)
    def reserve_without_writing(self, pick: int, count: int) -> None:
        """A step that was interrupted."""
        assert self.cache is not None
        slot = self.pick(pick)
        length = min(len(self.slots[slot]) + min(count, self.chunk), self.cache.max_context)
        if self.reserve(slot, length):
            if self.cache.states is not None and length > len(self.slots[slot]):
                self.cache.states.plan(slot, len(self.slots[slot]), length - len(self.slots[slot]))
                self.cache.states.cut(slot, len(self.slots[slot]))  # what was to be written is not looked at
            self.check(slot)

    @precondition(lambda self: self.slots and len(self.slots) < MAX_SEQUENCES)
    @rule(pick=PICK)
    def fork(self, pick: int) -> None:
        assert self.cache is not None
        slot = self.pick(pick)
        twin = self.cache.fork(slot, len(self.slots[slot]))
        self.slots[twin], self.paths[twin] = [*self.slots[slot]], [*self.paths[slot]]
        self.check(twin)

    @precondition(lambda self: self.slots)
    @rule(pick=PICK, back=st.sampled_from([0, 1, 2, 3, 5, 40, 63, 64, 65, 130]))
    def rewind(self, pick: int, back: int) -> None:
        """By `back` tokens, or by all there are."""
        assert self.cache is not None
        slot = self.pick(pick)
        length = max(0, len(self.slots[slot]) - back)
        try:
            stands = self.cache.rewind(slot, length)
        except ContextError:
            assert length > 0 and not self.model.has_all(slot, length), "refused though nothing is gone"
        else:
            assert stands == length if self.cache.states is None else stands <= length
            del self.slots[slot][stands:], self.paths[slot][stands:]
        self.check(slot)

    @precondition(lambda self: self.slots)
    @rule(pick=PICK)
    def keep(self, pick: int) -> None:
        assert self.cache is not None
        slot = self.pick(pick)
        self.cache.keep(slot, self.slots[slot])
        self.remember(slot)
        self.check(slot)

    @precondition(lambda self: self.slots)
    @rule(pick=PICK, keep=st.sampled_from([True, True, True, False]))
    def close(self, pick: int, keep: bool) -> None:
        self.leave(self.pick(pick), keep)

    @precondition(lambda self: self.cache and any(group.pool.idle for group in self.cache._groups))
    @rule(pick=PICK)
    def evict(self, pick: int) -> None:
        assert self.cache is not None
        group = pick % len(self.cache.tables)
        pool = self.cache._groups[group].pool
        had, free = bool(pool.idle), pool.num_free
        assert self.cache.tree.evict(group) == had
        assert pool.num_free > free or not had

    @precondition(lambda self: self.cache and self.cache.storage and self.cache.storage.nodes)
    @rule(group=st.none() | st.integers(0, 2), forget=st.booleans())
    def hurt_storage(self, group: int | None, forget: bool) -> None:
        assert self.cache is not None and self.storage is not None
        self.storage.damaged = set() if group is None else {group}
        if forget:
            self.cache.tree.clear()

    @invariant()
    def everybody_sees_his_own(self) -> None:
        if self.cache is not None:
            for slot in self.slots:
                self.check(slot)
            self.model.check_holders(self.slots)
            self.model.check_states(self.paths)

    def teardown(self) -> None:
        if self.cache is None:
            return
        for slot in list(self.slots):
            self.leave(slot, keep=False)
        self.cache.tree.clear()
        assert not list(self.cache.tree)
        assert all(group.pool.num_free == group.pool.num_blocks for group in self.cache._groups)
        if self.cache.states is not None:
            self.cache.states.snapshots.clear()
            assert self.cache.states.pool.num_free == self.cache.states.num_records - 1
        self.cache.free()

    def pick(self, pick: int) -> int:
        return list(self.slots)[pick % len(self.slots)]

    def remember(self, slot: int) -> None:
        if len(self.slots[slot]) > 1 and self.slots[slot] not in self.seen:
            self.seen.append([*self.slots[slot]])

    def check(self, slot: int) -> None:
        """What the next token will see."""
        self.model.check(slot, self.paths[slot], len(self.paths[slot]))

    def leave(self, slot: int, keep: bool) -> None:
        assert self.cache is not None
        if keep:
            self.cache.keep(slot, self.slots[slot])
            self.remember(slot)
        self.cache.close(slot)
        del self.slots[slot], self.paths[slot]


TestAnyOrder = Machine.TestCase
TestAnyOrder.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
