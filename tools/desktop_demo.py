"""A small chat window on edgellm's public API: what a desktop application does, in one file to copy from.

    pip install -e '.[demo]' && python tools/desktop_demo.py [MODEL]

The pattern: everything of edgellm that takes time is called in a thread of its own, in `Talker`, and tells the window
by Qt signals, which Qt delivers in the window's thread. No widget is touched from another thread, and the window never
waits: kernels compute without Python's lock. Text is gathered and drawn thirty times a second, however fast it comes.
Stopping is `Stream.close`, or `cancel` of what `LLM.load_in_background` returns, from any thread. Leaving stops what runs
and waits for it a moment.

`Talker` knows no widget, the widgets know nothing of edgellm but Completion. docs/desktop.md tells more.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import Future
from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent, QTextDocument
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QDoubleSpinBox,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from edgellm import LLM, Completion, EdgeLLMError, SamplingParams, Stream

MODELS = ("smollm2",)
DRAW_MS = 33
BUBBLE_WIDTH, PADDING = 560, 12
PATIENCE_S = 2.0  # how long leaving waits for a thread
STYLE = f"""
#user {{ background: palette(highlight); color: palette(highlighted-text); }}
#assistant {{ background: palette(base); }}
#user, #assistant {{ border-radius: 10px; padding: 8px {PADDING}px; }}
#error {{ color: #d33; }}
"""

Message = dict[str, str]


class Talker(QObject):
    """Owns the model, and calls it in threads: one call at a time, `is_busy` while it runs.

    Signals, delivered in the window's thread: progressed(stage, done, total), loaded(model's name),
    pieced(text), answered(Completion), failed(one line).
    """

    progressed = Signal(str, "qint64", "qint64")  # type: ignore[arg-type]  # bytes: an int has 32 bits here
    loaded = Signal(str)
    pieced = Signal(str)
    answered = Signal(object)
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.llm: LLM | None = None
        self._loading: Future[LLM] | None = None
        self._thread: threading.Thread | None = None
        self._stream: Stream | None = None
        self._is_stopped = self._has_left = False

    @property
    def is_busy(self) -> bool:
        """True while a model is being loaded or an answer made."""
        is_loading = self._loading is not None and not self._loading.done()
        return is_loading or (self._thread is not None and self._thread.is_alive())

    def load(self, model: str) -> None:
        """Load a model by path or name, in place of the one that is there: two may be more than the machine holds."""
        if self.llm is not None:
            self.llm.close()
            self.llm = None
        self._loading = LLM.load_in_background(model, progress=partial(self._tell, self.progressed))
        self._loading.add_done_callback(lambda future: self._end_load(model, future))

    def ask(self, messages: list[Message], params: SamplingParams) -> None:
        """Answer a conversation, piece by piece."""
        self._is_stopped = False
        self._thread = threading.Thread(target=self._answer, args=(messages, params), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop what is going on. What there is of an answer comes as `answered`, with finish_reason "cancelled"."""
        self._is_stopped = True
        if self._loading is not None:
            self._loading.cancel()
        if (stream := self._stream) is not None:
            stream.close()  # also while the prompt is being read

    def leave(self) -> None:
        """Stop everything and free the model. Nothing is told afterwards."""
        self._has_left = True
        self.stop()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
        if self.llm is not None:
            self.llm.close()

    def _tell(self, signal: Signal, *values: object) -> None:
        if not self._has_left:
            signal.emit(*values)  # type: ignore[attr-defined]

    # ---- in the other threads ----
    def _end_load(self, model: str, future: Future[LLM]) -> None:
        if future.cancelled():
            self._tell(self.failed, f"{model} was not loaded")
        elif (error := future.exception()) is not None:
            self._tell(self.failed, one_line(error))
        elif self._has_left:
            future.result().close()
        else:
            self.llm = future.result()
            self._tell(self.loaded, model)

    def _answer(self, messages: list[Message], params: SamplingParams) -> None:
        assert self.llm is not None
        try:
            progress = partial(self._tell, self.progressed, "reading")
            with self.llm.chat_stream(messages, params, on_prefill=progress) as stream:
                self._stream = stream
                if self._is_stopped:  # before there was a stream to close
                    stream.close()
                for piece in stream:
                    self._tell(self.pieced, piece)
            assert stream.completion is not None
            self._tell(self.answered, stream.completion)
        except Exception as error:
            self._tell(self.failed, one_line(error))


def one_line(error: BaseException) -> str:
    """What people are told. edgellm's errors are one line for them; anything else is a fault, and the window lives on."""
    return str(error) if isinstance(error, EdgeLLMError) else f"{type(error).__name__}: {error}"


