"""The errors that mlxfp raises on purpose.

Each is an `MlxfpError` and also the built-in that fits, so `except ValueError` works as a reader expects.
A message has four parts, in this order: what is wrong, what we got, where, what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class MlxfpError(Exception):
    """Everything mlxfp raises on purpose."""


class ArgumentError(MlxfpError, ValueError):
    """An argument has the right type and an impossible value."""


class ArgumentTypeError(MlxfpError, TypeError):
    """An argument has the wrong type."""


class PipelineError(MlxfpError, TypeError):
    """Stages are in an order that cannot work."""


class SchemaError(MlxfpError, TypeError):
    """Columns or types do not fit what a stage needs."""


class UnknownNameError(MlxfpError, KeyError):
    """A name is not among the known ones."""

    def __str__(self) -> str:  # KeyError would show the message quoted and escaped
        return str(self.args[0])


class DataError(MlxfpError, ValueError):
    """The data itself is malformed; the message names file and line or row."""


class MissingFileError(MlxfpError, FileNotFoundError):
    """A file, folder or pattern matches nothing."""


class CursorError(MlxfpError, ValueError):
    """Bytes are not a cursor that can be trusted: wrong format, wrong version or corrupted."""


class CursorMismatchError(CursorError):
    """A cursor belongs to another pipeline."""


class FingerprintError(MlxfpError, TypeError):
    """A value cannot be fingerprinted."""


class CheckpointError(MlxfpError, ValueError):
    """A checkpoint does not fit the state it is loaded into, or is damaged."""


class MissingExtraError(MlxfpError, ModuleNotFoundError):
    """An optional package is not installed."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Build the error for a name that is not known, with the nearest known one.

    >>> print(unknown_name("collator", "casual", ["causal", "masked"]))
    No collator is named 'casual'. Did you mean 'causal'? Known: causal, masked.
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(f"No {kind} is named {name!r}.{hint} Known: {', '.join(names) or 'none'}.")
