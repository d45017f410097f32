"""The chat page in a headless Chromium, as people use it: with a mouse, by the keyboard alone, with a screen reader."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asked_of_clients import WEATHER_TOLD
from reciting_model import write_reciting
from running_server import running

from edgellm.async_llm import AsyncLLM
from edgellm.server.models import ServedModels
from edgellm.server.settings import ServerSettings

pytestmark = pytest.mark.browser
CHROMIUM = os.environ.get("EDGELLM_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
CONTEXT = 16384
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def models(sources: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> ServedModels:
    """Those of other clients, and one whose answer never ends."""
    endless = write_reciting(tmp_path_factory.mktemp("endless") / "endless.gguf", True, CONTEXT)
    options = {"threads": 2, "max_context": CONTEXT, "max_sequences": 4}
    return ServedModels({"caller": sources["caller"], "endless": str(endless), "tiny": sources["tiny"]}, options)


@pytest.fixture(scope="module")
def address(models: ServedModels) -> Iterator[str]:
    with running(models, ServerSettings(port=0)) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is missing (pip install -e '.[clients]')"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium here (Debian: apt install chromium; or EDGELLM_CHROMIUM names one)")
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Open]:
    """Opens the page as somebody who was never there, and sees to it that it makes no fault and asks nobody else."""
    faults: list[str] = []
    contexts = []

    def visit(at: str = address, has_failures: bool = False, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(15_000)
        page = context.new_page()
        if not has_failures:  # the browser writes of each answer that is an error
            page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: request.url.startswith(at) or faults.append(request.url))
        page.goto(at)
        page.get_by_role("status").filter(has_text=re.compile(r"\S")).wait_for()
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not faults


def ask(page: Any, text: str) -> None:
    page.get_by_role("textbox", name="Your message").fill(text)
    page.get_by_role("button", name="Send").click()


def wait_for_end(page: Any, said: str = "Ready.") -> Any:
    """The last answer, once it has ended."""
    page.get_by_role("button", name="Stop").wait_for(state="hidden")
    page.get_by_role("status").filter(has_text=said).wait_for()
    return page.get_by_role("article").last


def choose(page: Any, **values: str) -> None:
    """Set what stands in the settings, by the ids of the fields."""
    if not page.locator("#more").evaluate("details => details.open"):
        page.get_by_text("Settings").click()
    for name, value in values.items():
        page.fill(f"#{name}", value)
        page.press(f"#{name}", "Tab")


def test_a_conversation_and_its_statistics(visit: Open) -> None:
    page = visit()
    ask(page, "the **and** <b>is</b>")
    answer = wait_for_end(page)
    assert page.get_by_role("article", name="You").locator("p").inner_text() == "the **and** <b>is</b>", (
        "text stays text"
    )
    assert answer.locator("p").inner_text() == WEATHER_TOLD
    assert re.match(r"5 tokens, [\d.]+ a second.*; \d+ read", answer.locator("footer").inner_text())
    assert page.locator("#spoken").inner_text() == WEATHER_TOLD, "a screen reader hears the answer once"
    ask(page, "and")
    assert "in the cache" in wait_for_end(page).locator("footer").inner_text()
    assert page.get_by_role("article").count() == 4


def test_an_answer_has_a_form_but_is_never_read_as_html(visit: Open) -> None:
    page = visit()
    code = "if a:\n    <script>alert(1)</script>"
    said = f"Use `a < b` or **<i>this</i>**:\n\n```python\n{code}\n```\n\n<img src=x onerror=alert(1)>"
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": said, "reasoning": "<b>so</b>"}]
    kept = [{"id": "1", "title": "<u>Hi</u>", "messages": messages}, {"title": "of another program"}]
    page.evaluate("kept => localStorage.setItem('edgellm.conversations', JSON.stringify(kept))", kept)
    page.reload()
    answer = page.get_by_role("article").last
    assert answer.locator("pre").inner_text() == code
    assert answer.locator("p code").inner_text() == "a < b" and answer.locator("strong").inner_text() == "<i>this</i>"
    assert answer.locator("p").last.inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator("article :is(img, script, i, b), nav u").count() == 0 and page.locator("nav li").count() == 1


def test_an_answer_comes_bit_by_bit_and_is_stopped(visit: Open) -> None:
    page = visit()
    page.get_by_role("combobox", name="Model").select_option("endless")
    ask(page, "on and on")
    grown = page.get_by_role("article").last.locator("p")
    first = len(grown.inner_text())
    page.wait_for_function(
        "first => document.querySelector('article:last-child p').textContent.length > first", arg=first
    )
    assert page.get_by_role("status").inner_text() == "Answering…"
    assert (
        page.get_by_role("button", name="Send").is_disabled()
        and page.get_by_role("button", name="Answer again").is_disabled()
    )
    page.get_by_role("button", name="Stop").click()
    stopped = wait_for_end(page, "Stopped.")
    assert stopped.locator("footer").inner_text() == "stopped"
    text = stopped.locator("p").inner_text()
    assert text.startswith(WEATHER_TOLD * 2) and len(text) < 4 * CONTEXT
    page.get_by_role("combobox", name="Model").select_option("caller")
    page.get_by_role("button", name="Answer again").click()
    assert wait_for_end(page).locator("p").inner_text() == WEATHER_TOLD
    assert page.get_by_role("article").count() == 2, "in place of the one that was stopped"


def test_settings_are_what_is_asked_for(visit: Open) -> None:
    page = visit()
    bodies: list[dict[str, Any]] = []
    page.on("request", lambda request: request.method == "POST" and bodies.append(request.post_data_json))
    page.get_by_role("combobox", name="Model").select_option("tiny")
    choose(page, system="Be brief.", temperature="1.5", top_p="0.9", top_k="50", max_tokens="7", seed="3")
    ask(page, "Hi")
    first = wait_for_end(page)
    said = first.inner_text().split(" a second")[0].split(",")[0]
    page.get_by_role("button", name="Answer again").click()
    assert wait_for_end(page).inner_text().startswith(said), "the same seed"
    asked = {"model": "tiny", "temperature": 1.5, "top_p": 0.9, "top_k": 50, "max_tokens": 7, "seed": 3}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    assert bodies == [{**asked, **stream, "messages": messages}] * 2
    page.get_by_role("combobox", name="Model").select_option("endless")
    choose(page, system="", temperature="", top_p="", top_k="", max_tokens="3", seed="")
    ask(page, "and")
    assert "cut at the longest answer" in wait_for_end(page).inner_text()
    assert set(bodies[2]) == {"model", "messages", "max_tokens", *stream} and bodies[2]["messages"][0] == messages[1]


def test_conversations_and_settings_are_kept_but_no_key(visit: Open) -> None:
    page = visit()
    page.get_by_role("combobox", name="Model").select_option("endless")
    choose(page, max_tokens="4", system="Be brief.", key="secret")
    for text in ("first", "second"):
        page.get_by_role("button", name="New conversation").first.click()
        ask(page, text)
        wait_for_end(page)
    page.reload()
    page.get_by_role("status").filter(has_text="Ready.").wait_for()
    assert page.get_by_role("combobox", name="Model").input_value() == "endless"
    assert [page.input_value(f"#{name}") for name in ("max_tokens", "system", "key")] == ["4", "Be brief.", ""]
    assert "secret" not in page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    assert page.get_by_role("article", name="You").inner_text().endswith("second")
    page.get_by_role("button", name="first", exact=True).click()
    assert page.get_by_role("article", name="You").inner_text().endswith("first")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Delete first").click()
    assert page.get_by_role("button", name="first", exact=True).is_visible(), "asked first, and told no"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete first").click()
    page.reload()
    assert page.locator("nav li").count() == 1


def test_two_pages_at_once_keep_both_conversations(visit: Open) -> None:
    one = visit()
    other = one.context.new_page()
    other.goto(one.url)
    other.get_by_role("status").filter(has_text="Ready.").wait_for()
    for page, text in ((one, "from one"), (other, "from the other")):
        ask(page, text)
        wait_for_end(page)
    one.get_by_role("button", name="from the other", exact=True).wait_for()
    one.reload()
    assert one.locator("nav li").count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_can_be_read_in_both_schemes_and_on_a_phone(visit: Open, scheme: str, width: int) -> None:
    page = visit(color_scheme=scheme, viewport={"width": width, "height": 740})
    ask(page, "a" * 200)
    wait_for_end(page)
    choose(page, system="Be brief.")
    is_dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 23, 26)"
    assert is_dark == (scheme == "dark")
    faint = {
        name: ratio for name, ratio in page.evaluate(CONTRASTS).items() if ratio < (3 if "border" in name else 4.5)
    }
    assert not faint, "WCAG 2.2, 1.4.3 and 1.4.11"
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth && scrollY === 0")
    outside = "[...document.querySelectorAll('main *')].filter((e) => e.checkVisibility() && !e.closest('.hidden'))"
    assert (
        page.evaluate(f"{outside}.filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML)")
        == []
    )
    for name in ("Send", "Answer again"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= 740
    menu, new = page.get_by_role("button", name="Conversations"), page.get_by_role("button", name="New conversation")
    if width == 360:
        assert new.is_hidden() and menu.get_attribute("aria-expanded") == "false"
        menu.click()
        assert menu.get_attribute("aria-expanded") == "true"
        assert page.evaluate("document.activeElement.id") == "new"
        new.click()
        assert new.is_hidden() and page.get_by_role("article").count() == 0
    else:
        assert menu.is_hidden() and new.is_visible()


# The contrast of what is written to what is behind it, and of the borders of fields to what they stand on.
CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = parse(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const found = {};
  const texts = ["article.user p", "article.assistant p", "article h2", "article footer", "#status", "#send", "#again"];
  for (const path of [...texts, "summary", "#settings label", "nav li button", "#text", "#model"]) {
    const node = document.querySelector(path);
    found[path] = contrast(parse(getComputedStyle(node).color), behind(node));
  }
  const text = document.querySelector("#text");
  found.placeholder = contrast(parse(getComputedStyle(text, "::placeholder").color), behind(text));
  for (const path of ["#text", "#model", "#temperature", "#again"]) {
    const node = document.querySelector(path);
    found[path + " border"] = contrast(parse(getComputedStyle(node).borderColor), behind(node.parentElement));
  }
  return found;
}"""


