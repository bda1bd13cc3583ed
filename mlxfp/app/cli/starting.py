"""`mlxfp new`: a folder to start from, with everything that a run of one's own data needs."""

import json
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

from attrs import fields

from mlxfp.app.cli.configuring import known_names
from mlxfp.app.cli.parsing import Commands, add_command, say
from mlxfp.app.config.classes import RunConfig
from mlxfp.app.config.loading import json_schema
from mlxfp.support.errors import ArgumentError, MlxfpError
from mlxfp.support.yaml_files import write_document

if TYPE_CHECKING:
    from mlxfp.app.kaggle.specs.specs import DatasetSpec

_CONFIG, _SPEC, _NOTEBOOK, _README, _SCHEMA = "config.yaml", "spec.yaml", "notebook.ipynb", "README.md", "mlxfp.schema.json"

_ROWS, _LENGTHS = 200, (64, 128, 256, 512)  # rows that are looked at, and the tokens of a row to choose from

# What a first run changes most; everything else has its default. A small model, three folds and five epochs are a quick first look.
_TEXT = {"form": "sentence", "overflow": "cut"}
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "text": _TEXT,
    "model": {"name": "encoder", "size": "tiny"},
    "optimizer": {"learning_rate": 5e-4},
    "training": {"epochs": 5, "size": 32, "seed": 0},
    "validation": {"folds": 3},
    "observers": {"patience": None},
}

_ABOUT = """# {name}

A run of mlxfp on {data}: {kind}, target {target}, metric {metric}.

| file | what it is |
| --- | --- |
| `{spec}` | the columns of the data, as they were inferred: correct them here |
| `{config}` | the options of the run |
| `{schema}` | with it an editor completes and checks `{config}` |
| `{notebook}` | the same run, step by step |

```sh
mlxfp data check {quoted} --spec {here}/{spec}
mlxfp inspect {here}/{config}
mlxfp run {here}/{config}
```

The first command compares the data with the spec. The second one shows rows as text and tokens, and says whether rows are longer than
`text.max_length`, and so would be cut. The third one trains and evaluates every fold, and writes predictions, a report and, with a test
and a sample file, a submission into `runs/{name}`. After an interruption, the same command continues the run.

Paths are absolute, so that the commands work in any folder. Change `output`, `data.path` and `data.spec` if you move something.
"""

# Cells of the notebook: text, and code where there is some.
_LOAD = """import mlxfp as fp

fp.runtime.use_fast_blas()
config = fp.runs.load_config({config!r}).config
spec = fp.kaggle.load_spec(config.data.spec)
rows = fp.kaggle.read_part(spec, {folder!r})
rows"""
_RUN = """for event in fp.runs.run(config):
    if isinstance(event, fp.runs.FoldEnded):
        print(event)
event"""
_CELLS = (
    ("# {name}\n\nThe run of `{config}`, step by step. Start it in the folder of this notebook.", None),
    ("## The data", _LOAD),
    (
        "## What the model reads\n\nThe first fold, fitted on its training rows.",
        "fold = fp.runs.prepare(config)\nfold.batches",
    ),
    ("A batch, with its first rows as text:", "fp.inspect.show_batch(next(iter(fold.batches)), tokenizer=fold.recipe.tokenizer)"),
    ("## The run\n\nInterrupt this cell, and run it again to continue.", _RUN),
    ("The report, as a page:", 'event.folder / "report.html"'),
)


def add(commands: Commands) -> None:
    """Add `new`."""
    command = add_command(commands, "new", _new, example="mlxfp new ship --data data/ship\nmlxfp new cats --data cats.csv --target purrs")
    command.add_argument("folder", metavar="FOLDER", help="the folder to make")
    command.add_argument("--data", metavar="DATA", required=True, help="a folder with a train file, or a file: CSV, Parquet or JSON lines")
    command.add_argument("--target", metavar="COLUMN", action="append", help="the column to predict, where it cannot be inferred")