class Bubble(QLabel):
    """One message, Markdown drawn as it grows."""

    def __init__(self, role: str, text: str) -> None:
        super().__init__(objectName=role, wordWrap=True)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.set_text(text)

    def set_text(self, text: str) -> None:
        """Show a text; HTML in it stays text."""
        document = QTextDocument()
        document.setDefaultFont(self.font())
        document.setMarkdown(text, QTextDocument.MarkdownFeature.MarkdownNoHTML)
        self.setText(document.toHtml())
        self.setFixedWidth(min(int(document.idealWidth()) + 2 * PADDING + 2, BUBBLE_WIDTH))


class Conversation(QScrollArea):
    """The messages, and which the model is shown."""

    def __init__(self) -> None:
        super().__init__(widgetResizable=True, frameShape=QFrame.Shape.NoFrame)
        self.messages: list[Message] = []
        self._bubbles: list[Bubble] = []
        self._column = QVBoxLayout(spacing=10)
        self._column.addStretch()  # the first message is at the bottom, above what is written next
        inner = QWidget()
        inner.setLayout(self._column)
        self.setWidget(inner)
        self.verticalScrollBar().rangeChanged.connect(lambda _, high: self.verticalScrollBar().setValue(high))

    def add(self, role: str, text: str) -> None:
        """Put a message below the others."""
        self.messages.append({"role": role, "content": text})
        bubble, row = Bubble(role, text), QHBoxLayout()
        self._bubbles.append(bubble)
        row.addWidget(bubble)
        row.insertStretch(0 if role == "user" else 1)
        self._column.addLayout(row)

    def grow(self, text: str) -> None:
        """Give the last message its text so far."""
        self.messages[-1]["content"] = text
        self._bubbles[-1].set_text(text)

    def remove_last(self) -> Message:
        """Take the last message away."""
        self._column.takeAt(self._column.count() - 1).deleteLater()
        self._bubbles.pop().deleteLater()
        return self.messages.pop()

    def clear(self) -> None:
        """Begin anew."""
        while self.messages:
            self.remove_last()


