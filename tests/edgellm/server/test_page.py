"""The chat page: what it is made of. `clients/test_page_in_a_browser.py` uses it."""

from __future__ import annotations

import re

import httpx


def test_the_page_asks_nothing_of_others(client: httpx.Client) -> None:
    for path in ("/", "/page/chat.js", "/page/chat.css"):
        answer = client.get(path)
        assert answer.status_code == 200 and "default-src 'none'" in answer.headers["content-security-policy"]
        assert not re.search(r"https?://|//[a-z]+[.]|innerHTML|eval[(]", answer.text)
    assert client.get("/page/../app.py").status_code == 404 and client.get("/page/").status_code == 404
