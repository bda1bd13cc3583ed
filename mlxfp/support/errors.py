"""Errors raised on purpose by mlxfp.

Each class derives from `MlxfpError` and from the matching built-in error, so `except ValueError` works. A message has four parts:
the problem, the value received, the location, the remedy.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

FEW = 9  # maximum number of classes in a message
_LISTED = 40  # maximum number of names in a message
_USER = re.compile(r"(?<=://)[^\s/?#]*@")  # pattern for the user and password in a web address
# Pattern for the query of a web address (text after ? or #). Punctuation at the end of the address is not part of the query.
_QUERY = re.compile(r"(://[^\s?#'\"]*[?#])(\S*?)(?=[\])'\".,;:]*(?:\s|$))")


class MlxfpError(Exception):
    """Base class of all errors raised on purpose by mlxfp.

    >>> import mlxfp as fp
    >>> try:
    ...     fp.batch(0)
    ... except fp.MlxfpError as error:
    ...     print(error)
    batch: size must be at least 1, got size=0.
    """

    def __init__(self, *args: object) -> None:
        """Store the message. Passwords and signatures in web addresses are replaced by `***`."""
        super().__init__(*(without_secrets(arg) if isinstance(arg, str) else arg for arg in args))


class ArgumentError(MlxfpError, ValueError):
    """Error for an invalid value of an argument. The type of the argument is right.

    >>> import mlxfp as fp
    >>> fp.batch(0)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: batch: size must be at least 1, got size=0.
    """


class ArgumentTypeError(MlxfpError, TypeError):
    """Error for an argument of the wrong type.

    >>> import mlxfp as fp
    >>> fp.shuffle(seed=1.5)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: shuffle: seed must be an int, got seed=1.5.
    """


class PipelineError(MlxfpError, TypeError):
    """Error for an invalid order of stages.

    >>> import mlxfp as fp
    >>> fp.pipe(fp.from_examples([{"x": 1}]), fp.batch(2), fp.batch(2))
    Traceback (most recent call last):
    mlxfp.support.errors.PipelineError: batch(size=2) takes examples, got groups from batch(size=2). Move it before batch, ...
    """


class SchemaError(MlxfpError, TypeError):
    """Error for a missing column or a column of an unsuitable type.

    >>> import mlxfp as fp
    >>> fp.schema(fp.pipe(fp.from_examples([{"x": 1}]), fp.select_columns(["y"])))
    Traceback (most recent call last):
    mlxfp.support.errors.SchemaError: select_columns needs the column 'y', which is missing. Columns: 'x'.
    ...
    """


class UnknownNameError(MlxfpError, KeyError):
    """Error for an unknown name. The message suggests the nearest known name.

    >>> import mlxfp as fp
    >>> fp.mix([fp.from_examples([{"x": 1}])], [1], stop="firts")
    Traceback (most recent call last):
    mlxfp.support.errors.UnknownNameError: No stop is named 'firts'. Did you mean 'first'? Known: all, first, restart.
    """

    def __str__(self) -> str:  # KeyError.__str__ would quote and escape the message
        return str(self.args[0])


class RowIndexError(MlxfpError, IndexError):
    """Error for an index outside a dataset or a group of examples.

    >>> import mlxfp as fp
    >>> fp.from_examples([{"x": 1}, {"x": 2}])[5]
    Traceback (most recent call last):
    mlxfp.support.errors.RowIndexError: An index is out of range: got [5] for 2 examples, in pipe(from_examples(2 rows)). ...
    """


class DataError(MlxfpError, ValueError):
    """Error for malformed data. The message names the file and the line or row.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": None}]), fp.template("{x}", policy="raise")))
    Traceback (most recent call last):
    mlxfp.support.errors.DataError: template('{x}') needs the field 'x', which is missing in source row 0. ...
    """


class MissingFileError(MlxfpError, FileNotFoundError):
    """Error raised if a file or folder does not exist, or no file matches a pattern.

    >>> import mlxfp as fp
    >>> fp.load_tokenizer("no/such/folder")
    Traceback (most recent call last):
    mlxfp.support.errors.MissingFileError: No tokenizer is at 'no/such/folder'. ...
    """


class CursorError(MlxfpError, ValueError):
    """Error for an unusable cursor: bytes with a wrong format or version, damaged bytes, or files changed since the cursor was made.

    >>> import mlxfp as fp
    >>> fp.Cursor.from_bytes(b"something else")
    Traceback (most recent call last):
    mlxfp.support.errors.CursorError: These bytes are not a cursor: they start with b'somethin', not b'MLXFPCUR'. ...
    """


class CursorMismatchError(CursorError):
    """Error for a cursor of another pipeline.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}])
    >>> _, cursor = next(fp.iterate(fp.pipe(rows, fp.batch(2))))
    >>> fp.iterate(fp.pipe(rows, fp.batch(3)), cursor)
    Traceback (most recent call last):
    mlxfp.support.errors.CursorMismatchError: The cursor belongs to another pipeline. ... has batch(size=2), the pipeline batch(size=3). ...
    """


class FingerprintError(MlxfpError, TypeError):
    """Error for a value whose fingerprint (a hash of its content) cannot be computed.

    >>> import mlxfp as fp
    >>> fp.inspect.fingerprint(object())
    Traceback (most recent call last):
    mlxfp.support.errors.FingerprintError: A value of type object has no fingerprint: ...
    """


class CheckpointError(MlxfpError, ValueError):
    """Error for a damaged checkpoint, or a checkpoint that does not match the state to load.

    >>> issubclass(CheckpointError, ValueError)
    True
    """


class ConfigError(MlxfpError, ValueError):
    """Error for an invalid configuration. The message lists all errors with file and line.

    >>> issubclass(ConfigError, ValueError)
    True
    """


class WorkerError(MlxfpError, RuntimeError):
    """Error raised if a worker process of `prefetch` ends unexpectedly or cannot receive its work.

    >>> import mlxfp as fp
    >>> raise fp.errors.WorkerError("A worker process ended while it read rows 0 to 63 of read_images('photos').")
    Traceback (most recent call last):
    mlxfp.support.errors.WorkerError: A worker process ended while it read rows 0 to 63 of read_images('photos').
    """


class NonFiniteError(MlxfpError, ArithmeticError):
    """Error for an infinite or NaN loss or gradient norm.

    `step` is the step number, counted from 1. `rows` are the source rows of the batch. `next(iterate(batches, cursor))` computes the
    same batch again. If the batches are not a dataset, `rows` is empty and `cursor` is None.

    >>> error = NonFiniteError("The loss is nan in step 7.", 7, (), None)
    >>> error.step, str(error)
    (7, 'The loss is nan in step 7.')
    """

    def __init__(self, message: str, step: int, rows: tuple[Any, ...], cursor: Any) -> None:
        """Store the message, and the attributes `step`, `rows` and `cursor`."""
        super().__init__(message)
        self.step = step
        self.rows = rows
        self.cursor = cursor

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Tell pickle to call the constructor with all four arguments, because the default is only the message."""
        return type(self), (str(self), self.step, self.rows, self.cursor)


