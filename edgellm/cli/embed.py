"""`edgellm embed`: vectors of texts as JSON lines, or how well documents answer a query.

Next hop: `..llm` for LLM.embed and LLM.rerank.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import OptionError
from . import loading
from .options import MODEL_HELP, add_loading, check_text, engine_config, read_text
from .parser import Parser

if TYPE_CHECKING:
    from ..llm import LLM

USAGE = 'MODEL ["TEXT" ...] [options]'
DESCRIPTION = (
    "Print a vector for each TEXT, one JSON object a line, in order. Without TEXT, or with -, each\n"
    "line of standard input is a text. Texts that mean the same have vectors that point the same way:\n"
    "compare them by dot product. With --query, say instead how well each TEXT answers it, which\n"
    "takes a reranker."
)
EXAMPLES = """\
  edgellm embed all-minilm.gguf "A cat sleeps." "A dog barks."
  edgellm embed nomic.gguf --prefix "search_document: " < lines.txt > vectors.jsonl
  edgellm embed qwen3-embedding.gguf "Some text" --pooling last --no-normalize
  edgellm embed bge-reranker.gguf --query "What do cats eat?" "Cats eat mice." "Trees grow."
  edgellm embed bge-reranker.gguf --query "cats" --sort < documents.txt

output:
  {"index": 0, "embedding": [0.0123, ...]}        index: of the text, from 0
  {"index": 0, "score": 4.21}                     with --query; --sort puts the best first"""
AT_ONCE = 256
"""Texts between two pieces of output: enough to fill every batch."""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="the texts (default: lines of standard input)")
    pooling = "mean of all tokens, or the vector of the first (cls) or last one (default: as the file says)"
    parser.add_argument("--pooling", metavar="mean|cls|last", help=pooling)
    parser.add_argument("--no-normalize", action="store_true", help="leave vectors as long as they are, not 1")
    prefix = 'put before every TEXT; models are trained with one, as "search_document: " (their page says which)'
    parser.add_argument("--prefix", default="", metavar="TEXT", help=prefix)
    parser.add_argument("--tokens", action="store_true", help="a list of vectors, one for each token of the text")
    parser.add_argument("--query", metavar="TEXT", help="score each TEXT as an answer to this")
    parser.add_argument("--sort", action="store_true", help="with --query: best first, all at the end")
    add_loading(parser)


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    config = engine_config(args)
    if args.sort and args.query is None:
        raise OptionError("--sort orders scores: it needs --query")
    if args.query is not None and (args.pooling or args.tokens or args.no_normalize):
        raise OptionError("--query prints scores: --pooling, --tokens and --no-normalize are about vectors")
    if args.tokens and args.pooling:
        raise OptionError("--tokens prints the vector of every token: nothing is pooled")
    texts = _texts(args)
    with loading.load_llm(args.model, config) as llm:
        if args.query is not None:
            _print_scores(llm, args, texts)
        else:
            _print_vectors(llm, args, texts)
    return 0


def _texts(args: Namespace) -> list[str]:
    if args.texts and args.texts != ["-"]:
        texts = [check_text("TEXT", text) for text in args.texts]
    else:
        texts = read_text("-" if args.texts else None).split("\n")
    return [args.prefix + text for text in texts]


def _print_vectors(llm: LLM, args: Namespace, texts: Iterable[str]) -> None:
    normalize, index = not args.no_normalize, 0
    for some in _pieces(texts):
        if args.tokens:
            found = [rows.tolist() for rows in llm.embed_tokens(some, normalize=normalize)]
        else:
            found = llm.embed(some, pooling=args.pooling, normalize=normalize).tolist()
        for vector in found:
            print(json.dumps({"index": index, "embedding": vector}), flush=True)
            index += 1


def _print_scores(llm: LLM, args: Namespace, texts: list[str]) -> None:
    query = check_text("--query", args.query)
    if args.sort:
        for place, score in llm.rerank(query, texts).top(len(texts)):
            print(json.dumps({"index": place, "score": score}))
        return
    index = 0
    for some in _pieces(texts):
        for score in llm.rerank(query, some).scores.tolist():
            print(json.dumps({"index": index, "score": score}), flush=True)
            index += 1


def _pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    """Some texts at a time, so that the first vectors come early and few are held."""
    rest = iter(texts)
    while some := list(islice(rest, AT_ONCE)):
        yield some