def _new(options: Namespace) -> int:
    """Make a folder to start from: a spec of the data, a configuration that runs as it is, a notebook and a README."""
    folder, data = Path(options.folder), Path(options.data).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(f"{options.folder!r} exists and is not an empty folder. Give another name: nothing is overwritten.")
    choices = known_names()  # this imports MLX
    from mlxfp.app.kaggle.specs.inferring import infer_spec
    from mlxfp.app.kaggle.specs.reading import folder_of
    from mlxfp.app.kaggle.specs.spec_files import save_spec

    try:
        spec = infer_spec(data, target=options.target)
    except MlxfpError as error:
        if options.target is None and isinstance(error, ArgumentError):
            error.add_note("On the command line: --target COLUMN.")
        raise
    folder.mkdir(parents=True, exist_ok=True)
    here = folder.resolve()
    save_spec(spec, here / _SPEC)
    words = {"name": here.name, "config": _CONFIG, "spec": _SPEC, "schema": _SCHEMA, "notebook": _NOTEBOOK, "folder": str(folder_of(data))}
    files = {
        _SCHEMA: json.dumps(json_schema(choices), indent=2) + "\n",
        _CONFIG: _config(here, data, _length(spec, folder_of(data))),
        _NOTEBOOK: _notebook(words),
        _README: _readme(words, here, data, spec),
    }
    for name, text in files.items():
        (here / name).write_text(text, "utf-8")
    say(f"{folder}: {', '.join((_SPEC, *files))}\nNext: mlxfp run {quote(str(folder / _CONFIG))}")
    return 0


def _length(spec: "DatasetSpec", folder: Path) -> int:
    """Return how many tokens rows need, from their words: numbers and rare words are several tokens."""
    from mlxfp import pipe, take
    from mlxfp.app.kaggle.rows.row_to_text import fit_row_to_text
    from mlxfp.app.kaggle.specs.reading import read_part

    rows = pipe(read_part(spec, folder), take(_ROWS))
    texts = pipe(rows, fit_row_to_text(spec, rows, form="sentence"))
    words = max(len(re.findall(r"\w+|[^\w\s]", row["text"])) for row in texts)
    return next((size for size in _LENGTHS if 1.5 * words <= size), _LENGTHS[-1])


def _config(here: Path, data: Path, length: int) -> str:
    """Write a configuration, each option with a comment that says what it is."""
    options = {"name": here.name, "output": str(here / "runs"), "data": {"path": str(data), "spec": str(here / _SPEC)}, **_OPTIONS}
    options["text"] = _TEXT | {"max_length": length}
    head = (f"# yaml-language-server: $schema={_SCHEMA}", f"# All options: mlxfp config show {quote(str(here / _CONFIG))} --origins")
    return "\n".join((*head, *_lines(options, RunConfig))) + "\n"


def _lines(values: Mapping[str, Any], kind: Any) -> Iterator[str]:
    known = {each.name: each for each in fields(kind)}
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield f"\n{name}:"
            yield from (indent(line, "  ") for line in _lines(value, known[name].type))
        else:
            yield fill(known[name].metadata["about"], 100, initial_indent="# ", subsequent_indent="# ")
            yield write_document({name: value}).rstrip("\n")


def _notebook(words: Mapping[str, str]) -> str:
    """Write the notebook, in the format of Jupyter, version 4.5."""
    cells = []
    for place, (text, code) in enumerate(_CELLS):
        cells.append({"cell_type": "markdown", "id": f"text-{place}", "metadata": {}, "source": text.format(**words)})
        if code is not None:
            empty: dict[str, Any] = {"execution_count": None, "outputs": []}
            cells.append({"cell_type": "code", "id": f"code-{place}", "metadata": {}, "source": code.format(**words), **empty})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _readme(words: Mapping[str, str], here: Path, data: Path, spec: "DatasetSpec") -> str:
    places = {"data": f"`{data}`", "here": quote(str(here)), "quoted": quote(str(data))}
    return _ABOUT.format(**words, **places, kind=spec.kind, target=", ".join(spec.target), metric=spec.metric)
