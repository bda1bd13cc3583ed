"""Two checks of a data loader: errors in rows reach the user, and the memory of the process does not grow."""

import ctypes
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mlxfp.testing.audit.values import Loader, lost_and_repeated, numbers_of


def refuse(row: int, kind: type[Exception], number: int) -> int:
    """Return a row number unchanged. For the number `row`, raise an error of type `kind` with a message that lacks the row number."""
    if number == row:
        raise kind("this row is refused")
    return number


def enlarge(number: int) -> np.ndarray[Any, Any]:
    """Return an array of 512 KiB filled with a row number. Freed arrays of this size return to the system, so only leaks fill memory."""
    return np.full(1 << 16, float(number))


def check_errors(loader: Loader, workers: int) -> Iterator[str]:
    """Yield a description of each hidden error: a row raises an error, but the loader ends the epoch without an error."""
    for kind in (ValueError, StopIteration):
        for count in sorted({0, workers}):
            items, error = _epoch_with_an_error(loader, kind, count)
            if loader.apply and error is None:
                wrong = lost_and_repeated(items, [range(loader.rows)])
                yield f"{loader.name} with {count} workers hides a {kind.__name__} in row {_row(loader)}: the epoch ends, and {wrong}"


def check_locations(loader: Loader, workers: int) -> Iterator[str]:
    """Yield a description of the first error whose message lacks the number of the failed row."""
    for count in sorted({0, workers}):
        _, error = _epoch_with_an_error(loader, ValueError, count)
        if error and not re.search(rf"\b{_row(loader)}\b", text := _text_of(error)):
            yield f"{loader.name} with {count} workers raises an error without the row number. The message is: {text.splitlines()[0]}"
            return


def check_memory(loader: Loader, workers: int) -> Iterator[str]:
    """Yield a description of the growth of the memory of this process over 20 epochs."""
    if not loader.apply:
        return
    # Return free memory to the system. A growing loader would first use this memory, and the measurement would miss the growth.
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # exists in glibc only
        trim(0)
    pages = [int(Path("/proc/self/statm").read_text("ascii").split()[1]) for _ in loader.apply(enlarge, 20, 0)]  # resident pages
    sizes = [4096 * count for count in pages]
    early, late = (median(sizes[int(len(sizes) * share) :][: max(1, len(sizes) // 10)]) for share in (0.3, 0.9))
    growth, seen = late - early, 0.6 * 20 * loader.rows * enlarge(0).nbytes
    if growth > seen / 4:
        yield f"{loader.name} grows by {growth / 1e6:.0f} MB while {seen / 1e6:.0f} MB of rows pass"


def _epoch_with_an_error(loader: Loader, kind: type[Exception], workers: int) -> tuple[list[tuple[int, ...]], BaseException | None]:
    items: list[tuple[int, ...]] = []
    if loader.apply:
        try:
            items.extend(map(numbers_of, loader.apply(partial(refuse, _row(loader), kind), 1, workers)))
        except Exception as error:  # noqa: BLE001  # the error of the row
            return items, error
    return items, None


def _row(loader: Loader) -> int:
    return loader.rows * 2 // 3


def _text_of(error: BaseException) -> str:
    """Return the messages and notes of an error and its causes, without lines of tracebacks."""
    texts = [str(error), *getattr(error, "__notes__", ())]
    text = "\n".join(line for line in "\n".join(texts).splitlines() if not re.match(r" *File \"", line))
    return "\n".join([text, *([_text_of(error.__cause__)] if error.__cause__ else [])])
