"""tools/desktop_demo.py, without a screen: the window answers while the model computes, Stop stops, leaving leaves."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_models import write_tiny

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
try:
    import desktop_demo
    from PySide6.QtCore import QEvent, Qt, QTimer
    from PySide6.QtGui import QKeyEvent
    from PySide6.QtWidgets import QApplication
except ImportError as missing:
    libraries = "libegl1 libgl1 libxkbcommon0 libdbus-1-3 libfontconfig1"
    pytest.skip(f"{missing} (pip install -e '.[demo]'; on Debian also {libraries})", allow_module_level=True)

pytestmark = pytest.mark.desktop

QUIET = "This plugin does not support propagateSizeHints()\n"  # said by the platform without a screen
LONG = 3000


@pytest.fixture(scope="module")
def app() -> QApplication:
    return QApplication.instance() or QApplication([])  # type: ignore[return-value]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that can talk for some seconds; its end mark is as improbable as any other id."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny(path, hidden=256, ffn=768, layers=8, context=4096)
    desktop_demo.LLM.load(path).close()  # its kernels are there now
    return path


@pytest.fixture
def window(app: QApplication) -> Iterator[desktop_demo.ChatWindow]:
    window = desktop_demo.ChatWindow()
    window.show()
    yield window
    window.close()
    assert not window.talker.is_busy, "a thread went on after the window"


def wait(condition: Callable[[], object], seconds: float = 300) -> None:
    """Let the window work until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        QApplication.processEvents()
        time.sleep(0.002)


def load(window: desktop_demo.ChatWindow, model: Path) -> None:
    window.model.setCurrentText(str(model))
    window.load_model()
    wait(window.load.isEnabled)


def ask(window: desktop_demo.ChatWindow, text: str, max_tokens: int = LONG) -> None:
    window.max_tokens.setValue(max_tokens)
    window.prompt.setPlainText(text)
    window.send_or_stop()


def is_answering(window: desktop_demo.ChatWindow) -> bool:  # or loading
    return window.send.text() == "Stop"


def has_text(window: desktop_demo.ChatWindow) -> bool:
    return window.conversation.messages[-1]["content"] not in ("", "…")


def press(window: desktop_demo.ChatWindow, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    event = QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Return, modifiers, "\n")
    QApplication.sendEvent(window.prompt, event)


def test_a_conversation(window: desktop_demo.ChatWindow, model: Path) -> None:
    assert not window.send.isEnabled()
    load(window, model)
    assert f"{model}: 4096 tokens of context" in window.status.text() and not window.bar.isVisible()
    window.prompt.setPlainText("hello")
    press(window, Qt.KeyboardModifier.ShiftModifier)
    assert not is_answering(window) and "\n" in window.prompt.toPlainText(), "Shift+Enter begins a line"
    window.max_tokens.setValue(12)
    press(window)
    assert is_answering(window) and not window.new.isEnabled() and window.prompt.toPlainText() == ""
    wait(lambda: not is_answering(window))
    roles = [message["role"] for message in window.conversation.messages]
    assert roles == ["user", "assistant"] and has_text(window)
    assert "per second" in window.status.text()
    ask(window, "again", 4)
    wait(lambda: not is_answering(window))
    assert len(window.conversation.messages) == 4
    window.new.click()
    assert window.conversation.messages == []


