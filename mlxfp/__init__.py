"""Data pipelines and training for MLX, as values and pure functions.

A pipeline is a source and stages, joined by `pipe`. Building a pipeline reads no data; a loop over the pipeline runs it.

>>> import mlxfp as fp
>>> rows = fp.from_examples([{"x": 1.0, "y": 0}, {"x": 2.0, "y": 1}, {"x": 3.0, "y": 1}])
>>> batches = fp.pipe(rows, fp.map(lambda row: {**row, "x": row["x"] / 2}), fp.batch(2))
>>> [group.column("x").to_pylist() for group in batches]
[[0.5, 1.0], [1.5]]

- Sources: `read_csv`, `read_jsonl`, `read_parquet`, `read_images`, ..., `from_examples`, `from_table`, `from_hf`, `from_torch`.
- Stages: `map`, `filter`, `shuffle`, `split`, `template`, `tokenize`, `pack`, `batch`, `collate` with one of `collators`, `prefetch`, ...
- Looking: `explain`, `preview`, `show_batch`, `schema`, `length`, `profile`, `column_stats`.
- Training: `train_state`, `train_step`, `fit`, `last`, `evaluate`, `predict`; families `losses`, `metrics`, `models`, `observers`,
  `optimizers`, `schedules`. Whole runs from a configuration: `runs`. Competitions: `kaggle`.

Families are modules: `from mlxfp.losses import cross_entropy`. `help(fp.batch)` explains one name, `dir(fp)` lists all.
"""

# Public names are imported on first use, so that `import mlxfp` loads neither MLX nor Arrow.
# `__init__.pyi` is the only list of public names and their modules. Type checkers and the functions below read the list.

from importlib import import_module

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    homes = _homes()
    if name == "__all__":
        value: object = sorted(homes)
    elif name in homes:
        home = import_module(homes[name])
        value = import_module(f"{home.__name__}.{name}") if hasattr(home, "__path__") else getattr(home, name)
    else:
        names = import_module("mlxfp.support.foreign_names")
        ours = names.moved_name(name) or names.name_hint(name)
        hint = f" Write {ours}." if ours else import_module("mlxfp.support.errors").suggest(name, homes)
        raise AttributeError(f"module 'mlxfp' has no attribute {name!r}{hint and f'.{hint}'}", name=name)  # `obj=` adds a second suggestion
    globals()[name] = value  # store the value in the module, so that Python calls `__getattr__` only once per name
    return value


def __dir__() -> list[str]:
    return sorted(_homes())


def _homes() -> dict[str, str]:
    """Map every public name to its module or package."""
    stub = __loader__.get_data(f"{__path__[0]}/__init__.pyi").decode()
    imports = [line.split() for line in stub.splitlines() if line.startswith("from ")]
    return {name: home for _, home, _, name, *_ in imports}
