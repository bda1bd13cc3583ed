"""The command `mlxfp new`: create a folder with all files for a run on your own data."""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

from attrs import fields

from mlxfp.app.cli.configuring import known_names
from mlxfp.app.cli.data_sets import inferred_spec, warn_of_columns
from mlxfp.app.cli.parsing import Commands, add_command, say
from mlxfp.app.config.classes import RunConfig
from mlxfp.app.config.loading import SCHEMA, json_schema
from mlxfp.app.config.presets import PRESETS
from mlxfp.support.atomic_files import write_whole
from mlxfp.support.errors import ArgumentError
from mlxfp.support.yaml_files import write_document

if TYPE_CHECKING:
    from mlxfp.app.kaggle.specs.specs import DatasetSpec

_CONFIG, _SPEC, _NOTEBOOK, _README = "config.yaml", "spec.yaml", "notebook.ipynb", "README.md"

# The configuration file of a new project contains this preset and the options that users change most in a first run.
_PRESET = "auto"
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "model": PRESETS[_PRESET]["model"],
    "observers": PRESETS[_PRESET]["observers"],
    "training": {"seed": 0},
    "validation": {"folds": 5},
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
mlxfp run {here}/{config}
mlxfp predict {here}/runs/{name} --data new.csv
```

The first command compares the data with the spec. The second command trains several models on the same folds, within the time limit
`observers.minutes`, and blends the models. It writes predictions and a report into `runs/{name}`, and a submission if there are a test
and a sample file. The report compares the blend with its members and with a linear model. After an interruption, the same command
continues the run. The third command predicts the rows of a new file.

To train one model with options of your own, remove `preset` and set `model.name`, for example to `modernbert`.

Paths are absolute, so that the commands work in any folder. If you move the data or this folder, change `output`, `data.path` and
`data.spec`.
"""

# Pairs of Markdown text and code for the notebook. The code is None if no code follows the text.
_LOAD = """import mlxfp as fp

fp.runtime.use_fast_blas()
config = fp.runs.load_config({config!r}).config
spec = fp.kaggle.load_spec(config.data.spec)
rows = fp.kaggle.read_part(spec, {folder!r})
rows"""
_PREDICT = """predictions = fp.runs.predict(event.folder, {test!r}, probabilities=False)
fp.from_table(predictions)"""
_RUN = """for event in fp.runs.run(config):
    if isinstance(event, fp.runs.Weighed):
        print(event)
event"""
_CELLS = (
    ("# {name}\n\nThe run of `{config}`, step by step. Start it in the folder of this notebook.", None),
    ("## The data", _LOAD),
    (
        "## The run\n\nThe run trains several models and blends the models. To continue after an interruption, run this cell again.",
        _RUN,
    ),
    ("The score on rows that no model was trained on:", "event.score"),
    ("The report, as a page. It compares the blend with its members and with a linear model:", 'event.folder / "report.html"'),
    ("## Predictions\n\nThe predicted rows of a file. Replace the path to predict other rows.", _PREDICT),
)


def add(commands: Commands) -> None:
    """Add `new`."""
    command = add_command(commands, "new", _new, example="mlxfp new ship --data data/ship\nmlxfp new cats --data cats.csv --target purrs")
    command.add_argument("folder", metavar="FOLDER", help="the folder to create")
    command.add_argument("--data", metavar="DATA", required=True, help="a folder with a train file, or a file: CSV, Parquet or JSON lines")
    command.add_argument("--target", metavar="COLUMN", action="append", help="the column to predict, if mlxfp cannot infer the target")
    command.add_argument("--encoding", help="the encoding of CSV files, such as cp1252 (default: utf-8)")


def _new(options: Namespace) -> int:
    """Create a project folder: a spec of the data, a working configuration, a notebook and a README."""
    folder, data = Path(options.folder), Path(options.data).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(
            f"{options.folder!r} exists and is not an empty folder, and mlxfp does not overwrite files. Give another folder."
        )
    choices = known_names()  # imports MLX
    from mlxfp.app.kaggle.specs.reading import folder_of
    from mlxfp.app.kaggle.specs.spec_files import save_spec

    spec = inferred_spec(data, options.target, options.encoding)
    warn_of_columns(spec, data)
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    save_spec(spec, root / _SPEC)
    rows, part = folder_of(data), spec.test or spec.train
    words = {"name": root.name, "config": _CONFIG, "spec": _SPEC, "schema": SCHEMA, "notebook": _NOTEBOOK}
    words |= {"folder": str(rows), "test": str(rows / part.name)}
    files = {
        SCHEMA: json.dumps(json_schema(choices), indent=2) + "\n",
        _CONFIG: _config(root, data),
        _NOTEBOOK: _notebook(words),
        _README: _readme(words, root, data, spec),
    }
    for name, text in files.items():
        write_whole(root / name, text.encode())
    say(f"{folder}: {', '.join((_SPEC, *files))}\nNext: mlxfp run {quote(str(folder / _CONFIG))}")
    return 0


def _config(root: Path, data: Path) -> str:
    """Return a configuration as YAML with a comment for each option."""
    options = {"name": root.name, "output": str(root / "runs"), "data": {"path": str(data), "spec": str(root / _SPEC)}, **_OPTIONS}
    head = (f"# yaml-language-server: $schema={SCHEMA}", f"# All options: mlxfp config show {quote(str(root / _CONFIG))} --origins")
    preset = ("# The settings to start from: several models, chosen for the data and blended.", f"preset: {_PRESET}")
    return "\n".join((*head, *preset, *_lines(options, RunConfig))) + "\n"


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
