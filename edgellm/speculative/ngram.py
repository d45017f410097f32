"""Guesses from the sequence's own text: where the end of it has been seen before, what came then may come again.

A suffix automaton over the ids, grown one id at a time in constant amortised time, knows the longest end of the text that
occurred earlier, of any length. Source: Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text";
for speculation: Saxena 2023, "Prompt lookup decoding". Knows ids only.
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf

from .proposer import NO_GUESS, Guess

RECENT_STEPS = 8
"""States whose latest place is renewed per id: the longest matches, which are the ones that are asked for."""
MIN_MATCH = 1
LONGEST_KIND = 5


class SuffixAutomaton:
    """All that a growing text contains, in at most twice as many states as ids.

    State s stands for all texts that end at the same places; the longest has length[s] ids. link[s]: the state of its
    longest end that occurs elsewhere too. place[s]: where one of its latest occurrences ends.
    """

    def __init__(self) -> None:
        self.length = [0]
        self.link = [-1]
        self.place = [-1]
        self._next: list[dict[int, int]] = [{}]
        self._last = 0
        self.match_length = 0
        self.match_place = -1
        self.num_tokens = 0

    def append(self, token_id: int) -> None:
        """Add an id. Afterwards the longest end that occurred before has match_length ids, and ended at match_place then."""
        length, link, follow = self.length, self.link, self._next
        position = self.num_tokens
        self.num_tokens += 1
        new = self._make_state(length[self._last] + 1, position, {})
        at = self._last
        while at >= 0 and token_id not in follow[at]:
            follow[at][token_id] = new
            at = link[at]
        link[new] = 0 if at < 0 else self._target(at, token_id)
        self._last = new
        self._note(link[new], position)

    def _target(self, at: int, token_id: int) -> int:
        """The state that at's text and token_id lead to, split from longer texts that end there if need be."""
        length, link, follow = self.length, self.link, self._next
        to = follow[at][token_id]
        if length[at] + 1 == length[to]:
            return to
        copy = self._make_state(length[at] + 1, self.place[to], dict(follow[to]))
        link[copy] = link[to]
        link[to] = copy
        while at >= 0 and follow[at].get(token_id) == to:
            follow[at][token_id] = copy
            at = link[at]
        return copy

    def _note(self, state: int, position: int) -> None:
        """Remember the match, then that its texts have occurred here too."""
        self.match_length, self.match_place = self.length[state], self.place[state]
        for _ in range(RECENT_STEPS):
            if state <= 0:
                return
            self.place[state] = position
            state = self.link[state]

    def _make_state(self, length: int, place: int, follow: dict[int, int]) -> int:
        self.length.append(length)
        self.link.append(-1)
        self.place.append(place)
        self._next.append(follow)
        return len(self.length) - 1


class NgramProposer:
    """Proposes what followed the latest earlier occurrence of the longest end of the text that has one."""

    step_s = None

    def __init__(self, min_match: int = MIN_MATCH) -> None:
        self._min_match = min_match
        self._automaton = SuffixAutomaton()
        self._seen: list[int] = []

    def propose(self, token_ids: ListOf[int], max_tokens: int) -> Guess:
        """See Proposer. A kind is the length of the match that ends before the id, in powers of two."""
        self._follow(token_ids)
        length, place = self._automaton.match_length, self._automaton.match_place
        if length < self._min_match or max_tokens < 1:
            return NO_GUESS
        guess = self._copy(place + 1, max_tokens)
        return Guess(guess, [min((length + i).bit_length() - 1, LONGEST_KIND) for i in range(len(guess))])

    def close(self) -> None:
        """Nothing is held."""

    def _copy(self, start: int, count: int) -> list[int]:
        """ids from `start` on; beyond the end of the text what was copied goes on being copied, as in Lempel-Ziv's scheme."""
        guess = self._seen[start : start + count]
        period = len(self._seen) - start
        while len(guess) < count:
            guess.append(guess[len(guess) - period])
        return guess

    def _follow(self, token_ids: ListOf[int]) -> None:
        """Take what is new. A text that was cut (something was taken back) is read anew: that is rare."""
        known = len(self._seen)
        if len(token_ids) < known or (known and token_ids[known - 1] != self._seen[-1]):
            self._automaton, self._seen, known = SuffixAutomaton(), [], 0
        for token_id in token_ids[known:]:
            self._automaton.append(token_id)
            self._seen.append(token_id)