class RankError(MlxfpError, RuntimeError):
    """Error raised on a rank if another rank has failed. The failed rank reports the cause.

    >>> raise RankError("Rank 1 of 2 failed.")
    Traceback (most recent call last):
    mlxfp.support.errors.RankError: Rank 1 of 2 failed.
    """


class MissingExtraError(MlxfpError, ModuleNotFoundError):
    """Error raised if an optional package is missing. The message names the extra of mlxfp to install.

    >>> issubclass(MissingExtraError, ModuleNotFoundError)
    True
    """


def without_secrets(text: str) -> str:
    """Replace user names, passwords and query values in the URLs of a text by `***`.

    >>> without_secrets("read_csv('https://me:secret@host/a.csv?sig=secret&v=1')")
    "read_csv('https://***@host/a.csv?sig=***&v=***')"
    """
    return _QUERY.sub(_shown, _USER.sub("***@", text)) if "://" in text else text


def _shown(query: re.Match[str]) -> str:
    pairs = [part.partition("=") for part in re.split("[&#]", query[2])]
    return query[1] + "&".join(f"{name}=***" if equals else "***" for name, equals, _ in pairs)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown name, with the nearest known name as a suggestion.

    >>> print(unknown_name("collator", "casual", ["causal", "masked"]))
    No collator is named 'casual'. Did you mean 'causal'? Known: causal, masked.
    """
    names = sorted(known)
    return UnknownNameError(f"No {kind} is named {name!r}.{suggest(name, names)} Known: {listed(names)}.")


def listed(names: Iterable[str], *, most: int = _LISTED) -> str:
    """Join at most `most` names for a message, because a table may have thousands of columns.

    >>> listed(["x", "y"]), listed(map(str, range(1000)))[-19:]
    ('x, y', '38, 39 and 960 more')
    """
    several = list(names)
    more = f" and {len(several) - most:,} more" if len(several) > most else ""
    return f"{', '.join(several[:most])}{more}" or "none"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" with the nearest known name, or an empty string. The leading space separates sentences.

    >>> suggest("casual", ["causal", "masked"]), suggest("x", ["causal"])
    (" Did you mean 'causal'?", '')
    """
    near = nearest(name, known)
    return "" if near is None else f" Did you mean {near!r}?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the nearest known name, ignoring case, or None.

    >>> nearest("RMSLE", ["rmse", "rmsle"]), nearest("x", ["causal"])
    ('rmsle', None)
    """
    originals = {known_name.casefold(): known_name for known_name in map(str, known)}
    near = get_close_matches(str(name).casefold(), originals, n=1)
    return originals[near[0]] if near else None


def suggest_path(path: Path) -> str:
    """Return " Did you mean 'x'?" with the most similar name in the parent folder of a missing path, or an empty string."""
    with suppress(OSError):  # the parent folder is missing or cannot be read
        return suggest(path.name, [entry.name for entry in path.parent.iterdir()])
    return ""


@contextmanager
def without_generated_frames() -> Iterator[None]:
    """Remove frames of code generated by attrs, for example for cached properties, from tracebacks, because this code has no file."""
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
    """Return the first line of an error message, prefixed by `source` and the type of the error."""
    return f"{source}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