def test_the_keyboard_is_enough(visit: Open) -> None:
    page = visit()

    def focused() -> str:
        return str(page.evaluate("document.activeElement.id || document.activeElement.className"))

    def tab_to(name: str, key: str = "Tab") -> None:
        for _ in range(30):
            if focused() == name:
                return
            page.keyboard.press(key)
        raise AssertionError(f"{name} is not reached")

    assert focused() == "text", "one can write at once"
    tab_to("skip", "Shift+Tab")
    page.keyboard.press("Enter")
    assert focused() == "text"
    tab_to("model", "Shift+Tab")
    page.keyboard.press("e")  # chooses "endless"
    assert page.get_by_role("combobox", name="Model").input_value() == "endless"
    tab_to("text")
    page.keyboard.type("one line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("and another")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Stop").wait_for()
    page.locator("article.assistant p").wait_for()
    page.keyboard.press("Escape")
    wait_for_end(page, "Stopped.")
    assert (
        focused() == "text"
        and page.get_by_role("article", name="You").locator("p").inner_text() == "one line\nand another"
    )
    tab_to("again")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Stop").wait_for()
    tab_to("stop", "Shift+Tab")
    page.keyboard.press("Space")
    wait_for_end(page, "Stopped.")
    tab_to("new", "Shift+Tab")
    page.keyboard.press("Enter")
    assert focused() == "text" and page.get_by_role("article").count() == 0


