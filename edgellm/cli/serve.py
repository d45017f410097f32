"""`edgellm serve`: models behind OpenAI's interface on this machine. Next hop: `..server`."""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from .. import hub
from ..config import DEFAULT_MODEL, EngineConfig
from ..config_checks import check_int
from ..errors import OptionError, UnsupportedError
from ..server.settings import LOG_FORMATS, LOG_LEVELS, ServerSettings
from .config_file import read_config
from .foreign_words import add_foreign_words, translate
from .options import MODEL_HELP, add_engine, engine_config, named, size
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
STOP_HELP = (
    "how long answers may take to finish when the server is stopped; a second signal cuts them (default: %(default)g)"
)


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    help = f"{MODEL_HELP}; each is loaded when it is first asked for (default: {DEFAULT_MODEL})"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=help)
    default = ServerSettings()
    add = parser.add_argument_group("serving").add_argument
    add(
        "--config", metavar="FILE", help="a YAML file of options, as max-num-seqs: 8; what is given here goes before it"
    )
    where = "where to listen (default: %(default)s, this machine alone)"
    add("--host", default=default.host, metavar="ADDRESS", help=where)
    add("--port", type=int, default=default.port, metavar="N", help="0 takes a free one (default: %(default)s)")
    add("--served-model-name", action="append", metavar="NAME", help="what requests call a model; once for each MODEL")
    key = f"what requests must carry; better in the variable {KEY_VARIABLE}, which other users cannot see"
    add("--api-key", metavar="KEY", help=key)
    add("--cors-origin", action="append", default=[], metavar="ORIGIN", help="a web page that may use this; * for all")
    add("--allowed-host", action="append", default=[], metavar="NAME", help="a name beside localhost to answer to")
    sequences = "answers that are computed at the same time (default: %(default)s)"
    add("--max-num-seqs", type=int, default=DEFAULT_SEQUENCES, metavar="N", help=sequences)
    queue = "requests beyond which others are told to come later (default: %(default)s)"
    add("--max-queue", type=int, default=default.max_queue, metavar="N", help=queue)
    body = f"largest body of a request (default: {default.max_body >> 20}MiB)"
    add("--max-body", type=size, default=default.max_body, metavar="SIZE", help=body)
    nesting = "arrays and objects within each other in a body (default: %(default)s)"
    add("--max-nesting", type=int, default=default.max_nesting, metavar="N", help=nesting)
    add("--request-timeout", type=float, metavar="SECONDS", help="most time for an answer (default: any)")
    add("--stop-timeout", type=float, default=default.stop_timeout, metavar="SECONDS", help=STOP_HELP)
    add("--keep-alive", type=float, metavar="SECONDS", help="unload a model that nobody has asked for so long")
    _add_logs(parser)
    add_engine(parser)
    add_foreign_words(parser)


def _add_logs(parser: Parser) -> None:
    default = ServerSettings()
    add = parser.add_argument_group("the log, on standard error").add_argument
    form = "text for people, json for one object a line (default: %(default)s)"
    add("--log-format", default=default.log_format, metavar="|".join(LOG_FORMATS), help=form)
    level = "the least important of what is said; info has a line for each request (default: %(default)s)"
    add("--log-level", type=str.lower, default=default.log_level, metavar="|".join(LOG_LEVELS), help=level)
    add("--log-content", action="store_true", help="also log what was asked and answered")


def read_words(parser: Parser, words: Sequence[str]) -> Namespace:
    """The options of the command line, before those of a file, before the defaults; all of them in our own words."""
    given = parser.parse_given(words)
    from_file = translate(read_config(given["config"], parser)) if "config" in given else {}
    return Namespace(**{**vars(parser.parse_words([])), **from_file, **translate(given)})


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    config = engine_config(args)
    try:
        from ..server.models import ServedModels
        from ..server.serving import serve
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"the server needs {error.name}: pip install 'edgellm[server]'") from None
    settings = server_settings(args)
    check_int("--max-num-seqs", args.max_num_seqs, 1, 1024)
    options = {field.name: getattr(config, field.name) for field in fields(EngineConfig)}
    options["max_sequences"] = args.max_num_seqs
    sources = name_models(args.models or [DEFAULT_MODEL], args.served_model_name or [])
    check_files(sources.values())

    def told(address: str) -> None:
        say = note if settings.log_format == "text" else logging.getLogger("edgellm.server").warning
        if not settings.is_loopback and settings.api_key is None:
            say(f"anybody who can reach {settings.host} can use this server: --api-key asks for a key")
        say(f"serving {', '.join(sources)} at {address}/v1; Ctrl-C ends it")

    serve(ServedModels(sources, options, settings.keep_alive), settings, told)
    return 0


def check_files(sources: Iterable[str]) -> None:
    """Raise what loading will raise of those that are files here, or nothing at all: a server without a model is of no use."""
    from ..gguf import open_gguf

    for source in sources:
        if not hub.is_elsewhere(source):
            open_gguf(hub.resolve(source)).close()


def server_settings(args: Namespace) -> ServerSettings:
    """Return the checked options of the server itself."""
    return named(
        lambda: ServerSettings(
            host=args.host,
            port=args.port,
            api_key=args.api_key or os.environ.get(KEY_VARIABLE) or None,
            cors_origins=tuple(args.cors_origin),
            allowed_hosts=tuple(args.allowed_host),
            max_body=args.max_body,
            max_nesting=args.max_nesting,
            max_queue=args.max_queue,
            request_timeout=args.request_timeout,
            keep_alive=args.keep_alive,
            stop_timeout=args.stop_timeout,
            log_format=args.log_format,
            log_level=args.log_level,
            log_content=args.log_content,
        )
    )


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
