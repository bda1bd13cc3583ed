"""Errors for forged cursors: bytes with a valid checksum, and with values that no source or stage would store."""

from collections.abc import Generator, Iterator
from contextlib import closing
from traceback import walk_tb
from typing import Any

import pyarrow as pa

from mlxfp.core.sources import Source
from mlxfp.core.stages import Stage
from mlxfp.support.errors import CursorError, MlxfpError

_FOREIGN = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError, pa.ArrowException)
_PACKAGES = ("mlxfp", "pyarrow", "numpy", "attr", "attrs", "toolz", "contextlib", "functools", "itertools", "concurrent", "threading")


def resumed(items: Generator[Any, None, None], whole: Any) -> Iterator[Any]:
    """Yield the items of a run that starts at a cursor restored from bytes. The cursor may be invalid.

    An error in the code of mlxfp or its libraries, such as `TypeError`, becomes a `CursorError`. The message names the failed source or
    stage. If both are unknown, the message names the pipeline in the argument `whole`. Errors in user functions are raised unchanged.
    """
    with closing(items):
        try:
            yield from items
        except MlxfpError:
            raise
        except _FOREIGN as error:
            frames = [frame for frame, _ in walk_tb(error.__traceback__)]
            if any(frame.f_globals.get("__name__", "").partition(".")[0] not in _PACKAGES for frame in frames):
                raise
            objects = [frame.f_locals.get("self") for frame in frames]
            part = next((part for part in reversed(objects) if isinstance(part, Source | Stage)), whole)
            raise CursorError(
                f"The cursor has values that do not fit a part of the pipeline: {type(error).__name__}: {error}, in {part!r:.300}. "
                "Pass the bytes returned by Cursor.to_bytes()."
            ) from error
