"""How a dataset looks in a notebook: its parts with what comes out of each, and its first rows."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from mlxfp._html import Html, clip, element, fragment, table
from mlxfp.core.chunks import to_rows
from mlxfp.core.describing import part_facts
from mlxfp.core.execution import run, start
from mlxfp.core.nodes import Pipeline, children
from mlxfp.core.notebooks.rows import COLUMNS, ROWS, VALUE, rows_html, show

_PARTS, _PART = 40, 300  # parts of a pipeline, and characters of each


def dataset_html(dataset: Pipeline[Any]) -> str:
    """Show the parts of a pipeline with what comes out of each, and its first rows."""
    lines = list(islice(part_facts(dataset), _PARTS + 1))
    steps = [
        element("li", element("code", clip(part, _PART)), element("div", clip(facts, _PART), class_="muted"), style=_indent(indent))
        for indent, part, facts in lines[:_PARTS]
    ]
    more = [element("li", "…", class_="muted")] if len(lines) > _PARTS else []
    return fragment(element("ul", *steps, *more, class_="steps"), *_first(dataset))


def _indent(text: str) -> str | None:
    return f"margin-left:{text.count('|')}em" if "|" in text else None


def _gathers(dataset: Pipeline[Any]) -> bool:
    return getattr(dataset.source, "gathers", False) or any(map(_gathers, children(dataset.source)))


def _first(dataset: Pipeline[Any]) -> Iterator[Html]:
    if _gathers(dataset):
        yield element("p", "The first rows are not shown: a whole epoch would be read for them.", class_="muted")
        return
    try:
        with closing(run(dataset, start(0, None))) as items:
            found: Any = next(items, (None, None))[0]
        if found is None:
            yield element("p", "No items.", class_="muted")
        elif dataset.level == "batches":
            yield element("p", "The first batch:", class_="muted")
            yield table(["", "value"], [(clip(name, VALUE), show(value)) for name, value in islice(found.items(), COLUMNS)])
        else:
            yield element("p", f"The first {'rows' if dataset.level == 'examples' else 'group'}:", class_="muted")
            yield rows_html(to_rows(found.slice(0, ROWS)))
    except Exception as error:  # noqa: BLE001  # whatever a user's function raises: a notebook would show nothing at all
        yield element("p", f"The first rows cannot be shown: {clip(error, _PART)}", class_="muted")
