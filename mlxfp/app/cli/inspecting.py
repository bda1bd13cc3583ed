"""`mlxfp inspect`: the input of a model, before anything is trained."""

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from attrs import evolve

from mlxfp.app.cli.configuring import add_code, add_config, known_names, loaded
from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx, warn

if TYPE_CHECKING:
    from mlxfp.app.config.classes import RunConfig
    from mlxfp.app.runs import PreparedFold

_SHOWN = 2  # rows in full: a table of tokens is long


def add(commands: Commands) -> None:
    """Add `inspect`."""
    example = "mlxfp inspect titanic --data data/titanic\nmlxfp inspect run.yaml text.form=key_value --part tokens --part shapes"
    command = add_command(commands, "inspect", _inspect, example=example)
    add_config(command)
    add_code(command)
    command.add_argument("--part", choices=tuple(_PARTS), action="append", help="show only this part; may be repeated (default: all parts)")


def _inspect(options: Namespace) -> int:
    """Show the input of a model: rows as text and tokens, their cost, shapes, and where time is spent. Trains nothing."""
    for problem in start_mlx():
        warn(problem)
    config = loaded(options, known_names()).config
    made = _prepare(config, options.code)
    for name, show in _PARTS.items():
        if not options.part or name in options.part:
            for line in (f"== {name}", *show(made, config), ""):
                say(line)
    return 0


def _prepare(config: "RunConfig", code: str | None) -> "PreparedFold":
    """Prepare the first fold; rows that are too long are cut, since their cost is what a user inspects."""
    from mlxfp.app.runs import prepare

    cut = evolve(config, text=evolve(config.text, overflow="cut"))
    if config.data.path is not None:
        return prepare(cut, code=code)
    with TemporaryDirectory() as folder:  # the rows are in memory once the fold is prepared
        prepared = prepare(evolve(cut, output=folder), code=code)
        warn("data.path is not set, so these rows are synthetic.")
        return prepared


def _preview(made: "PreparedFold", _: "RunConfig") -> Iterator[str]:
    from mlxfp import pipe, select_columns
    from mlxfp.app.tasks.recipes import Recipe
    from mlxfp.inspect import preview

    if isinstance(made.recipe, Recipe):
        texts = pipe(made.recipe.text(made.splits.train), select_columns(["text"]))
        yield from (f"row {place}: {row['text']}" for place, row in zip(range(_SHOWN), texts, strict=False))
    yield preview(made.batches, count=1, tokenizer=made.recipe.tokenizer)


def _schema(made: "PreparedFold", _: "RunConfig") -> Iterator[str]:
    from mlxfp import schema

    for name, rows in (("rows", made.splits.train), ("groups of tokens", made.batches)):
        yield f"{name}:"
        yield from (f"  {field.name}: {field.type}" for field in schema(rows))


def _tokens(made: "PreparedFold", config: "RunConfig") -> Iterator[str]:
    """Count the tokens of the training rows, by column, and of the other rows, which may be longer, as a whole."""
    parts = {"train": made.splits.train, "valid": made.splits.valid, "test": made.splits.test}
    found = {name: made.recipe.budget(rows) for name, rows in parts.items() if rows is not None}
    budgets = {name: budget for name, budget in found.items() if budget is not None}
    if not budgets:
        yield f"{config.model.name} reads columns, and no tokens."
    for name, budget in budgets.items():
        whole, *columns = str(budget).splitlines()
        yield from (f"{name}: {whole}", *(columns if name == "train" else ()))
    if config.text.overflow == "refuse" and any(budget.over for budget in budgets.values()):
        yield "A run would be refused: raise text.max_length, or allow it with text.overflow=cut."


def _shapes(made: "PreparedFold", _: "RunConfig") -> Iterator[str]:
    """Count the shapes of an epoch's batches: each is compiled once."""
    from mlxfp.inspect import batch_shapes

    if made.recipe.tokenizer is None:
        counts = Counter(len(batch["labels"]) for batch in made.batches)
        yield from (f"{count:>6,} batches of {rows} rows" for rows, count in sorted(counts.items()))
        return
    found = Counter(tuple(batch["input_ids"].shape) for batch in made.batches)
    yield from (f"{count:>6,} batches of {rows} rows x {length} tokens" for (rows, length), count in sorted(found.items()))
    yield f"shapes in the first epoch: {len(found)}; in any epoch at most: {len(batch_shapes(made.batches))}"


def _profile(made: "PreparedFold", _: "RunConfig") -> Iterator[str]:
    from mlxfp.inspect import profile

    yield repr(profile(made.batches))


_PARTS: Mapping[str, Callable[[Any, Any], Iterator[str]]] = {
    "preview": _preview,
    "schema": _schema,
    "tokens": _tokens,
    "shapes": _shapes,
    "profile": _profile,
}
