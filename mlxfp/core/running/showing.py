"""Showing how far work is that takes longer than two seconds: a bar on a terminal or in a notebook, lines now and then in a log.

Only the main thread of a user's own process shows anything, and of several ranks the first one.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import inf
from shutil import get_terminal_size
from threading import Event, Lock, Thread, current_thread, main_thread
from time import monotonic
from typing import Any, Self, TextIO

from mlxfp.support.terminal import one_line

SETTING = "MLXFP_PROGRESS"  # in the environment. 0: show nothing; 1: also where there is neither a terminal nor a notebook
_LINES: ContextVar[bool] = ContextVar("_LINES", default=False)  # whether logs get lines where nothing is set: in commands

_AFTER = 2.0  # seconds of work that is not shown: who waits longer wonders
_REDRAW = 0.1  # seconds between two drawings of a bar: ten a second look live, and cost nothing
_LINE = 30.0  # seconds between two lines in a log
_TICK = 0.5  # seconds between two looks at the clock in a call that says nothing: a bar whose time goes on is not taken for dead
_WIDEST = 100  # characters: longer bars say no more
_RANKS = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # set by mlx.launch and by MPI


class Console:
    """What people read: standard error or another file, which may go away or not have a character, and the bar that is drawn there."""

    def __init__(self, out: TextIO) -> None:
        """Write to an open file."""
        self._out = out
        self._bar: Any = None
        self.encoding = getattr(out, "encoding", None)  # says which characters a bar is made of
        self.live = type(out).__module__.startswith("ipykernel") or out.isatty()

    def __eq__(self, other: object) -> bool:
        return self._out is getattr(other, "_out", other)  # so that tqdm.write of a user's program clears the bar before it writes

    def __hash__(self) -> int:
        return id(self._out)

    def write(self, text: str) -> None:
        """Write text, if that is possible: a console that is gone, or cannot write a character, must not end a run."""
        with suppress(OSError, ValueError):
            self._out.write(text)

    def flush(self) -> None:
        """Write it now."""
        with suppress(OSError, ValueError):
            self._out.flush()

    def line(self, text: str) -> None:
        """Write a line, above the bar if there is one."""
        if self._bar is None:
            self.write(f"{one_line(text)}\n")
        else:
            self._bar.write(one_line(text), file=self)
        self.flush()

    def draw(self, **facts: Any) -> None:
        """Draw the bar, or draw it again; `facts` are arguments of `tqdm.format_meter`, or are named in its `bar_format`."""
        shown = {name: one_line(value) if isinstance(value, str) else value for name, value in facts.items()}
        shown["ncols"] = min(self._width() - 1, _WIDEST)
        from mlxfp.core.running.bars import Bar

        if self._bar is None:
            self._bar = Bar(self, shown)
        else:
            self._bar.draw(shown)

    def close(self, *, leave: bool = False) -> None:
        """Remove the bar, or leave it as it is: what comes next starts on a clean line."""
        if self._bar is not None:
            self._bar.leave = leave
            self._bar.total = self._bar.total if leave else None  # in a notebook, a bar with a part left stays, in red
            self._bar.close()
            self._bar = None

    def _width(self) -> int:
        with suppress(OSError, ValueError, AttributeError):
            return os.get_terminal_size(self._out.fileno()).columns or get_terminal_size().columns
        return get_terminal_size().columns


def console(file: TextIO | None = None, *, lines: bool = False) -> Console | None:
    """Return where to show progress: `file`, else standard error; None: nowhere. `lines` says that a log gets lines if nothing is set."""
    setting = os.environ.get(SETTING, "")
    out = file or sys.stderr
    if out is None or out.closed or (file is None and setting == "0"):  # a program without a console; quiet
        return None
    found = Console(out)
    return found if found.live or lines or _LINES.get() or setting not in ("", "0") else None


@contextmanager
def lines_in_logs() -> Iterator[None]:
    """Write lines where there is neither a terminal nor a notebook, unless the setting says something else."""
    token = _LINES.set(True)
    try:
        yield
    finally:
        _LINES.reset(token)


def shows_bars() -> bool:
    """Whether this thread of this process may draw a bar."""
    found = console() if current_thread() is main_thread() and _is_first_process() else None
    return found is not None and found.live


class Showing:
    """Work that is under way. Used with `with`: what is drawn is removed at the end, and a log says how long the work took."""

    def __init__(
        self, text: str, *, unit: str = "rows", total: Callable[[], int | None] = lambda: None, done: int = 0, steady: bool = False
    ) -> None:
        """Begin; `total` is asked for when something is shown. `done` was done before; `steady` writes lines on terminals, too."""
        self._text, self._unit, self._total, self._steady = text, unit, total, steady
        self._before = self._done = done
        self._told = -1  # what the last line said
        self._console: Console | None = None
        self._here, self._logs = current_thread() is main_thread(), _LINES.get()  # of who began it: trainers of tokenizers read in a thread
        self._drawing = Lock()
        self._began = monotonic()
        self._next = self._began + _AFTER

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._console is not None:
            if kind is None and self._lines and self._told != self._done:
                self._show(monotonic())
            self._console.close()

    def add(self, count: int = 1) -> None:
        """Say that more is done: once a chunk, never once a row."""
        self._done += count
        self._look()

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Show that time goes by also during calls that do not say how far they are, and let other threads run."""
        ended = Event()

        def tick() -> None:
            while not ended.wait(_TICK):
                self._look()

        clock = Thread(target=tick, name="mlxfp-ticking", daemon=True)
        clock.start()
        try:
            yield
        finally:
            ended.set()
            clock.join()

    def over(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield chunks, groups or batches, and count their rows or them."""
        by_row = self._unit == "rows"
        for item in items:
            yield item
            self.add(item.num_rows if by_row else 1)

    def say(self, text: str) -> None:
        """Change the text, for what comes next, if anything is shown."""
        self._text = text
        if self._console is not None:
            with self._drawing:
                self._show(monotonic())

    def _look(self) -> None:
        now = monotonic()
        if now >= self._next:
            with self._drawing:
                if now >= self._next:  # of two threads that look at once, one draws
                    self._show(now)

    @property
    def _lines(self) -> bool:
        return self._steady or self._console is None or not self._console.live

    def _show(self, now: float) -> None:
        if self._console is None:
            self._console = console(lines=self._logs) if self._here and _is_first_process() else None
            if self._console is None:
                self._next = inf
                return
            total: int | None = None
            with suppress(Exception):  # of any source: reading says what is wrong
                total = self._total()
            self._total = lambda: total
        facts = {
            "n": self._done,
            "total": self._total(),
            "elapsed": now - self._began,
            "prefix": self._text,
            "unit": f" {self._unit}",
            "unit_scale": self._done > 9_999,  # 12.3k
            "initial": self._before,
        }
        if self._lines:
            from mlxfp.core.running.bars import Bar

            self._console.line(Bar.format_meter(**facts, ncols=0))
            self._told, self._next = self._done, now + _LINE
        else:
            self._console.draw(**facts)
            self._next = now + _REDRAW


def _is_first_process() -> bool:
    """Whether this process is not a worker of another one, and not a rank after the first."""
    processes: Any = sys.modules.get("multiprocessing.process")
    is_worker = processes is not None and processes.parent_process() is not None
    return not is_worker and all(os.environ.get(name, "0") == "0" for name in _RANKS)