def test_a_screen_reader_finds_names_for_all(visit: Open) -> None:
    page = visit()
    for role, name in (
        ("navigation", "Conversations"),
        ("log", "Messages"),
        ("textbox", "Your message"),
        ("combobox", "Model"),
        ("button", "New conversation"),
        ("button", "Send"),
        ("button", "Answer again"),
    ):
        assert page.get_by_role(role, name=name).count() == 1, (role, name)
    assert page.get_by_role("main").count() == 1 and page.locator("html").get_attribute("lang") == "en"
    choose(page)
    for name in ("Temperature", "Top-p", "Top-k", "Longest answer", "Seed"):
        assert page.get_by_role("spinbutton", name=name).count() == 1, name
    assert page.get_by_role("textbox", name="System prompt").count() == page.get_by_label("API key").count() == 1
    ask(page, "Hi")
    wait_for_end(page)
    assert page.get_by_role("article", name="You").count() == page.get_by_role("article", name="caller").count() == 1
    assert page.get_by_role("button", name="Delete Hi").count() == 1
    nameless = "[...document.querySelectorAll('button, input, textarea, select')].filter("
    nameless += "(e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)"
    assert page.evaluate(nameless) == []


def test_a_model_that_loads_says_so(visit: Open, sources: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    load, is_told = AsyncLLM.load, threading.Event()

    async def slow(*arguments: Any, progress: Callable[[str, int, int], None], **options: Any) -> AsyncLLM:
        progress("compile", 0, 1)
        await asyncio.to_thread(is_told.wait, 20)
        return await load(*arguments, progress=progress, **options)

    monkeypatch.setattr(AsyncLLM, "load", slow)
    served = ServedModels({"caller": sources["caller"]}, {"threads": 1, "max_context": 256})
    with running(served, ServerSettings(port=0)) as at:
        page = visit(at)
        ask(page, "Hi")
        page.get_by_role("status").filter(has_text="Loading the model: compile").wait_for()
        is_told.set()
        assert wait_for_end(page).locator("p").inner_text() == WEATHER_TOLD


def test_what_goes_wrong_is_said(visit: Open, sources: dict[str, str]) -> None:
    served = ServedModels({"tiny": sources["tiny"]}, {"threads": 1, "max_context": 256})
    with running(served, ServerSettings(port=0, api_key="right")) as locked:
        page = visit(locked, has_failures=True)
        status = page.get_by_role("status")
        assert "API key is missing" in status.inner_text()
        assert page.get_by_label("API key").is_visible(), "where it is written"
        choose(page, key="right")
        status.filter(has_text="Ready.").wait_for()
        choose(page, max_tokens="4")
        ask(page, "word " * 200)
        status.filter(has_text="max_context is 256").wait_for()
        assert page.get_by_role("article").count() == 1 and page.get_by_role("button", name="Send").is_enabled()
        page.get_by_role("button", name="New conversation").click()
        ask(page, "Hi")
        wait_for_end(page)
    ask(page, "and")
    status.filter(has_text="The server does not answer").wait_for()
