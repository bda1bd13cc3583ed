"""How a pipeline looks as a diagram: a box for each part, with what comes out of it and where it runs."""

from collections.abc import Iterable, Iterator
from itertools import islice

from attrs import frozen

from mlxfp._html import Html, clip, element
from mlxfp.core.chunks import Schema

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


def diagram(facts: Iterable[PartFacts]) -> Html:
    """Return a list of boxes, the first ones of a long pipeline."""
    shown = list(islice(facts, _PARTS + 1))
    more = [element("li", "…", class_="muted")] if len(shown) > _PARTS else []
    return element("ol", *map(_box, shown[:_PARTS]), *more, class_="parts")


def _box(facts: PartFacts) -> Html:
    kind = "shared" if facts.workers else "ahead" if facts.thread else "loop"
    place = facts.workers or facts.thread or "your loop"
    said = " · ".join(filter(None, (facts.level, facts.count, facts.access)))
    return element(
        "li",
        element("div", element("code", clip(facts.part, _PART)), element("span", f"in {place}", class_="place")),
        element("div", said, class_="muted"),
        element("div", *_columns(facts.schema)),
        *(element("div", clip(note, _PART), class_="muted") for note in facts.notes[:_NOTES]),
        class_=f"{kind} first" if facts.begins else kind,
        style=f"margin-left:{1.5 * min(facts.depth, _DEEPEST)}em" if facts.depth else None,
    )


def _columns(schema: Schema | str) -> Iterator[Html]:
    if isinstance(schema, str):
        yield element("span", clip(schema, _PART), class_="muted")
        return
    for field in islice(schema, _COLUMNS):
        yield element("span", clip(field.name, _COLUMN), " ", element("i", clip(field.type, _COLUMN)), class_="column")
    if not len(schema):
        yield element("span", "no columns", class_="muted")
    if len(schema) > _COLUMNS:
        yield element("span", f"and {len(schema) - _COLUMNS:,} more columns", class_="muted")