def test_the_window_stays_responsive(window: desktop_demo.ChatWindow, model: Path) -> None:
    load(window, model)
    ticks: list[float] = []
    timer = QTimer(interval=16)  # 60 Hz
    timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
    timer.start()
    ask(window, "hello " * 200)
    wait(lambda: (len(ticks) > 40 and has_text(window)) or not is_answering(window))
    timer.stop()
    assert is_answering(window), f"the answer was over after {len(ticks)} ticks: {window.status.text()}"
    gaps = sorted(b - a for a, b in itertools.pairwise(ticks))
    assert gaps[len(gaps) // 2] < 0.5, f"{gaps}: half of the ticks come late, even for a busy machine"


@pytest.mark.parametrize("when", ["before the first piece", "in the middle"])
def test_stop(when: str, window: desktop_demo.ChatWindow, model: Path) -> None:
    load(window, model)
    ask(window, "hello " * 300)
    if when == "in the middle":
        wait(lambda: has_text(window))
    window.send_or_stop()
    began = time.monotonic()
    wait(lambda: not is_answering(window))
    assert time.monotonic() - began < 30
    assert "stopped" in window.status.text(), window.status.text()
    assert [m["role"] for m in window.conversation.messages] == ["user", "assistant"]
    assert window.send.isEnabled(), "and one can ask on"
    ask(window, "and now", 3)
    wait(lambda: not is_answering(window))
    assert "3 tokens" in window.status.text()


def test_loading_can_be_stopped(window: desktop_demo.ChatWindow, model: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGELLM_HOME", str(tmp_path))  # nothing is compiled there: it takes long enough
        patch.setattr("edgellm.kernels.cpu.objects._loaded", {})
        window.model.setCurrentText(str(model))
        window.load_model()
        wait(lambda: "compile" in window.status.text())
        assert window.send.text() == "Stop"
        window.send_or_stop()
        wait(window.load.isEnabled)
    assert "was not loaded" in window.status.text() and not window.send.isEnabled()
    load(window, model)
    assert "4096 tokens of context" in window.status.text() and window.send.isEnabled()


def test_errors_are_one_line_and_the_window_lives_on(
    window: desktop_demo.ChatWindow, model: Path, tmp_path: Path
) -> None:
    load(window, tmp_path / "nothing.gguf")
    assert "nothing.gguf" in window.status.text() and window.status.objectName() == "error"
    assert not window.send.isEnabled()
    load(window, write_tiny(tmp_path / "base.gguf", drop=["tokenizer.chat_template"]))
    ask(window, "hello")
    wait(lambda: not is_answering(window))
    assert "no chat template" in window.status.text() and window.status.objectName() == "error"
    assert window.prompt.toPlainText() == "hello" and window.conversation.messages == [], "the question comes back"
    load(window, model)
    ask(window, "hello " * 5000)
    wait(lambda: not is_answering(window))
    assert "max_context is 4096" in window.status.text() and "\n" not in window.status.text()
    ask(window, "hello", 3)
    wait(lambda: not is_answering(window))
    assert window.status.objectName() == "" and has_text(window)


def test_a_fault_of_ours_is_told(window: desktop_demo.ChatWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(desktop_demo.LLM, "load", fail)
    load(window, Path("x"))
    assert window.status.text() == "ZeroDivisionError: by zero"


def test_markup_of_a_model_stays_text(app: QApplication) -> None:
    bubble = desktop_demo.Bubble("assistant", "a **b** <img src='x.png'> &amp;")
    assert "<img" not in bubble.text() and "font-weight" in bubble.text()


# ---- leaving, each time in a process of its own ----
LEAVE = """
import sys, time, threading
sys.path.insert(0, sys.argv[1])
import desktop_demo
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

when, app, window, left = sys.argv[3], QApplication([]), desktop_demo.ChatWindow(sys.argv[2]), []

def leave():
    if not left:
        left.append(time.monotonic())
        QTimer.singleShot(0, window.close)

def loaded(_):
    window.prompt.setPlainText("hello " * 300)
    window.max_tokens.setValue(3000)
    window.send_or_stop()
    if when == "reading":
        leave()

window.talker.loaded.connect(loaded)
if when == "loading":
    window.talker.progressed.connect(lambda *_: leave())
if when == "answering":
    window.talker.pieced.connect(lambda _: leave())
window.show()
window.load_model()
code = app.exec()
print(when, time.monotonic() - left[0], threading.active_count(), flush=True)
sys.exit(code)
"""


@pytest.mark.parametrize("when", ["loading", "compiling", "reading", "answering"])
def test_leaving(when: str, model: Path, tmp_path: Path) -> None:
    tools, environment = Path(desktop_demo.__file__).parent, dict(os.environ)
    if when == "compiling":
        environment["EDGELLM_HOME"] = str(tmp_path)  # nothing is compiled there
    command = [sys.executable, "-W", "error", "-c", LEAVE, tools, model, when.replace("compiling", "loading")]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, env=environment)
    assert (done.returncode, done.stderr.replace(QUIET, "")) == (0, "")
    _, seconds, num_threads = done.stdout.split()
    assert float(seconds) < 20, "leaving waits two seconds at most"
    if when in ("reading", "answering"):  # what loads ends with the process
        assert num_threads == "1", "no thread is left"
