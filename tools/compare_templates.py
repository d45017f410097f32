"""Compare our chat templates with Transformers' own renderer, over llama.cpp's collection of models' templates.

The collection lies inside the source package of llama-cpp-python, fetched from the Python package index by pip (77 MB,
kept by pip's cache), or in a folder given by --folder. Transformers is installed into a throw-away environment, or lives
where --peer-python says. Every conversation is rendered as it is given, without our rules for what a template refuses;
a last column counts what those make of it. Prints a table and, as the last line, one JSON object; exit code 1 where any
text or reason differs.

    python tools/compare_templates.py
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import source_package

from edgellm import EdgeLLMError, Tokenizer
from edgellm.chat_template import ChatTemplate

PACKAGE = "llama-cpp-python==0.3.36"
INSIDE = "vendor/llama.cpp/models/templates/"
PEER = "transformers>=5"
NOW = datetime.datetime(2024, 7, 26, 9, 5, 3)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather of a city, in <b>degrees</b>",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city's name"},
                    "unit": {"type": "string", "enum": ["°C", "°F"], "default": "°C"},
                    "days": {"type": "integer", "description": "How many days"},
                },
                "required": ["city"],
            },
        },
    }
]


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}


def _conversations() -> dict[str, dict[str, Any]]:
    system, user = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " Hi, is it <b>warm</b>? é \n"},
    )
    answer, more = {"role": "assistant", "content": "Where?"}, {"role": "user", "content": "In Paris."}
    thought = {"role": "assistant", "content": "Where?", "reasoning_content": "They want the weather."}
    arguments = {"city": "Paris", "days": 2}
    calls = {"role": "assistant", "content": "", "tool_calls": [_call("get_weather", arguments)]}
    text_calls = calls | {"tool_calls": [_call("get_weather", json.dumps(arguments))]}
    result = {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": '{"degrees": 21}'}
    spoken = {"role": "assistant", "content": "It is 21 °C."}
    asked = [system, more, calls, result]
    return {
        "user": {"messages": [user]},
        "system": {"messages": [system, user]},
        "turns": {"messages": [user, answer, more]},
        "system, turns": {"messages": [system, user, answer, more, spoken, user]},
        "assistant last": {"messages": [user, answer]},
        "two users": {"messages": [user, more]},
        "assistant first": {"messages": [answer, user]},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        "reasoning": {"messages": [user, thought, more]},
        "thinking off": {"messages": [user], "enable_thinking": False},
        "documents": {"messages": [user], "documents": [{"title": "Paris", "text": "A city.", "doc_id": "1"}]},
        "tools": {"messages": [user], "tools": TOOLS},
        "tool call": {"messages": [more, calls], "tools": TOOLS},
        "tool round trip": {"messages": asked, "tools": TOOLS},
        "tool answer": {"messages": [*asked, spoken, user], "tools": TOOLS},
        "arguments as text": {"messages": [system, more, text_calls, result], "tools": TOOLS},
    }


@dataclass(frozen=True)
class Result:
    """One template and conversation. verdict: same, refused alike, or DIFFERENT; adapted: what our rules make of it."""

    template: str
    case: str
    prompt: bool
    verdict: str
    adapted: str
    ours: str
    theirs: str


def fetch(folder: Path) -> Path:
    """Download the source package into `folder`, extract the templates, return where they lie."""

    def place(name: str) -> str | None:
        return Path(name).name if INSIDE in name and name.endswith(".jinja") else None

    return source_package.fetch_files(PACKAGE, folder, folder / "templates", place)


def install_peer(folder: Path) -> Path:
    """Make an environment with Transformers and nothing of ours; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER, "jinja2>=3.1.6"]
    subprocess.run(command, check=True)
    return python


def make_tokenizer() -> Tokenizer:
    """Return a vocabulary with the tokens that Transformers is given."""
    tokens = [*TOKENS.values(), *map(chr, range(33, 127)), "ab"]
    return Tokenizer(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3] * len(TOKENS) + [1] * (len(tokens) - len(TOKENS)),
            "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.unknown_token_id": 2,
            "tokenizer.ggml.padding_token_id": 3,
        }
    )


