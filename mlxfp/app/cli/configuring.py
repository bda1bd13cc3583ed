"""The command `mlxfp config`: show, check and describe configurations. Other commands read configurations with `loaded`."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from mlxfp.app.cli.parsing import Commands, add_command, add_group, say, start_mlx
from mlxfp.app.config.loading import Choices, Resolved, json_schema, resolve_config
from mlxfp.app.config.presets import PRESETS
from mlxfp.support.errors import ArgumentError, ConfigError, MissingFileError, suggest, suggest_path
from mlxfp.support.file_formats import with_compressions
from mlxfp.support.structuring import flatten, unstructure
from mlxfp.support.yaml_files import write_document

_TABLES = (*with_compressions(".csv", ".tsv", ".jsonl", ".ndjson"), ".parquet")  # suffixes of tables


def add(commands: Commands) -> None:
    """Add the commands `config show`, `config check`, `config schema` and `config presets` to the command line."""
    group = add_group(commands, "config", about="Show, check and describe configurations.", example="mlxfp config show titanic")
    show = add_command(group, "show", _show, example="mlxfp config show run.yaml training.epochs=3 --origins")
    add_config(show)
    show.add_argument("--origins", action="store_true", help="add the file and line, or other origin, of each value")
    add_config(add_command(group, "check", _check, example="mlxfp config check run.yaml training.epochs=3"))
    add_command(group, "schema", _schema, example="mlxfp config schema > mlxfp.schema.json")
    presets = add_command(group, "presets", _presets, example="mlxfp config presets titanic > run.yaml")
    presets.add_argument("name", metavar="NAME", nargs="?", help="the preset to print")


def add_config(command: ArgumentParser) -> None:
    """Add the command line arguments that select and override a configuration."""
    command.add_argument(
        "config", metavar="CONFIG", nargs="?", help="a YAML or JSON file, a preset, or a folder or table of data (short for --data PATH)"
    )
    command.add_argument("overrides", metavar="key=value", nargs="*", help="values that override CONFIG, as in training.epochs=3")
    command.add_argument("--data", metavar="PATH", help="short for data.path=PATH")
    command.add_argument("--target", metavar="COLUMN", help="short for data.target=COLUMN: the column to predict")


def config_arguments(options: Namespace) -> list[str]:
    """Return the configuration arguments of a parsed command, as command line words for another process."""
    given = {"--data": options.data, "--target": options.target}
    name = [] if options.config is None else [options.config]
    return [*name, *options.overrides, *(word for name, value in given.items() if value is not None for word in (name, value))]


def add_code(command: ArgumentParser) -> None:
    """Add the option `--code` to a command. The option permits importing the modules named in the section `own` of a configuration."""
    command.add_argument(
        "--code", metavar="FOLDER", help="allow code in the configuration: import the modules named in the section own from this folder"
    )


def load(
    config: str | None,
    overrides: Sequence[str] = (),
    *,
    data: str | None = None,
    target: str | None = None,
    choices: Choices | None = None,
) -> Resolved:
    """Read a configuration from a file or a preset.

    `config` is the path of a YAML or JSON file, or the name of a preset. `data` sets `data.path`, and `target` sets `data.target`. If only
    `data` is given, the preset is auto, and the name of the run comes from the data. A folder or table in `config` is treated as `data`.
    """
    if config is not None and data is None and config not in PRESETS and _is_data(Path(config)):
        config, data = None, config
    if data is not None and (config is None or ("=" in config and not Path(config).exists())):
        overrides = [f"name={json.dumps(run_name(data), ensure_ascii=False)}", *([] if config is None else [config]), *overrides]
        config = "auto"
    if config is None:
        raise ArgumentError("No configuration was given. Give a YAML or JSON file, a preset, or --data FOLDER with a folder of data.")
    # The quotes of JSON make YAML read the path as text, even if the path looks like a number or a mapping.
    paths = {"data.path": data, "data.target": target}
    values = [*overrides, *(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in paths.items() if value is not None)]
    path, preset = (config, None) if Path(config).is_file() else (None, config)
    if preset is not None and preset not in PRESETS:
        raise MissingFileError(_no_such_config(preset))
    return resolve_config(path, preset=preset, overrides=values, choices=choices, defaults=_model_defaults)


def run_name(data: str) -> str:
    """Return the name of a run on the data at a path."""
    path = Path(data).resolve()
    return path.stem if path.is_file() else path.name


def _is_data(path: Path) -> bool:
    return path.is_dir() or (path.is_file() and path.name.lower().endswith(_TABLES))


def loaded(options: Namespace, choices: Choices | None = None) -> Resolved:
    """Read the configuration of parsed command line arguments. `choices` holds the valid names of models and other components."""
    return load(options.config, options.overrides, data=options.data, target=options.target, choices=choices)


def _model_defaults(name: str) -> Mapping[str, Any]:
    start_mlx()  # the lookup of a model name needs MLX
    from mlxfp.app.runs.from_config.parts import model_defaults

    return model_defaults(name)


def known_names() -> Choices:
    """Import MLX, and return the known names of models, optimizers and other components."""
    start_mlx()
    from mlxfp.app.runs.from_config.parts import CHOICES

    return CHOICES


def _no_such_config(config: str) -> str:
    if "=" in config and "/" not in config.partition("=")[0]:
        return f"A configuration must come before {config!r}. Put a file or a preset first: mlxfp ... titanic {config}"
    hint = suggest(config, PRESETS) or suggest_path(Path(config))
    known = f"a folder of data, a YAML or JSON file, or one of {', '.join(PRESETS)}"
    return f"{config!r} is not a file, a folder or the name of a preset.{hint} Give {known}."


def _show(options: Namespace) -> int:
    """Print the complete configuration as YAML, for use as a configuration file."""
    # A preset without overridden options contains only known names, so the slow call of `known_names` is skipped.
    preset_alone = options.config in PRESETS and not options.overrides
    resolved = loaded(options, None if preset_alone else known_names())
    say("\n".join(_with_origins(resolved) if options.origins else [write_document(unstructure(resolved.config)).rstrip("\n")]))
    return 0


def _with_origins(resolved: Resolved) -> Iterator[str]:
    """Yield the lines of the configuration as YAML, with the origin of each value as a comment."""
    lines = [*_yaml_lines(unstructure(resolved.config), ())]
    width = min(50, max(len(line) for line, _ in lines))
    return (line if path is None else f"{line:<{width}}  # {resolved.origin(path)}" for line, path in lines)


def _yaml_lines(values: Mapping[str, Any], parents: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """Yield pairs of a YAML line and an option path.

    The last line of each option has the path of the option, such as `training.size`. All other lines have the path None.
    """
    margin = "  " * len(parents)
    for name, value in values.items():
        if value and isinstance(value, Mapping):
            yield f"{margin}{name}:", None
            yield from _yaml_lines(value, (*parents, name))
        else:
            *first, last = indent(write_document({name: value}), margin).rstrip("\n").split("\n")
            yield from ((line, None) for line in first)
            yield last, ".".join((*parents, name))


def _check(options: Namespace) -> int:
    """Check a configuration and list all mistakes at once, with their lines."""
    resolved = loaded(options, known_names())
    from mlxfp.app.runs.from_config.problems import config_problems

    mistakes = [f"\n  {path} ({resolved.origin(path)}): {problem}" for path, problem in config_problems(resolved.config)]
    if mistakes:
        count, listed = f"{len(mistakes)} mistakes" if len(mistakes) > 1 else "A mistake", "".join(mistakes)
        raise ConfigError(f"{count} in the configuration:{listed}")
    name = resolved.config.name
    given = options.config or options.data
    source = f"The preset {given}" if given in PRESETS else given
    say(f"{source} is a valid configuration of the run {name!r}.")
    return 0


def _schema(_: Namespace) -> int:
    """Print the JSON schema of configuration files, for editors."""
    say(json.dumps(json_schema(known_names()), indent=2))
    return 0


def _presets(options: Namespace) -> int:
    """List the presets with their values, or print one preset as YAML."""
    if options.name is not None:
        say(write_document(PRESETS[options.name]).rstrip("\n"))
        return 0
    width = max(map(len, PRESETS))
    for name, values in PRESETS.items():
        flat = flatten(values).items()
        say(f"{name:<{width}}  {' '.join(f'{path}={json.dumps(value) if isinstance(value, bool) else value}' for path, value in flat)}")
    return 0
