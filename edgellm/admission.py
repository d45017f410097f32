"""Who of those that wait comes next: the most urgent; among them, clients in turn; of one client, who came first.

Knows sequences by their priority and client, neither slots nor lengths. Next hop: `scheduler.py`, which asks and decides.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import count

from .sequence import Sequence

MAX_CLIENTS = 1024
"""Clients whose last turn is remembered; whose is forgotten comes first, as the one that has waited longest does anyway."""


class Waiting:
    """The sequences that wait. Those that ran and gave way go before the new ones of their priority."""

    def __init__(self) -> None:
        self._places: dict[Sequence, int] = {}  # by arrival; below 0: it gave way, the last of them first
        self._count = count(1)
        self._turns: OrderedDict[str, int] = OrderedDict()  # when a client was last admitted, the longest ago first

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._places

    def __iter__(self) -> Iterator[Sequence]:
        """By priority, then by arrival, whosever they are."""
        return iter(sorted(self._places, key=lambda sequence: (sequence.priority, self._places[sequence])))

    def add(self, sequence: Sequence) -> None:
        """A new one."""
        self._places[sequence] = next(self._count)

    def put_back(self, sequence: Sequence) -> None:
        """One that ran, and gave way to others."""
        self._places[sequence] = -next(self._count)

    def remove(self, sequence: Sequence) -> None:
        """It does not wait any more."""
        del self._places[sequence]

    def admit(self, sequence: Sequence) -> None:
        """It runs now. That was its client's turn, unless it only goes on."""
        if self._places.pop(sequence) > 0:
            self._turns[sequence.client] = next(self._count)
            self._turns.move_to_end(sequence.client)
            if len(self._turns) > MAX_CLIENTS:
                self._turns.popitem(last=False)

    def in_turn(self, may_come: Callable[[Sequence], bool]) -> Iterator[Sequence]:
        """Yield those who may come, the next first. One that is not admitted then uses up nobody's turn."""
        lines: dict[tuple[int, str | None], deque[Sequence]] = {}
        for sequence, place in sorted(self._places.items(), key=lambda item: item[1]):
            if may_come(sequence):
                client = None if place < 0 else sequence.client
                lines.setdefault((sequence.priority, client), deque()).append(sequence)
        heads = [self._head(priority, client, line) for (priority, client), line in lines.items()]
        heapq.heapify(heads)
        while heads:
            priority, _, _, client = heads[0]
            line = lines[priority, client]
            yield line.popleft()
            if line:
                heapq.heapreplace(heads, self._head(priority, client, line))
            else:
                heapq.heappop(heads)

    def _head(self, priority: int, client: str | None, line: deque[Sequence]) -> tuple[int, int, int, str | None]:
        """What a line is ordered by: no two are equal in all of the first three, for places differ."""
        turn = -1 if client is None else self._turns.get(client, 0)
        return priority, turn, self._places[line[0]], client