class ChatWindow(QWidget):
    """The window: a model to choose, the conversation, a line to write in, and what is going on."""

    def __init__(self, model: str = MODELS[0]) -> None:
        super().__init__(windowTitle="edgellm", styleSheet=STYLE)
        self.talker = Talker()
        self.conversation = Conversation()
        self.status = QLabel(wordWrap=True)
        self._make_widgets(model)
        self._lay_out()
        self._connect()
        self._answer, self._drawn = "", ""
        self._num_pieces, self._first_s = 0, 0.0
        self._settle("choose a model and press Load")

    # ---- what is there ----
    def _make_widgets(self, model: str) -> None:
        self.model = QComboBox(editable=True)
        self.model.addItems(list(MODELS))
        self.model.setCurrentText(model)
        self.browse, self.load = QPushButton("Open…"), QPushButton("Load")
        self.new, self.send = QPushButton("New chat"), QPushButton("Send", objectName="send")
        self.temperature = QDoubleSpinBox(minimum=0.0, maximum=2.0, singleStep=0.1, value=0.7)
        self.max_tokens = QSpinBox(minimum=1, maximum=100_000, singleStep=64, value=512)
        self.bar = QProgressBar(textVisible=False, maximumHeight=6)
        self.prompt = QPlainTextEdit(placeholderText="Ask something. Enter sends, Shift+Enter begins a new line.")
        self.prompt.setFixedHeight(3 * self.prompt.fontMetrics().lineSpacing() + 14)
        self.prompt.installEventFilter(self)
        self._clock = QTimer(self, interval=DRAW_MS)

    def _lay_out(self) -> None:
        top, bottom, foot = QHBoxLayout(), QHBoxLayout(), QHBoxLayout()
        top.addWidget(self.model, 1)
        for widget in (self.browse, self.load, self.new):
            top.addWidget(widget)
        bottom.addWidget(self.prompt, 1)
        bottom.addWidget(self.send)
        foot.addWidget(self.status, 1)
        for widget in (QLabel("Temperature"), self.temperature, QLabel("Max tokens"), self.max_tokens):
            foot.addWidget(widget)
        column = QVBoxLayout(self)
        column.addLayout(top)
        column.addWidget(self.bar)
        column.addWidget(self.conversation, 1)
        column.addLayout(bottom)
        column.addLayout(foot)
        self.resize(760, 640)

    def _connect(self) -> None:
        self.browse.clicked.connect(self._choose_file)
        self.load.clicked.connect(self.load_model)
        self.new.clicked.connect(self.conversation.clear)
        self.send.clicked.connect(self.send_or_stop)
        self._clock.timeout.connect(self._draw)
        self.talker.progressed.connect(self._show_progress)
        self.talker.loaded.connect(self._show_loaded)
        self.talker.pieced.connect(self._take_piece)
        self.talker.answered.connect(self._show_answer)
        self.talker.failed.connect(self._show_failure)

    # ---- what a person does ----
    def load_model(self) -> None:
        """Load the chosen model."""
        if self.talker.is_busy:
            return
        self._work(f"loading {self.model.currentText()}")
        self.talker.load(self.model.currentText())

    def send_or_stop(self) -> None:
        """Ask what is written, or stop what is going on."""
        if self.send.text() == "Stop":
            self.talker.stop()
            return
        text = self.prompt.toPlainText().strip()
        if not text or self.talker.llm is None:
            return
        self.prompt.clear()
        self.conversation.add("user", text)
        params = SamplingParams(temperature=self.temperature.value(), max_tokens=self.max_tokens.value())
        self.talker.ask(list(self.conversation.messages), params)
        self.conversation.add("assistant", "…")
        self._answer, self._drawn, self._num_pieces = "", "", 0
        self._work("reading")
        self._clock.start()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Leave at once for the eye, then wait for the threads."""
        self._clock.stop()
        self.hide()
        self.talker.leave()
        event.accept()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let Enter send, where Shift+Enter begins a new line."""
        if watched is self.prompt and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            if is_enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                if self.send.text() == "Send":
                    self.send_or_stop()
                return True
        return super().eventFilter(watched, event)

    def _choose_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Open a model", "", "GGUF (*.gguf)")
        if path:
            self.model.setCurrentText(path)
            self.load_model()

    # ---- what the talker tells ----
    def _show_progress(self, stage: str, done: int, total: int) -> None:
        self._say(stage if total <= 0 else f"{stage}: {100 * done // total} %")
        self.bar.setMaximum(1000 if total > 0 else 0)
        self.bar.setValue(1000 * done // max(total, 1))

    def _show_loaded(self, name: str) -> None:
        assert self.talker.llm is not None
        llm = self.talker.llm
        self._settle(f"{name}: {llm.max_context} tokens of context, loaded in {llm.load_s:.1f} s")
        self.prompt.setFocus()

    def _take_piece(self, piece: str) -> None:
        if self._num_pieces == 0:
            self._first_s = time.perf_counter()
            self.bar.hide()
        self._num_pieces += 1
        self._answer += piece

    def _draw(self) -> None:
        if self._answer != self._drawn:
            self.conversation.grow(self._answer)
            self._drawn = self._answer
            seconds = time.perf_counter() - self._first_s
            self._say(f"{self._num_pieces} tokens, {self._num_pieces / max(seconds, 0.05):.0f} tokens per second")

    def _show_answer(self, done: Completion) -> None:
        self.conversation.grow(done.text or "…")
        timings, ended = done.timings, {"length": ", cut at the limit", "cancelled": ", stopped"}
        self._settle(
            f"{len(done.token_ids)} tokens, {timings.decode_tps:.0f} per second, the first after"
            f" {timings.ttft_s:.2f} s{ended.get(done.finish_reason, '')}"
        )

    def _show_failure(self, line: str) -> None:
        if self._clock.isActive():  # the question goes back to where it can be changed
            self.conversation.remove_last()
            self.prompt.setPlainText(self.conversation.remove_last()["content"])
        self._settle(line, is_error=True)

    # ---- what can be done now ----
    def _work(self, line: str) -> None:
        self._say(line)
        self.send.setText("Stop")
        self.send.setEnabled(True)
        self.bar.setMaximum(0)  # moving, until something can be counted
        self.bar.show()
        for widget in (self.model, self.browse, self.load, self.new):
            widget.setEnabled(False)

    def _settle(self, line: str, is_error: bool = False) -> None:
        self._clock.stop()
        self.bar.hide()
        for widget in (self.model, self.browse, self.load, self.new):
            widget.setEnabled(True)
        self.send.setText("Send")
        self.send.setEnabled(self.talker.llm is not None)
        self._say(line, is_error)

    def _say(self, line: str, is_error: bool = False) -> None:
        self.status.setObjectName("error" if is_error else "")
        self.status.style().polish(self.status)
        self.status.setText(line)


def main(arguments: list[str]) -> int:
    """Open the window, and load a model if one is named; return the exit code."""
    app = QApplication(arguments[:1])
    window = ChatWindow(*arguments[1:2])
    window.show()
    if arguments[1:]:
        window.load_model()
    return app.exec()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
