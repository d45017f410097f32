"""`edgellm serve`: models behind OpenAI's interface on this machine. Next hop: `..server`."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import fields
from pathlib import Path

from ..config import DEFAULT_MODEL, EngineConfig
from ..errors import OptionError, UnsupportedError
from .options import MODEL_HELP, add_engine, engine_config
from .parser import Parser
from .terminal import note

USAGE = "[MODEL ...] [options]"
DESCRIPTION = (
    "Serve models to programs on this machine, with OpenAI's interface: /v1/chat/completions and the rest.\n"
    "Ctrl-C ends it, after the answers in flight. Needs the extra: pip install 'edgellm[server]'."
)
EXAMPLES = """\
  edgellm serve
  edgellm serve ./model.gguf --port 9000
  edgellm serve smollm2 gemma3-270m --max-num-seqs 8 --keep-alive 600
  edgellm serve --served-model-name gpt-4o-mini        (the name that programs ask for)
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
       -d '{"messages": [{"role": "user", "content": "Hi"}]}'"""
KEY_VARIABLE = "EDGELLM_API_KEY"
DEFAULT_SEQUENCES = 4


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    help = f"{MODEL_HELP}; each is loaded when it is first asked for (default: {DEFAULT_MODEL})"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=help)
    add = parser.add_argument_group("serving").add_argument
    add(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default: %(default)s, this machine alone)",
    )
    add("--port", type=int, default=8080, metavar="N", help="0 takes a free one (default: %(default)s)")
    add("--served-model-name", action="append", metavar="NAME", help="what requests call a model; once for each MODEL")
    key = f"what requests must carry; better in the variable {KEY_VARIABLE}, which other users cannot see"
    add("--api-key", metavar="KEY", help=key)
    add("--cors-origin", action="append", default=[], metavar="ORIGIN", help="a web page that may use this; * for all")
    add("--allowed-host", action="append", default=[], metavar="NAME", help="a name beside localhost to answer to")
    sequences = "answers that are computed at the same time (default: %(default)s)"
    add("--max-num-seqs", type=int, default=DEFAULT_SEQUENCES, metavar="N", help=sequences)
    add("--max-queue", type=int, default=64, metavar="N", help="requests beyond which others are told to come later")
    add("--request-timeout", type=float, metavar="SECONDS", help="most time for an answer (default: any)")
    add("--keep-alive", type=float, metavar="SECONDS", help="unload a model that nobody has asked for so long")
    add_engine(parser)


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    config = engine_config(args)
    try:
        from ..server.models import ServedModels
        from ..server.serving import serve
        from ..server.settings import ServerSettings
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"the server needs {error.name}: pip install 'edgellm[server]'") from None
    settings = ServerSettings(
        host=args.host,
        port=args.port,
        api_key=args.api_key or os.environ.get(KEY_VARIABLE) or None,
        cors_origins=tuple(args.cors_origin),
        allowed_hosts=tuple(args.allowed_host),
        max_queue=args.max_queue,
        request_timeout=args.request_timeout,
        keep_alive=args.keep_alive,
    )
    options = {field.name: getattr(config, field.name) for field in fields(EngineConfig)}
    options["max_sequences"] = args.max_num_seqs
    EngineConfig(**options)  # mistakes first
    sources = name_models(args.models or [DEFAULT_MODEL], args.served_model_name or [])
    if not settings.is_loopback and settings.api_key is None:
        note(f"anybody who can reach {settings.host} can use this server: --api-key asks for a key")

    def told(address: str) -> None:
        note(f"serving {', '.join(sources)} at {address}/v1; Ctrl-C ends it")

    serve(ServedModels(sources, options, settings.keep_alive), settings, told)
    return 0


def name_models(models: list[str], names: list[str]) -> dict[str, str]:
    """{name in requests: what LLM.load takes}; a file is called as its stem unless a name is given."""
    if len(names) > len(models):
        raise OptionError(f"--served-model-name is given {len(names)} times for {len(models)} models")
    found: dict[str, str] = {}
    for i, model in enumerate(models):
        name = names[i] if i < len(names) else Path(model).stem if model.endswith(".gguf") else model
        if name in found:
            raise OptionError(f"two models are called {name!r}; tell them apart with --served-model-name")
        found[name] = model
    return found