def make_requests(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (template's name, conversation's name, request in Transformers' words)."""
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text("utf-8")
        for case, request in _conversations().items():
            for prompt in (False, True):
                yield (
                    path.stem,
                    case,
                    {"conversation": request["messages"], "chat_template": source, "add_generation_prompt": prompt}
                    | {name: value for name, value in request.items() if name != "messages"},
                )


def render(request: dict[str, Any], tokenizer: Tokenizer, adapt: bool) -> tuple[str, str]:
    """Return (text, "") or ("", why it was refused) from our side."""
    request = dict(request)
    template = ChatTemplate(request.pop("chat_template"), tokenizer, now=lambda: NOW)
    messages, prompt = request.pop("conversation"), request.pop("add_generation_prompt")
    tools, documents = request.pop("tools", None), request.pop("documents", None)
    try:
        return template.render(messages, prompt, tools, documents, request, adapt=adapt), ""
    except EdgeLLMError as error:
        return "", str(error)


def compare(name: str, case: str, request: dict[str, Any], peer: dict[str, str], tokenizer: Tokenizer) -> Result:
    """Judge one rendering."""
    text, error = render(request, tokenizer, False)
    theirs = " ".join(peer.get("error", "").split())[:300]
    if "text" in peer:
        verdict = "same" if not error and text == peer["text"] else "DIFFERENT"
    else:
        verdict = "refused alike" if error and error.endswith(theirs) else "DIFFERENT"
    adapted = ""
    if error:
        adapted = "refused" if render(request, tokenizer, True)[1] else "adapted"
    return Result(
        name, case, request["add_generation_prompt"], verdict, adapted, text or error, peer.get("text", theirs)
    )


def main() -> int:
    """Run the comparison and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="a folder with *.jinja files (default: fetch llama.cpp's)")
    parser.add_argument("--peer-python", type=Path, help="a Python that has transformers (default: install it)")
    parser.add_argument("--write", type=Path, help="write what Transformers answers, for tests (with our own --folder)")
    parser.add_argument("--show", action="store_true", help="print what differs")
    args = parser.parse_args()
    tokenizer = make_tokenizer()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or fetch(Path(scratch))
        python = args.peer_python or install_peer(Path(scratch) / "peer")
        requests = list(make_requests(folder))
        asked = {"tokens": TOKENS, "now": NOW.isoformat(), "requests": [request for _, _, request in requests]}
        worker = Path(__file__).with_name("template_peer.py")
        command = [str(python), "-W", "ignore", str(worker)]
        done = subprocess.run(command, input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True)
        peer = json.loads(done.stdout)
    if args.write:
        answers = ",\n".join(json.dumps(answer, ensure_ascii=True) for answer in peer["answers"])
        text = f'{{"transformers": "{peer["version"]}", "answers": [\n{answers}\n]}}\n'
        args.write.write_text(text, encoding="utf-8", newline="\n")
    results = [
        compare(name, case, request, answer, tokenizer)
        for (name, case, request), answer in zip(requests, peer["answers"], strict=True)
    ]
    print_table(results, args.show)
    counts = {v: sum(r.verdict == v for r in results) for v in ("same", "refused alike", "DIFFERENT")}
    different = [asdict(r) for r in results if r.verdict == "DIFFERENT"]
    summary = {"transformers": peer["version"], "templates": len({r.template for r in results}), **counts}
    print(json.dumps({**summary, "adapted": sum(r.adapted == "adapted" for r in results), "different": different}))
    return 1 if different or not results else 0


def print_table(results: list[Result], show: bool) -> None:
    """Print one line for each template, and what was refused or differs."""
    print(f"{'template':52} same  refused alike  DIFFERENT  adapted by our rules")
    for name in sorted({r.template for r in results}):
        mine = [r for r in results if r.template == name]
        counts = [sum(r.verdict == v for r in mine) for v in ("same", "refused alike", "DIFFERENT")]
        print(f"{name:52} {counts[0]:4}  {counts[1]:13}  {counts[2]:9}  {sum(r.adapted == 'adapted' for r in mine):20}")
        for result in mine:
            if result.verdict == "DIFFERENT":
                print(f"    {result.case}, add_generation_prompt={result.prompt}: DIFFERENT")
                if show:
                    print(f"      ours   {result.ours!r}\n      theirs {result.theirs!r}")


if __name__ == "__main__":
    sys.exit(main())
