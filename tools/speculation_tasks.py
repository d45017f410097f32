"""Texts for bench_speculation.py: a document of about 600 tokens, what is asked about it, and what to say.

The answers are for models whose own text has no sense.
"""

from __future__ import annotations

from typing import NamedTuple

DOCUMENT = """\
The lighthouse on the northern cape was built in 1867, after three ships had been lost on the rocks in a single winter. \
The first keeper, a retired sailor named Anders Holm, lived there with his wife and four children. Every evening he \
climbed the one hundred and twelve steps to the lamp room, trimmed the wicks, polished the brass, and lit the lamp. The \
light burned rapeseed oil until 1889, when paraffin took its place; paraffin was cheaper and burned brighter, but its soot \
had to be wiped from the glass twice a night. In 1904 the tower received a rotating lens, made in Paris, that floated in a \
bath of mercury and could be turned with one finger. It threw a beam that sailors saw from twenty nautical miles away.

Life at the cape followed the light. Supplies came by boat once a month, if the sea allowed it: flour, coffee, oil, \
newspapers four weeks old, and letters. The children learned to read from the logbook, in which their father wrote down the \
wind, the ships that passed, and the state of the lamp. In the storm of November 1911 the waves broke the windows of the \
ground floor and carried away the boat house. The family moved up into the lamp room and stayed there for two days. The \
light did not go out. The logbook says only: "Wind from the north-west, very strong. Lamp in order."

Electricity reached the cape in 1938. The keepers of that time did not trust it, and kept the paraffin lamp ready beside \
the new one for another twelve years. During the war the light was dark, and the lens was taken apart and hidden in a barn \
twenty kilometres inland. It came back in 1946, with one prism missing, which was never found. The last keeper left in \
1979, when the lamp was connected to a switch in the harbour office. Since then nobody has lived at the cape. The house \
belongs to a society of volunteers, who paint it every spring and open it to visitors in summer. The lens still turns in \
its bath of mercury, and the missing prism still leaves a thin dark line that crosses the bay once in every twelve seconds."""

CODE = '''\
class Config:
    """Settings of the service, each with a default and a check."""

    def __init__(self):
        self.host = "localhost"
        self.port = 8080
        self.timeout = 30
        self.retries = 3
        self.workers = 4
        self.verbose = False

    def set_host(self, value):
        """Set the host."""
        if not isinstance(value, str):
            raise TypeError(f"host must be str, not {type(value).__name__}")
        self.host = value
        return self

    def set_port(self, value):
        """Set the port."""
        if not isinstance(value, int):
            raise TypeError(f"port must be int, not {type(value).__name__}")
        self.port = value
        return self

    def set_timeout(self, value):
        """Set the timeout."""
'''

CODE_REST = '''\
        if not isinstance(value, int):
            raise TypeError(f"timeout must be int, not {type(value).__name__}")
        self.timeout = value
        return self

    def set_retries(self, value):
        """Set the retries."""
        if not isinstance(value, int):
            raise TypeError(f"retries must be int, not {type(value).__name__}")
        self.retries = value
        return self

    def set_workers(self, value):
        """Set the workers."""
        if not isinstance(value, int):
            raise TypeError(f"workers must be int, not {type(value).__name__}")
        self.workers = value
        return self
'''

EDITED = DOCUMENT.replace("1867", "1871").replace("Anders Holm", "Nils Berg").replace("paraffin", "kerosene")

SUMMARY = """\
The text tells the story of the lighthouse on the northern cape, built in 1867 after three ships had been lost on the rocks. \
Its first keeper, Anders Holm, lived there with his wife and four children. The light burned rapeseed oil until 1889, then \
paraffin, and in 1904 the tower received a rotating lens, made in Paris, that floated in a bath of mercury. Electricity \
reached the cape in 1938, the light was dark during the war, and the last keeper left in 1979. Today the house belongs to a \
society of volunteers, who open it to visitors in summer."""

ANSWER = """\
According to the text, the lens was taken apart and hidden in a barn twenty kilometres inland during the war. It came back \
in 1946, with one prism missing, which was never found. The missing prism still leaves a thin dark line that crosses the bay \
once in every twelve seconds."""

STORY = """\
Nobody in the village could say when the fox had first come to the school. She sat under the chestnut tree at eight in the \
morning, as if waiting for the bell, and when the children had gone inside she trotted once around the yard and left through \
the gap in the hedge. Marta, who was nine and noticed everything, began to leave half an apple on the bench. The fox never \
took it while anybody watched. But on Fridays the apple was gone, and in its place lay something small: a button, a feather, \
a blue piece of glass worn smooth by a river that was forty miles away."""


class Task(NamedTuple):
    """text: the prompt. answer: what a scripted model says. raw: no chat template. minimum: wanted speed-up."""

    name: str
    text: str
    answer: str
    minimum: float
    temperature: float = 0.0
    raw: bool = False
    wrong: bool = False


TASKS = (
    Task("copy", f"Repeat the following text exactly, word by word:\n\n{DOCUMENT}", DOCUMENT, 2.2),
    Task("edit", f'Write this text again with "kerosene" for "paraffin":\n\n{DOCUMENT}', EDITED, 2.2),
    Task("summarise", f"Summarise the following text:\n\n{DOCUMENT}", SUMMARY, 1.3),
    Task("answer", f"{DOCUMENT}\n\nWhat happened to the lens during the war? Quote the text.", ANSWER, 1.3),
    Task("code", CODE, CODE_REST, 1.6, raw=True),
    Task("story", "Write a story about a fox who comes to school.", STORY, 0.98, temperature=0.8),
    Task("always wrong", "Write a story about a fox who comes to school.", STORY, 0.97, temperature=0.8, wrong=True),
)
