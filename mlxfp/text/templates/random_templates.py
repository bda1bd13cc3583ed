"""Parser of template patterns. A pattern consists of phrases, and a phrase consists of literal text and fields."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from string import Formatter

from attrs import frozen

from mlxfp.support.errors import ArgumentError


@frozen
class Field:
    """Field of a pattern, which stands for the value of a column.

    A field is written as `{name!conversion:spec}`, like in Python's format strings.
    """

    name: str
    conversion: str | None = None
    spec: str = ""

    @property
    def write(self) -> Callable[[object], str]:
        """Return a function that formats a value like `str.format`."""
        return f"{{0{self._format}}}".format

    @property
    def _format(self) -> str:
        return (f"!{self.conversion}" if self.conversion else "") + (f":{self.spec}" if self.spec else "")

    def __str__(self) -> str:
        return f"{{{self.name}{self._format}}}"


Piece = str | Field


@frozen
class Phrase:
    """Text and fields between two separators of a template, such as `aged {age}` in the template `{name}, aged {age}, sails.`.

    A phrase is kept or dropped as a whole. `end` is the separator after the phrase, for example `, `.
    """

    pieces: tuple[Piece, ...]
    end: str

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(piece for piece in self.pieces if isinstance(piece, Field))


# Punctuation ends a phrase only before white space or at the end of the pattern. In `{km}.{m}`, the point does not end a phrase.
_CUT = re.compile(r"(\s*[.,;|!?]+\s+|\s*\n\s*)")
_LAST_CUT = re.compile(r"(\s*[.,;|!?]+(?:\s+|\Z)|\s*\n\s*)")


@lru_cache(maxsize=256)
def parse(pattern: str) -> tuple[Phrase, ...]:
    """Split a template pattern into phrases. A phrase holds the text and fields between two separators, such as commas.

    The result has at least one phrase. Raises `ArgumentError` if the pattern is not a format string of column names.

    >>> [phrase.end for phrase in parse("{a} and {b}, {c:.2f}.")]
    [', ', '.']
    """
    pieces = _pieces(pattern)
    phrases: list[Phrase] = []
    phrase: list[Piece] = []
    for index, piece in enumerate(pieces):
        if isinstance(piece, Field):
            phrase.append(piece)
            continue
        texts = (_LAST_CUT if index == len(pieces) - 1 else _CUT).split(piece)
        for text, end in zip(texts[:-1:2], texts[1::2], strict=True):
            phrases.append(Phrase((*phrase, text) if text else tuple(phrase), end))
            phrase = []
        phrase += [texts[-1]] if texts[-1] else []
    return tuple(phrases) if phrases and not phrase else (*phrases, Phrase(tuple(phrase), ""))


def _pieces(pattern: str) -> list[Piece]:
    try:
        parsed = list(Formatter().parse(pattern))
    except ValueError as error:
        raise ArgumentError(f"The template {pattern!r} is not a format string: {error}. Write {{{{ and }}}} for literal braces.") from error
    return join_texts(piece for item in parsed for piece in _piece(pattern, *item))


def _piece(pattern: str, literal: str, name: str | None, spec: str | None, conversion: str | None) -> Iterator[Piece]:
    if literal:
        yield literal
    if name is None:
        return
    location = f"The template {pattern!r}, field {{{name}}}"
    if not name or name.isdigit():
        raise ArgumentError(f"{location}: a field needs a column name, got {name!r}. Write for example {{Age}}.")
    if "." in name or "[" in name:
        raise ArgumentError(
            f"{location}: a template cannot access attributes or items of a value. "
            f"If {name!r} is a column name, rename the column with rename_columns. Otherwise, create a column for the value with map."
        )
    if conversion not in (None, "r", "s", "a"):
        raise ArgumentError(f"{location}: the conversion must be !r, !s or !a, got !{conversion}.")
    if "{" in (spec or ""):
        raise ArgumentError(f"{location}: the format after the colon must not contain a field, got {spec!r}. Write a number instead.")
    yield Field(name, conversion, spec or "")


def join_texts(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbouring texts in a list of texts and fields, and drop empty texts.

    Python's parser of format strings ends a text after each `{{` or `}}`.
    """
    groups = groupby(pieces, lambda piece: isinstance(piece, str))
    return [piece for are_texts, group in groups for piece in (["".join(map(str, group))] if are_texts else group) if piece]
