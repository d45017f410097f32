"""Make docs/desktop.png anew: the desktop demo holds a real conversation, without a screen, and is grabbed.

    python tools/screenshot_desktop.py [FILE] [--model MODEL]

Answers are those of temperature 0, so they are the same every time; speeds are this machine's. The letters are those of
the system's sans-serif font (Debian: fonts-dejavu-core).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_SCALE_FACTOR", "1.5")

from desktop_demo import ChatWindow
from PySide6.QtWidgets import QApplication

FILE = Path(__file__).resolve().parent.parent / "docs" / "desktop.png"
QUESTIONS = (
    "What is the capital of France?",
    "Give me three tips for writing clear code, as a list.",
    "What is a lighthouse for?",
)
LAST_LETTERS = 200  # how far into the last answer the picture is taken


def work_until(condition: Callable[[], bool]) -> None:
    """Let the window work until something is so."""
    while not condition():
        QApplication.processEvents()
        time.sleep(0.005)


def take_picture(window: ChatWindow, path: Path) -> None:
    """Hold the conversation, and take the picture while the last answer is coming."""
    window.load_model()
    work_until(window.load.isEnabled)
    if window.talker.llm is None:
        raise SystemExit(f"screenshot_desktop: {window.status.text()}")
    window.temperature.setValue(0)
    for question in QUESTIONS:
        window.prompt.setPlainText(question)
        window.send_or_stop()
        if question != QUESTIONS[-1]:
            work_until(window.load.isEnabled)
    work_until(lambda: len(window.conversation.messages[-1]["content"]) > LAST_LETTERS)
    QApplication.processEvents()  # what is laid out now is drawn with the next event
    if not window.grab().save(str(path)):
        raise SystemExit(f"screenshot_desktop: {path} cannot be written")


def main() -> None:
    """Parse the options, take the picture."""
    parser = argparse.ArgumentParser(description="Make the picture of the desktop demo anew.")
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--model", default="smollm2")
    args = parser.parse_args()
    app = QApplication(sys.argv[:1])
    app.setStyle("fusion")
    window = ChatWindow(args.model)
    window.resize(760, 510)
    window.show()
    take_picture(window, args.file)
    window.close()
    print(f"{args.file}: {args.file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
