"""How a pipeline looks as a diagram: a box for each part, with what comes out of it and where it runs."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from attrs import frozen

from mlxfp.core.chunks import Schema
from mlxfp.support.html import Html, clip, element
from mlxfp.support.terminal import columns_text

_PARTS, _PART, _NOTES, _COLUMNS, _COLUMN = 40, 300, 4, 12, 60  # parts, their characters, notes of each, columns, characters of each
_DEEPEST = 8  # levels of joined datasets that are indented


@frozen
class PartFacts:
    """A part of a pipeline, and what is known of it without running it. `depth` counts the joins that it goes into."""

    depth: int
    begins: bool  # whether it reads no other part
    part: str
    level: str
    schema: Schema | str  # or why it is not known
    count: str
    access: str  # of rows by number; nothing where there is nothing to say
    notes: tuple[str, ...]
    thread: str  # where it runs: nothing for the loop that reads the pipeline
    workers: str  # who shares its work; nothing for that thread alone

    @property
    def about(self) -> str:
        """What comes out of it, as a line of text."""
        columns = self.schema if isinstance(self.schema, str) else columns_text(self.schema)
        return "; ".join(filter(None, (f"{self.level}: {columns}", self.count, self.access, *self.notes)))


def diagram(facts: Iterable[PartFacts]) -> Html:
    """Return a list of boxes, the first ones of a long pipeline. The columns of a box are those that the box above it has not."""
    shown = list(islice(facts, _PARTS + 1))
    above = [None, *(each.schema for each in shown)]
    boxes = [_box(each, None if each.begins else before) for each, before in zip(shown[:_PARTS], above, strict=False)]
    more = [element("li", "…", class_="muted")] if len(shown) > _PARTS else []
    return element("ol", *boxes, *more, class_="parts")


def _box(facts: PartFacts, above: Schema | str | None) -> Html:
    kind = "shared" if facts.workers else "ahead" if facts.thread else "loop"
    place = facts.workers or facts.thread or "your loop"
    said = " · ".join(filter(None, (facts.level, facts.count, facts.access)))
    return element(
        "li",
        element("div", element("code", clip(facts.part, _PART)), element("span", f"in {place}", class_="place")),
        element("div", said, class_="muted"),
        *_columns(facts.schema, above),
        *(element("div", clip(note, _PART), class_="muted") for note in facts.notes[:_NOTES]),
        class_=f"{kind} first" if facts.begins else kind,
        style=f"margin-left:{1.5 * min(facts.depth, _DEEPEST)}em" if facts.depth else None,
    )


def _columns(schema: Schema | str, above: Schema | str | None) -> Iterator[Html]:
    """Yield the columns, or what has changed since the box above; nothing where that is nothing."""
    if isinstance(schema, str):
        yield element("div", clip(schema, _PART), class_="muted")
        return
    before = {} if above is None or isinstance(above, str) else {field.name: field.type for field in above}
    new = [field for field in schema if before.get(field.name) != field.type]
    gone = len(before.keys() - {field.name for field in schema})
    rest = [f"{len(new) - _COLUMNS:,} more"] if len(new) > _COLUMNS else []
    rest += [f"{len(schema) - len(new):,} as before"] if len(new) < len(schema) else []
    rest += [f"{gone:,} left out"] if gone else []
    said = "no columns" if not len(schema) else f"and {', '.join(rest)}" if new and rest else ", ".join(rest)
    if new or gone or not (before or len(schema)):
        yield element("div", *map(_column, new[:_COLUMNS]), element("span", said, class_="muted") if said else "")


def _column(field: Any) -> Html:
    return element("span", clip(field.name, _COLUMN), " ", element("i", clip(field.type, _COLUMN)), class_="column")
