"""The OpenAPI document says what there is: every route, every field that is read, and answers as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from running_server import OPTIONS, running
from tiny_models import write_tiny

from edgellm.server.app import ROUTES
from edgellm.server.fields import Fields
from edgellm.server.models import ServedModels
from edgellm.server.openapi import make_document
from edgellm.server.settings import ServerSettings

CHAT = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": CHAT,
        "max_tokens": 3,
        "logprobs": True,
        "tools": TOOLS,
        "tool_choice": "none",
    },
    "/v1/completions": {"prompt": "the", "max_tokens": 3, "logprobs": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 3, "tools": [{"type": "function", "name": "f"}]},
    "/v1/embeddings": {"input": ["the", [70]]},
    "/tokenize": {"content": "the"},
    "/detokenize": {"tokens": [70]},
    "/apply-template": {"messages": CHAT},
    "/api/chat": {"messages": CHAT, "stream": False, "options": {"num_predict": 3}, "tools": TOOLS},
    "/api/generate": {"prompt": "the", "stream": False, "options": {"num_predict": 3}},
    "/api/embed": {"input": ["the", [70]]},
    "/api/embeddings": {"prompt": "the"},
    "/api/show": {"model": "tiny"},
}
"""A full request to each route: nothing that is read only sometimes is left out."""
RENAMED = {"max_tokens", "max_completion_tokens", "response_format"}
"""What /v1/responses calls otherwise, and reads by the reader of chats."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return make_document(ROUTES, ServerSettings())


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server whose context holds what a template says of tools."""
    path = write_tiny(tmp_path_factory.mktemp("roomy") / "tiny.gguf", vocab=300, context=1024)
    served = ServedModels({"tiny": str(path)}, OPTIONS | {"max_context": 1024})
    with running(served, ServerSettings(port=0)) as address, httpx.Client(base_url=address, timeout=60) as client:
        while client.get("/health").status_code != 200:
            threading.Event().wait(0.05)
        yield client


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Fields, str]]]:
    """Fields and the names that they were asked for, as it happens."""
    found: list[tuple[Fields, str]] = []
    get = Fields.get

    def noted(self: Fields, name: str) -> Any:
        found.append((self, name))
        return get(self, name)

    monkeypatch.setattr(Fields, "get", noted)
    yield found


def body_of(document: dict[str, Any], path: str) -> dict[str, Any]:
    schema: dict[str, Any] = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return schema


def test_every_route_is_there(client: httpx.Client, document: dict[str, Any]) -> None:
    assert client.get("/openapi.json").json() == document
    told = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert told == {(method, path.replace("{name:path}", "{name}")) for method, path, _ in ROUTES}
    assert all(operation["summary"] for item in document["paths"].values() for operation in item.values())
    assert {path for method, path, _ in ROUTES if method == "POST"} == set(BODIES)


def test_every_schema_is_one(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for operation in item.values():
            contents = [answer["content"] for answer in operation["responses"].values()]
            contents += [operation["requestBody"]["content"]] if "requestBody" in operation else []
            for content in contents:
                for media in content.values():
                    jsonschema.Draft202012Validator.check_schema(media["schema"])


@pytest.mark.parametrize("path", BODIES)
def test_every_field_that_is_read_is_described(
    roomy: httpx.Client, document: dict[str, Any], asked_for: list[tuple[Fields, str]], path: str
) -> None:
    body, outer, inner = body_of(document, path), set[str](), set[str]()
    without = {k: v for k, v in BODIES[path].items() if k not in ("max_tokens", "max_output_tokens", "model")}
    for asked in (BODIES[path], without | {"stream": path.startswith("/v1"), "stop": [" ", *"abcdeiost"]}):
        del asked_for[:]
        answer = roomy.post(path, json=asked)
        assert answer.status_code == 200, answer.text
        first = asked_for[0][0]
        outer |= {name for fields, name in asked_for if fields is first}
        inner |= {name for fields, name in asked_for if fields is not first}
    assert outer and outer <= body["properties"].keys()
    described = body["properties"].get("options", body)["properties"].keys() | RENAMED
    assert inner <= described, "options of Ollama's, and what responses shares with chats"
    known = outer | inner | (RENAMED if path == "/v1/responses" else {"num_predict"})
    missing = {name for name in body["properties"] if name not in known} - {"format"}
    assert not missing, "described and never read"
    jsonschema.validate(BODIES[path], body)


@pytest.mark.parametrize(
    "path", [*BODIES, "/v1/models", "/v1/models/tiny", "/health", "/props", "/api/tags", "/api/ps"]
)
def test_answers_are_as_described(roomy: httpx.Client, document: dict[str, Any], path: str) -> None:
    method = "POST" if path in BODIES else "GET"
    answer = roomy.request(method, path, json=BODIES.get(path))
    operation = document["paths"][path.replace("/tiny", "/{name}")][method.lower()]
    kind = answer.headers["content-type"].partition(";")[0]
    jsonschema.validate(answer.json(), operation["responses"]["200"]["content"][kind]["schema"])
    if method == "POST":
        bad = roomy.post(path, content=b"[]", headers={"content-type": "application/json"})
        assert bad.status_code == 400
        refused = operation["responses"]["400"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        jsonschema.validate(bad.json(), document["components"]["schemas"][refused])


def test_it_needs_the_key(serve: Callable[..., Any]) -> None:
    with serve(api_key="secret") as address, httpx.Client(base_url=address) as client:
        assert client.get("/openapi.json").status_code == 401
        told = client.get("/openapi.json", headers={"authorization": "Bearer secret"}).json()
        assert told["security"] == [{"key": []}] and told["paths"]["/health"]["get"]["security"] == []
