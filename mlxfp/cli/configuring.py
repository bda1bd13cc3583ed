"""`mlxfp config`: configurations shown with where each value was said, checked, and described; and how commands read one."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import indent
from typing import Any

from mlxfp.cli.parsing import Commands, add_command, add_group, say
from mlxfp.config.json_schemas import json_schema
from mlxfp.config.loading import Resolved, load_config
from mlxfp.config.presets import PRESETS
from mlxfp.core.errors import ArgumentError, MissingFileError
from mlxfp.settings.structuring import unstructure
from mlxfp.settings.yaml_files import write_document


def add(commands: Commands) -> None:
    """Add `config show`, `config check`, `config schema` and `config presets`."""
    group = add_group(commands, "config", about="Show, check and describe configurations.", example="mlxfp config show titanic")
    show = add_command(
        group,
        "show",
        _show,
        about="Print a whole configuration as YAML: a file again.",
        example="mlxfp config show run.yaml training.epochs=3 --origins",
    )
    add_config(show)
    show.add_argument("--origins", action="store_true", help="say behind each value where it was said")
    about = "Check a configuration: all mistakes at once, each with its line."
    add_config(add_command(group, "check", _check, about=about, example="mlxfp config check run.yaml training.epochs=3"))
    about = "Print the JSON schema of configuration files, for editors."
    add_command(group, "schema", _schema, about=about, example="mlxfp config schema > mlxfp.schema.json")
    about = "List the presets and what they set, or print one as YAML."
    presets = add_command(group, "presets", _presets, about=about, example="mlxfp config presets titanic > run.yaml")
    presets.add_argument("name", metavar="NAME", nargs="?", help="the one to print")


def add_config(command: ArgumentParser) -> None:
    """Add the arguments that say a configuration: what `load` takes."""
    command.add_argument("config", metavar="CONFIG", help="a YAML or JSON file, or the name of a preset")
    command.add_argument("overrides", metavar="key=value", nargs="*", help="values that go before those of CONFIG, as in training.epochs=3")
    command.add_argument("--preset", metavar="NAME", help="settings below those of the file, in place of a preset that it names")
    command.add_argument("--data", metavar="PATH", help="short for data.path=PATH")


def load(config: str, overrides: Sequence[str] = (), *, preset: str | None = None, data: str | None = None) -> Resolved:
    """Read a configuration: of a YAML or JSON file, or else of the preset with that name.

    `preset` lies below the values of a file, `overrides` such as `training.epochs=3` above, and `data` is short for `data.path=`. Raises
    `MissingFileError` if there is neither such a file nor such a preset, and what `load_config` raises.

    >>> load("titanic", ["training.epochs=3"], data="data/titanic").config.data
    DataConfig(path='data/titanic', spec='titanic', limit=None, prefetch=2)
    """
    # Quoted, so that a path that reads like a number or a mapping is text all the same.
    said = [*overrides, *([] if data is None else [f"data.path={json.dumps(data, ensure_ascii=False)}"])]
    if Path(config).is_file():
        return load_config(config, preset=preset, overrides=said)
    if config not in PRESETS:
        raise MissingFileError(_nothing(config))
    if preset is not None:
        raise ArgumentError(
            f"{config!r} is a preset, and --preset names another: {preset!r}. Leave one out, or give a file that sets the rest."
        )
    return load_config(preset=config, overrides=said)


def loaded(options: Namespace) -> Resolved:
    """Read the configuration that the arguments of `add_config` say."""
    return load(options.config, options.overrides, preset=options.preset, data=options.data)


def _nothing(config: str) -> str:
    if "=" in config and "/" not in config.partition("=")[0]:
        return f"No configuration is named before {config!r}. Put a file or a preset first: mlxfp ... titanic {config}"
    near = get_close_matches(config, PRESETS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    what = "is a folder, not a file" if Path(config).is_dir() else "is no file"
    return f"{config!r} {what}, and no preset is named so.{hint} Give a YAML or JSON file, or one of {', '.join(PRESETS)}."


def _show(options: Namespace) -> int:
    resolved = loaded(options)
    say("\n".join(_with_origins(resolved) if options.origins else [write_document(unstructure(resolved.config)).rstrip("\n")]))
    return 0


def _with_origins(resolved: Resolved) -> Iterator[str]:
    """Yield lines of YAML, each value with a comment that says where it comes from."""
    lines = [*_lines(unstructure(resolved.config), ())]
    width = min(50, max(len(line) for line, _ in lines))
    return (line if path is None else f"{line:<{width}}  # {resolved.origin(path)}" for line, path in lines)


def _lines(values: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """Yield lines of YAML, and the path of the value that ends there."""
    margin = "  " * len(place)
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield f"{margin}{name}:", None
            yield from _lines(value, (*place, name))
        else:
            *first, last = indent(write_document({name: value}), margin).rstrip("\n").split("\n")  # text with line ends has several
            yield from ((line, None) for line in first)
            yield last, ".".join((*place, name))


def _check(options: Namespace) -> int:
    name = loaded(options).config.name
    what = options.config if Path(options.config).is_file() else f"The preset {options.config}"
    say(f"{what} makes a run named {name!r}: no mistakes.")
    return 0


def _schema(_: Namespace) -> int:
    say(json.dumps(json_schema(), indent=2))
    return 0


def _presets(options: Namespace) -> int:
    if options.name is not None:
        say(write_document(PRESETS[options.name]).rstrip("\n"))
        return 0
    width = max(map(len, PRESETS))
    for name, values in PRESETS.items():
        say(f"{name:<{width}}  {' '.join(_settings(values, ''))}")
    return 0


def _settings(values: Mapping[str, Any], above: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{above}{name}.")
        else:
            yield f"{above}{name}={json.dumps(value) if isinstance(value, bool) else value}"
