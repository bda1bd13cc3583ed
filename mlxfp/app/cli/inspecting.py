"""The command `mlxfp inspect`, which shows the tokens and batches of a configuration before training."""

import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from attrs import evolve

from mlxfp.app.cli.configuring import add_code, add_config, config_arguments, known_names, loaded
from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx_quietly, warn

if TYPE_CHECKING:
    from mlxfp.app.config.classes import RunConfig
    from mlxfp.app.runs import PreparedFold

_SHOWN_MODEL = "encoder"  # for model.name=auto, `inspect` previews the inputs of an encoder
_SHOWN = 2  # number of rows in the preview


def add(commands: Commands) -> None:
    """Add `inspect`."""
    example = "mlxfp inspect titanic --data data/titanic\nmlxfp inspect run.yaml text.form=key_value --part tokens --part shapes"
    command = add_command(commands, "inspect", _inspect, example=example)
    add_config(command)
    add_code(command)
    command.add_argument("--part", choices=tuple(_PARTS), action="append", help="show only this part; may be repeated (default: all parts)")


def _inspect(options: Namespace) -> int:
    """Show the training inputs of a configuration: example rows as text and tokens, token counts, batch shapes and the time of a step."""
    start_mlx_quietly()
    config = loaded(options, known_names()).config
    if config.model.name == "auto":
        words = shlex.join([*config_arguments(options), f"model.name={_SHOWN_MODEL}"])
        warn(f"model.name=auto trains several models. This shows the inputs of one model, as in: mlxfp inspect {words}")
        config = evolve(config, model=evolve(config.model, name=_SHOWN_MODEL))
    fold = _prepare(config, options.code)
    for name, show in _PARTS.items():
        if not options.part or name in options.part:
            for line in (f"== {name}", *show(fold, config), ""):
                say(line)
    return 0


def _prepare(config: "RunConfig", code: str | None) -> "PreparedFold":
    """Prepare the first fold of a run. Truncate rows above the token limit instead of raising an error."""
    from mlxfp.app.runs import prepare

    cut = evolve(config, text=evolve(config.text, overflow="cut"))
    if config.data.path is not None:
        return prepare(cut, code=code)
    with TemporaryDirectory() as folder:  # the folder can be deleted before the preview, because the prepared rows are in memory
        prepared = prepare(evolve(cut, output=folder), code=code)
        warn("data.path is not set, so the rows are synthetic. To inspect your own data, add --data PATH.")
        return prepared


def _preview(fold: "PreparedFold", _: "RunConfig") -> Iterator[str]:
    from mlxfp import pipe, select_columns
    from mlxfp.app.tasks.recipes import Recipe
    from mlxfp.inspect import preview

    if isinstance(fold.recipe, Recipe):
        texts = pipe(fold.recipe.text(fold.splits.train), select_columns(["text"]))
        yield from (f"row {index}: {row['text']}" for index, row in zip(range(_SHOWN), texts, strict=False))
    yield preview(fold.batches, count=1, tokenizer=fold.recipe.tokenizer)


def _schema(fold: "PreparedFold", _: "RunConfig") -> Iterator[str]:
    from mlxfp import schema

    for name, rows in (("rows", fold.splits.train), ("groups of tokens", fold.batches)):
        yield f"{name}:"
        yield from (f"  {field.name}: {field.type}" for field in schema(rows))


def _tokens(fold: "PreparedFold", config: "RunConfig") -> Iterator[str]:
    """Yield the token counts of the training rows per column, and the total token counts of validation and test rows."""
    parts = {"train": fold.splits.train, "valid": fold.splits.valid, "test": fold.splits.test}
    computed = {name: fold.recipe.budget(rows) for name, rows in parts.items() if rows is not None}
    budgets = {name: budget for name, budget in computed.items() if budget is not None}
    if not budgets:
        yield f"The model {config.model.name} reads columns, so there are no tokens."
    for name, budget in budgets.items():
        whole, *columns = str(budget).splitlines()
        yield from (f"{name}: {whole}", *(columns if name == "train" else ()))
    if config.text.overflow == "refuse" and any(budget.over for budget in budgets.values()):
        yield "A run would fail: rows are longer than text.max_length. Raise text.max_length, or cut the rows: text.overflow=cut."


def _shapes(fold: "PreparedFold", _: "RunConfig") -> Iterator[str]:
    """Yield the batch shapes of an epoch with their counts. MLX compiles the step once per shape."""
    from mlxfp.inspect import batch_shapes

    if fold.recipe.tokenizer is None:
        counts = Counter(len(batch["labels"]) for batch in fold.batches)
        yield from (f"{count:>6,} batches of {rows} rows" for rows, count in sorted(counts.items()))
        return
    shapes = Counter(tuple(batch["input_ids"].shape) for batch in fold.batches)
    yield from (f"{count:>6,} batches of {rows} rows x {length} tokens" for (rows, length), count in sorted(shapes.items()))
    yield f"shapes in the first epoch: {len(shapes)}; maximum over all epochs: {len(batch_shapes(fold.batches))}"


def _profile(fold: "PreparedFold", _: "RunConfig") -> Iterator[str]:
    from mlxfp.inspect import profile

    yield repr(profile(fold.batches))


_PARTS: Mapping[str, Callable[[Any, Any], Iterator[str]]] = {
    "preview": _preview,
    "schema": _schema,
    "tokens": _tokens,
    "shapes": _shapes,
    "profile": _profile,
}
