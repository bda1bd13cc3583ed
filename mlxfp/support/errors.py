"""The errors that mlxfp raises on purpose.

Each is an `MlxfpError` and also the built-in error that fits, so `except ValueError` works as expected.
A message has four parts, in this order: what is wrong, what we got, where, what to do.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

_LISTED = 40  # names in a message


class MlxfpError(Exception):
    """Everything mlxfp raises on purpose.

    >>> import mlxfp as fp
    >>> try:
    ...     fp.batch(0)
    ... except fp.MlxfpError as error:
    ...     print(error)
    size must be at least 1, got size=0.
    """


class ArgumentError(MlxfpError, ValueError):
    """An argument has the right type but an invalid value.

    >>> import mlxfp as fp
    >>> fp.batch(0)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: size must be at least 1, got size=0.
    """


class ArgumentTypeError(MlxfpError, TypeError):
    """An argument has the wrong type.

    >>> import mlxfp as fp
    >>> fp.shuffle(seed=1.5)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: seed must be an int, got seed=1.5.
    """


class PipelineError(MlxfpError, TypeError):
    """Raised for an invalid order of stages.

    >>> import mlxfp as fp
    >>> fp.pipe(fp.from_examples([{"x": 1}]), fp.batch(2), fp.batch(2))
    Traceback (most recent call last):
    mlxfp.support.errors.PipelineError: batch(size=2) takes examples, got groups from batch(size=2). Move it before batch, ...
    """


class SchemaError(MlxfpError, TypeError):
    """A column is missing, or has a type that does not fit.

    >>> import mlxfp as fp
    >>> fp.schema(fp.pipe(fp.from_examples([{"x": 1}]), fp.select_columns(["y"])))
    Traceback (most recent call last):
    mlxfp.support.errors.SchemaError: select_columns needs the column 'y', which is not there. Columns: 'x'.
    ...
    """


class UnknownNameError(MlxfpError, KeyError):
    """A name is unknown; the message suggests the nearest known name.

    >>> import mlxfp as fp
    >>> fp.mix([fp.from_examples([{"x": 1}])], [1], stop="firts")
    Traceback (most recent call last):
    mlxfp.support.errors.UnknownNameError: No stop is named 'firts'. Did you mean 'first'? Known: all, first, restart.
    """

    def __str__(self) -> str:  # KeyError would show the message quoted and escaped
        return str(self.args[0])


class DataError(MlxfpError, ValueError):
    """The data itself is malformed; the message names file and line or row.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": None}]), fp.template("{x}", policy="raise")))
    Traceback (most recent call last):
    mlxfp.support.errors.DataError: template('{x}') needs the field 'x', which is missing in source row 0. ...
    """


class MissingFileError(MlxfpError, FileNotFoundError):
    """A file, folder or pattern matches nothing.

    >>> import mlxfp as fp
    >>> fp.load_tokenizer("no/such/folder")
    Traceback (most recent call last):
    mlxfp.support.errors.MissingFileError: No tokenizer is at 'no/such/folder'. ...
    """


class CursorError(MlxfpError, ValueError):
    """A cursor cannot be used: its bytes have the wrong format or version or are damaged, or the files have changed since.

    >>> import mlxfp as fp
    >>> fp.Cursor.from_bytes(b"something else")
    Traceback (most recent call last):
    mlxfp.support.errors.CursorError: These bytes are not a cursor: they start with b'somethin', not b'MLXFPCUR'. ...
    """


class CursorMismatchError(CursorError):
    """A cursor belongs to another pipeline.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}])
    >>> _, cursor = next(fp.iterate(fp.pipe(rows, fp.batch(2))))
    >>> fp.iterate(fp.pipe(rows, fp.batch(3)), cursor)
    Traceback (most recent call last):
    mlxfp.support.errors.CursorMismatchError: The cursor belongs to another pipeline. ... has batch(size=2), the pipeline batch(size=3). ...
    """


class FingerprintError(MlxfpError, TypeError):
    """A value cannot be fingerprinted.

    >>> import mlxfp as fp
    >>> fp.inspect.fingerprint(object())
    Traceback (most recent call last):
    mlxfp.support.errors.FingerprintError: A value of type object has no fingerprint: ...
    """


class CheckpointError(MlxfpError, ValueError):
    """A checkpoint does not fit the state it is loaded into, or is damaged.

    >>> issubclass(CheckpointError, ValueError)
    True
    """


class ConfigError(MlxfpError, ValueError):
    """A configuration has errors; the message lists all of them, each with its file and line.

    >>> issubclass(ConfigError, ValueError)
    True
    """


class WorkerError(MlxfpError, RuntimeError):
    """A worker process of `prefetch` ended, or cannot be given its work.

    >>> import mlxfp as fp
    >>> raise fp.errors.WorkerError("A worker process ended while it read rows 0 to 63 of read_images('photos').")
    Traceback (most recent call last):
    mlxfp.support.errors.WorkerError: A worker process ended while it read rows 0 to 63 of read_images('photos').
    """


class NonFiniteError(MlxfpError, ArithmeticError):
    """A loss or the norm of its gradients is infinite or NaN.

    `step` is the number of the step, counted from 1, and `rows` has the source rows of its batch. `next(iterate(batches, cursor))`
    makes that batch again. If the batches are not a dataset, there are neither rows nor a cursor.

    >>> error = NonFiniteError("The loss is nan in step 7.", 7, (), None)
    >>> error.step, str(error)
    (7, 'The loss is nan in step 7.')
    """

    def __init__(self, message: str, step: int, rows: tuple[Any, ...], cursor: Any) -> None:
        """Keep what a program needs to continue."""
        super().__init__(message)
        self.step = step
        self.rows = rows
        self.cursor = cursor

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Pickle all four: an exception is rebuilt from its message alone otherwise."""
        return type(self), (str(self), self.step, self.rows, self.cursor)


