"""The chat page: what it is made of, and how it behaves in a browser where there is one."""

from __future__ import annotations

import os
import re
import shutil

import httpx
import pytest

CHROMIUM = os.environ.get("EDGELLM_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def test_the_page_asks_nothing_of_others(client: httpx.Client) -> None:
    for path in ("/", "/page/chat.js", "/page/chat.css"):
        answer = client.get(path)
        assert answer.status_code == 200 and "default-src 'none'" in answer.headers["content-security-policy"]
        assert not re.search(r"https?://|//[a-z]+[.]|innerHTML|eval[(]", answer.text)
    assert client.get("/page/../app.py").status_code == 404 and client.get("/page/").status_code == 404


@pytest.mark.browser
def test_a_conversation_in_a_browser(address: str) -> None:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium here (Debian: apt install chromium; or EDGELLM_CHROMIUM names one)")
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        faults: list[str] = []
        asked: set[str] = set()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: asked.add(request.url))
        page.goto(address)
        page.locator("#model option").first.wait_for(state="attached")
        page.click("summary")
        page.fill("#max_tokens", "12")
        page.press("#max_tokens", "Tab")
        page.fill("#text", "the and <b>is</b>")
        page.press("#text", "Enter")
        page.locator("article.assistant footer").wait_for()
        assert page.locator("article.user p").inner_text() == "the and <b>is</b>", "text stays text"
        assert "tokens" in page.locator("article.assistant footer").inner_text()
        page.click("#again")
        page.locator("article.assistant footer").wait_for()
        assert page.locator("article").count() == 2
        page.fill("#max_tokens", "100000")
        page.press("#max_tokens", "Tab")
        page.fill("#text", "on and on")
        page.press("#text", "Enter")
        page.locator("#stop").wait_for()
        page.keyboard.press("Escape")
        page.locator("#stop").wait_for(state="hidden")
        page.reload()
        page.locator("article").first.wait_for()
        assert page.locator("article.user").count() == 2, "conversations are kept"
        assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "block"
        browser.close()
    assert not faults and all(url.startswith(address) for url in asked)
