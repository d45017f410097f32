"""Markdown that is still growing, cut into blocks (what is shown of a half is case O01's and O02's kind)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.cli.repl.blocks import Block, Blocks, Lines

TEXT = """\
# Title
A paragraph
of two lines.

1. one
   more of one
   ```python
   x = 1

   - no item
   ```
2. two

3. three
   - nested

> said
> so
and after
- a
- b

~~~js
let a = `
```
~~~
| a | b |
|---|---|
| 1 | 2 |

Under
=====
***
    code
"""
EXPECTED = [
    ("# Title", False),
    ("A paragraph\nof two lines.", False),
    ("1. one\n   more of one\n   ```python\n   x = 1\n\n   - no item\n   ```", True),
    ("2. two", False),
    ("3. three\n   - nested", True),
    ("> said\n> so", True),
    ("and after", False),
    ("- a", False),
    ("- b", False),
    ("let a = `", True),
    ("```", False),
    ("| a | b |\n|---|---|\n| 1 | 2 |", True),
    ("Under\n=====", True),
    ("***", True),
    ("    code", False),
]


def cut(pieces: list[str]) -> list[Block]:
    blocks = Blocks()
    found = [block for piece in pieces for block in blocks.feed(piece)]
    return found + blocks.finish()


def test_blocks_of_a_text() -> None:
    found = cut([TEXT])
    assert [(block.text, block.gap) for block in found] == EXPECTED
    code = [block for block in found if block.is_code]
    assert [(block.text, block.language, block.is_start) for block in code] == [
        ("let a = `", "js", True),
        ("```", "js", False),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_pieces_do_not_matter(size: int) -> None:
    assert cut([TEXT[i : i + size] for i in range(0, len(TEXT), size)]) == cut([TEXT])


PARTS = st.sampled_from(["a", " ", "\n", "`", "```\n", "~~~", "- ", "1. ", "#", "> ", "|", "   ", "=", "**", "\t", "é"])


@given(st.lists(PARTS, max_size=40))
def test_nothing_is_lost_and_pieces_never_matter(parts: list[str]) -> None:
    text = "".join(parts)
    blocks, found = Blocks(), []
    for letter in text:
        found += blocks.feed(letter)
        blocks.rest()
    found += blocks.finish()
    assert found == cut([text])
    # What fences are made of and white space aside, every letter is in a block.
    letters = [c for c in text if c not in "`~ \n\t"]
    kept = [c for block in found for c in block.text if c not in "`~ \n\t"]
    assert kept == letters or any(block.language for block in found) or "```" in text or "~~~" in text


def test_what_still_grows_is_shown_but_for_half_a_fence() -> None:
    blocks = Blocks()
    blocks.feed("Look:\n\n")
    for growing in ("`", "`", "`", "py"):
        blocks.feed(growing)
        assert blocks.rest() is None
    blocks.feed("\nx =")
    assert blocks.rest() == Block("x =", True, True, "py", True)
    blocks.feed(" 1\n``")
    assert blocks.rest() is None  # the end of the code, perhaps
    assert blocks.finish() == [Block("``", False, True, "py")]


def test_a_paragraph_grows_until_an_empty_line() -> None:
    blocks = Blocks()
    assert blocks.feed("one\ntwo") == []
    assert blocks.rest() == Block("one\ntwo")
    assert blocks.feed("\n\nthree") == [Block("one\ntwo")]
    assert blocks.rest() == Block("three", True)


def test_raw_text_goes_line_by_line() -> None:
    lines = Lines()
    assert lines.feed("a\n\nb") == [Block("a"), Block("")]
    assert lines.rest() == Block("b")
    assert lines.feed("c") == [] and lines.finish() == [Block("bc")] and lines.finish() == []
