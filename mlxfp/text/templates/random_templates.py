"""The pattern of a template, parsed once: literal text and fields, cut into phrases."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from string import Formatter

from attrs import frozen

from mlxfp.support.errors import ArgumentError


@frozen
class Field:
    """A place for a column's value: `{name!conversion:spec}` of Python's format strings."""

    name: str
    conversion: str | None = None
    spec: str = ""

    @property
    def write(self) -> Callable[[object], str]:
        """The function that writes one value, as `str.format` does."""
        return f"{{0{self._format}}}".format

    @property
    def _format(self) -> str:
        return (f"!{self.conversion}" if self.conversion else "") + (f":{self.spec}" if self.spec else "")

    def __str__(self) -> str:
        return f"{{{self.name}{self._format}}}"


Piece = str | Field


@frozen
class Phrase:
    """Pieces that are dropped together, and the separator between this phrase and the next one."""

    pieces: tuple[Piece, ...]
    end: str

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the phrase, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Field))


# At the end of the pattern, a punctuation mark closes a phrase. Before a field it does so only with white space after it, so that
# `{km}.{m}` stays whole.
_CUT = re.compile(r"(\s*[.,;|!?]+\s+|\s*\n\s*)")
_LAST_CUT = re.compile(r"(\s*[.,;|!?]+(?:\s+|\Z)|\s*\n\s*)")


@lru_cache(maxsize=256)
def parse(pattern: str) -> tuple[Phrase, ...]:
    """Cut a pattern into phrases, at least one; raise `ArgumentError` for a pattern that is not a format string of column names.

    >>> [phrase.end for phrase in parse("{a} and {b}, {c:.2f}.")]
    [', ', '.']
    """
    pieces = _pieces(pattern)
    phrases: list[Phrase] = []
    phrase: list[Piece] = []
    for place, piece in enumerate(pieces):
        if isinstance(piece, Field):
            phrase.append(piece)
            continue
        texts = (_LAST_CUT if place == len(pieces) - 1 else _CUT).split(piece)
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
    place = f"The template {pattern!r}, field {{{name}}}"
    if not name or name.isdigit():
        raise ArgumentError(f"{place}: a field needs the name of a column, got {name!r}. Write it as in {{Age}}.")
    if "." in name or "[" in name:
        raise ArgumentError(
            f"{place}: a template reads whole columns, not attributes or items of their values. "
            "Make a column of the part with map, or rename the column with rename_columns."
        )
    if conversion not in (None, "r", "s", "a"):
        raise ArgumentError(f"{place}: conversions are !r, !s and !a, got !{conversion}.")
    if "{" in (spec or ""):
        raise ArgumentError(f"{place}: a format that is itself a field is not supported, got {spec!r}. Write the numbers out.")
    yield Field(name, conversion, spec or "")


def join_texts(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbouring texts, and leave out empty ones: the parser yields `{{` as a separate piece, and `. ` must be whole."""
    groups = groupby(pieces, lambda piece: isinstance(piece, str))
    return [piece for are_texts, some in groups for piece in (["".join(map(str, some))] if are_texts else some) if piece]
