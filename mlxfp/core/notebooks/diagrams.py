"""Diagrams of pipelines: a box for each source and stage, with the output and the thread or workers."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from attrs import frozen

from mlxfp.core.chunks import Schema
from mlxfp.support.html import Html, clip, element
from mlxfp.support.terminal import COLUMNS, columns_text, printed

# Maximum numbers in a diagram: stages and sources, characters per stage, notes per stage, columns per stage, characters per column.
_PARTS, _PART, _NOTES, _COLUMNS, _COLUMN = 40, 300, 4, 12, 60
_DEEPEST = 8  # maximum indentation level in a diagram; each joined dataset is indented by one level


@frozen
class PartFacts:
    """Facts about one source or stage of a pipeline, for a diagram. The pipeline does not run.

    `depth` is the indentation level: 0 in the pipeline itself, 1 in a dataset that the pipeline joins, and so on.
    """

    depth: int
    begins: bool  # True for the source at the start of a pipeline, such as a file
    part: str
    level: str
    schema: Schema | str  # the schema, or the reason for a missing schema
    count: str  # number and kind of the items, such as "5 examples"
    access: str  # text about random access: "random access", "no random access from here on", or empty
    notes: tuple[str, ...]
    thread: str  # name of the thread that runs the stage or source; empty for the thread that reads the pipeline
    workers: str  # description of the workers that run the part; empty without workers

    def about(self, above: "PartFacts | None") -> Iterator[str]:
        """Yield lines about the items and columns of the output. With the preceding stage or source `above`, list only changed columns."""
        before = None if above is None else above.schema
        if isinstance(self.schema, str):
            columns = "schema not known, see above" if self.schema == before else self.schema
        elif self.level == "batches":
            columns = "arrays" if above is not None else f"arrays of {columns_text(self.schema)}"
        elif before is None or isinstance(before, str):
            columns = columns_text(self.schema)
        else:
            columns = _changes_text(self.schema, before)
        repeated = above is not None and not self.count[0].isdigit() and _without_level(self) == _without_level(above)
        yield "; ".join(filter(None, (f"{self.level if repeated else self.count}: {columns}", self.access)))
        yield from self.notes


def diagram(facts: Iterable[PartFacts]) -> Html:
    """Return a diagram of a pipeline as an HTML list with a box for each source and stage. A long pipeline is truncated."""
    shown = list(islice(facts, _PARTS + 1))
    above = [None, *(part.schema for part in shown)]
    boxes = [_box(part, None if part.begins else before) for part, before in zip(shown[:_PARTS], above, strict=False)]
    more = [element("li", "…", class_="muted")] if len(shown) > _PARTS else []
    return element("ol", *boxes, *more, class_="parts")


def _box(facts: PartFacts, above: Schema | str | None) -> Html:
    kind = "shared" if facts.workers else "ahead" if facts.thread else "loop"
    location = facts.workers or facts.thread or "your loop"
    summary = " · ".join(filter(None, (facts.count, facts.access)))
    return element(
        "li",
        element("div", element("code", clip(facts.part, _PART)), element("span", f"in {location}", class_="place")),
        element("div", summary, class_="muted"),
        *_columns(facts.schema, above),
        *(element("div", clip(note, _PART), class_="muted") for note in facts.notes[:_NOTES]),
        class_=f"{kind} first" if facts.begins else kind,
        style=f"margin-left:{1.5 * min(facts.depth, _DEEPEST)}em" if facts.depth else None,
    )


def _columns(schema: Schema | str, above: Schema | str | None) -> Iterator[Html]:
    """Yield HTML for the columns of a schema. If the preceding schema `above` is given, list only changed columns."""
    if isinstance(schema, str):
        yield element("div", clip(schema, _PART), class_="muted")
        return
    before = {} if above is None or isinstance(above, str) else {field.name: field.type for field in above}
    new = [field for field in schema if before.get(field.name) != field.type]
    dropped = len(before.keys() - {field.name for field in schema})
    rest = [f"{len(new) - _COLUMNS:,} more"] if len(new) > _COLUMNS else []
    rest += [f"{len(schema) - len(new):,} as before"] if len(new) < len(schema) else []
    rest += [f"{dropped:,} left out"] if dropped else []
    summary = "no columns" if not len(schema) else f"and {', '.join(rest)}" if new and rest else ", ".join(rest)
    if new or dropped or not (before or len(schema)):
        yield element("div", *map(_column, new[:_COLUMNS]), element("span", summary, class_="muted") if summary else "")


def _without_level(facts: PartFacts) -> str:
    return facts.count.replace(facts.level, "")


def _changes_text(schema: Schema, above: Schema) -> str:
    new, changed, dropped = changes(schema, above)
    kinds = (("new", new), ("changed", changed))
    texts = [f"{kind} {columns_text(fields)}" for kind, fields in kinds if fields]
    texts += [f"without {', '.join(printed(name) for name in dropped[:COLUMNS])}"] if dropped else []
    return ", ".join(texts) or "same columns"


def changes(schema: Schema, above: Schema) -> tuple[list[Any], list[Any], list[str]]:
    """Compare two schemas. Return the new fields, the fields with another type, and the names of the fields that only `above` has."""
    before, names = {field.name: field.type for field in above}, set(schema.names)
    new = [field for field in schema if field.name not in before]
    changed = [field for field in schema if field.name in before and field.type != before[field.name]]
    return new, changed, [field.name for field in above if field.name not in names]


def _column(field: Any) -> Html:
    return element("span", clip(field.name, _COLUMN), " ", element("i", clip(field.type, _COLUMN)), class_="column")
