"""GBNF: what a grammar accepts is what a plain matcher of the same rules accepts, text by text; mistakes name the line."""

from __future__ import annotations

import itertools

import pytest
from byte_constraints import accepts

from edgellm.errors import OptionError, UnsupportedError
from edgellm.structured.gbnf import is_gbnf, to_lark
from edgellm.structured.gbnf_syntax import Chars, Group, Item, Literal, Repeat, RuleName, parse


def ends(item: Item, text: str, at: int, rules: dict[str, Group]) -> set[int]:
    """Where an item that begins at a place of the text may end: the notation's meaning, letter by letter."""
    if isinstance(item, Literal):
        return {at + len(item.text)} if text.startswith(item.text, at) else set()
    if isinstance(item, Chars):
        is_in = at < len(text) and any(low <= text[at] <= high for low, high in item.ranges)
        return {at + 1} if at < len(text) and is_in != item.is_negated else set()
    if isinstance(item, RuleName):
        return ends(rules[item.name], text, at, rules)
    if isinstance(item, Repeat):
        found, places = ({at} if item.low == 0 else set()), {at}
        for count in range(1, min(item.high or len(text) + 1, len(text) + 1) + 1):
            places = {end for place in places for end in ends(item.item, text, place, rules)}
            found |= places if count >= item.low else set()
        return found
    found = set()
    for sequence in item.sequences:
        places = {at}
        for part in sequence:
            places = {end for place in places for end in ends(part, text, place, rules)}
        found |= places
    return found


GRAMMARS = {
    "literals": ('root ::= "a" | "ab" "b"? | ""', "ab"),
    "greedy": ('root ::= [ab]* "ab" | "b"', "ab"),
    "counts": ("root ::= a{2} | a{3,4} b | (b b){2,} # three ways\na ::= [a]\nb ::= [^a]", "ab"),
    "nested": ('root ::= "(" root? ")" | "a"', "(a)"),
    "list": ('root ::= "(" ws (item ("," ws item)*)? ")" ws\nitem ::= "a" ws | root\nws ::= " "?', "(a,) "),
    "sums": ('root ::= term ("+" term)*\nterm ::= "a" | "(" root ")" |\n  "a" "a"', "a+()"),
    "ends alike": ('root ::= "a" mid "b"\nmid ::= "a" mid "b" | [ab]', "ab"),
    "any": ("root ::= . [^\\n] .?", "a\n"),
    "lines": ('root ::=\n  ("a"\n  | "b" # c\n  )+\n  | "ba" "\\n"', "ab\n"),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_means_what_its_letters_say(name: str) -> None:
    grammar, letters = GRAMMARS[name]
    rules = parse(grammar)
    texts = [
        "".join(t) for size in range(6 if len(letters) < 4 else 5) for t in itertools.product(letters, repeat=size)
    ]
    expected = {text for text in texts if len(text) in ends(rules["root"], text, 0, rules)}
    assert 1 < len(expected) < len(texts)
    assert {text for text in texts if accepts(text, grammar=grammar)} == expected


def test_escapes_and_characters_beyond_ascii() -> None:
    grammar = r'root ::= "\x41\u00e9\U0001F600\"\\" [\]\[/"-] "/" [é-ü]'
    assert accepts('Aé\U0001f600"\\-/ü', grammar=grammar)
    assert accepts('Aé\U0001f600"\\]/ö', grammar=grammar)
    assert not accepts('Aé\U0001f600"\\x/ö', grammar=grammar)


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ('a ::= "x"', "`root ::="),
        ("root ::= b", "no rule 'b'"),
        ('root ::= "x\n', "line 2: the text ends"),
        ("root ::= [a-", "line 1: the text ends"),
        ("root ::= []", "holds no character"),
        ("root ::= [z-a]", "backwards"),
        ('root ::= "a"{3,2}', "in order"),
        ('root ::= "a"{99999}', "at most 10000"),
        ('root ::= "a"{,}', "{m,n}"),
        (r'root ::= "\q"', "no escape"),
        (r'root ::= "\ud800"', "no character"),
        ('root ::= ("a"', ") is missing"),
        ('root ::= "a" )', "line 1: ')' is out of place"),
        ('root ::= "a"\n\n= "b"', "line 3: a rule begins"),
        ('root ::= "a"\nb : "c"', "line 2: ::= is missing"),
    ],
)
def test_mistakes_are_named(grammar: str, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        to_lark(grammar)
    assert says in str(caught.value)


def test_token_references_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="token references"):
        to_lark("root ::= <think> .*")


def test_lark_is_no_gbnf() -> None:
    assert not is_gbnf('start: "::="')
    assert is_gbnf('# c\nroot ::= "a"')