class RankError(MlxfpError, RuntimeError):
    """Another rank has failed, so this one cannot go on. That one says why.

    >>> raise RankError("Rank 1 of 2 failed.")
    Traceback (most recent call last):
    mlxfp.support.errors.RankError: Rank 1 of 2 failed.
    """


class MissingExtraError(MlxfpError, ModuleNotFoundError):
    """An optional package is not installed; the message names the extra of mlxfp that installs it.

    >>> issubclass(MissingExtraError, ModuleNotFoundError)
    True
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown name, with the nearest known name as a suggestion.

    >>> print(unknown_name("collator", "casual", ["causal", "masked"]))
    No collator is named 'casual'. Did you mean 'causal'? Known: causal, masked.
    """
    names = sorted(known)
    return UnknownNameError(f"No {kind} is named {name!r}.{suggest(name, names)} Known: {listed(names)}.")


def listed(names: Iterable[str]) -> str:
    """Join names for a message, at most 40: a table may have thousands of columns.

    >>> listed(["x", "y"]), listed(map(str, range(1000)))[-19:]
    ('x, y', '38, 39 and 960 more')
    """
    several = list(names)
    more = f" and {len(several) - _LISTED:,} more" if len(several) > _LISTED else ""
    return f"{', '.join(several[:_LISTED])}{more}" or "none"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question whether the nearest known name was meant, or an empty string; it begins with a space, to follow a sentence.

    >>> suggest("casual", ["causal", "masked"]), suggest("x", ["causal"])
    (" Did you mean 'causal'?", '')
    """
    near = get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


@contextmanager
def without_generated_frames() -> Iterator[None]:
    """Leave the frames of code that attrs generates, as for cached properties, out of the traceback of an error: there is no file of it."""
    __tracebackhide__ = True
    try:
        yield
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            if frame.tb_next.tb_frame.f_code.co_filename.startswith("<attrs generated"):
                frame.tb_next = frame.tb_next.tb_next
            else:
                frame = frame.tb_next
        raise


def failure_text(source: str, error: BaseException | None) -> str:
    """Describe an error of another program in one line."""
    return f"{source}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
