"""The command `mlxfp new`: a folder with all files for a run on own data."""

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

_ROWS, _LENGTHS = 200, (64, 128, 256, 512)  # number of inspected rows, and possible values of text.max_length

# Options that users change most in a first run. A small model, three folds and five epochs give a quick first result.
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

| file | content |
| --- | --- |
| `{spec}` | the inferred columns of the data; correct mistakes here |
| `{config}` | the options of the run |
| `{schema}` | a JSON schema, so that an editor completes and checks `{config}` |
| `{notebook}` | the same run, step by step |

```sh
mlxfp data check {quoted} --spec {here}/{spec}
mlxfp inspect {here}/{config}
mlxfp run {here}/{config}
```

The first command compares the data with the spec. The second command shows rows as text and tokens, and reports rows longer than
`text.max_length`, which would be cut. The third command trains and evaluates every fold. It writes predictions and a report into
`runs/{name}`, and a submission if there are a test and a sample file. After an interruption, the same command continues the run.

Paths are absolute, so that the commands work in any folder. If you move the data or this folder, change `output`, `data.path` and
`data.spec`.
"""

# Notebook cells as pairs of Markdown text and code. The code is None in cells without code.
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
        "## The input of the model\n\nThe first fold, fitted on the training rows of the fold.",
        "fold = fp.runs.prepare(config)\nfold.batches",
    ),
    ("A batch, with the first rows as text:", "fp.inspect.show_batch(next(iter(fold.batches)), tokenizer=fold.recipe.tokenizer)"),
    ("## The run\n\nTo continue after an interruption, run this cell again.", _RUN),
    ("The report, as a page:", 'event.folder / "report.html"'),
)


def add(commands: Commands) -> None:
    """Add `new`."""
    command = add_command(commands, "new", _new, example="mlxfp new ship --data data/ship\nmlxfp new cats --data cats.csv --target purrs")
    command.add_argument("folder", metavar="FOLDER", help="the folder to create")
    command.add_argument("--data", metavar="DATA", required=True, help="a folder with a train file, or a file: CSV, Parquet or JSON lines")
    command.add_argument("--target", metavar="COLUMN", action="append", help="the column to predict, if mlxfp cannot infer the target")


def _new(options: Namespace) -> int:
    """Create a project folder: a spec of the data, a working configuration, a notebook and a README."""
    folder, data = Path(options.folder), Path(options.data).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(
            f"{options.folder!r} exists and is not an empty folder, and mlxfp does not overwrite files. Give another folder."
        )
    choices = known_names()  # imports MLX
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
    root = folder.resolve()
    save_spec(spec, root / _SPEC)
    words = {"name": root.name, "config": _CONFIG, "spec": _SPEC, "schema": _SCHEMA, "notebook": _NOTEBOOK, "folder": str(folder_of(data))}
    files = {
        _SCHEMA: json.dumps(json_schema(choices), indent=2) + "\n",
        _CONFIG: _config(root, data, _length(spec, folder_of(data))),
        _NOTEBOOK: _notebook(words),
        _README: _readme(words, root, data, spec),
    }
    for name, text in files.items():
        (root / name).write_text(text, "utf-8")
    say(f"{folder}: {', '.join((_SPEC, *files))}\nNext: mlxfp run {quote(str(folder / _CONFIG))}")
    return 0


def _length(spec: "DatasetSpec", folder: Path) -> int:
    """Estimate the maximum number of tokens per row from the word counts. Numbers and rare words take several tokens."""
    from mlxfp import pipe, take
    from mlxfp.app.kaggle.rows.row_to_text import fit_row_to_text
    from mlxfp.app.kaggle.specs.reading import read_part

    rows = pipe(read_part(spec, folder), take(_ROWS))
    texts = pipe(rows, fit_row_to_text(spec, rows, form="sentence"))
    words = max(len(re.findall(r"\w+|[^\w\s]", row["text"])) for row in texts)
    return next((size for size in _LENGTHS if 1.5 * words <= size), _LENGTHS[-1])


def _config(root: Path, data: Path, length: int) -> str:
    """Return a configuration as YAML with a comment for each option."""
    options = {"name": root.name, "output": str(root / "runs"), "data": {"path": str(data), "spec": str(root / _SPEC)}, **_OPTIONS}
    options["text"] = _TEXT | {"max_length": length}
    head = (f"# yaml-language-server: $schema={_SCHEMA}", f"# All options: mlxfp config show {quote(str(root / _CONFIG))} --origins")
    return "\n".join((*head, *_lines(options, RunConfig))) + "\n"


def _lines(values: Mapping[str, Any], kind: Any) -> Iterator[str]:
    known = {field.name: field for field in fields(kind)}
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield f"\n{name}:"
            yield from (indent(line, "  ") for line in _lines(value, known[name].type))
        else:
            yield fill(known[name].metadata["about"], 100, initial_indent="# ", subsequent_indent="# ")
            yield write_document({name: value}).rstrip("\n")


def _notebook(words: Mapping[str, str]) -> str:
    """Return the notebook as JSON in the Jupyter format 4.5."""
    cells = []
    for index, (text, code) in enumerate(_CELLS):
        cells.append({"cell_type": "markdown", "id": f"text-{index}", "metadata": {}, "source": text.format(**words)})
        if code is not None:
            empty: dict[str, Any] = {"execution_count": None, "outputs": []}
            cells.append({"cell_type": "code", "id": f"code-{index}", "metadata": {}, "source": code.format(**words), **empty})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _readme(words: Mapping[str, str], root: Path, data: Path, spec: "DatasetSpec") -> str:
    paths = {"data": f"`{data}`", "here": quote(str(root)), "quoted": quote(str(data))}
    return _ABOUT.format(**words, **paths, kind=spec.kind, target=", ".join(spec.target), metric=spec.metric)
