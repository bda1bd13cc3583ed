"""`mlxfp config`: show configurations with the origin of each value, check and describe them; and how commands read one."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import Any

from mlxfp.app.cli.parsing import Commands, add_command, add_group, say, start_mlx
from mlxfp.app.config.classes import option_paths
from mlxfp.app.config.loading import Choices, Resolved, json_schema, resolve_config
from mlxfp.app.config.presets import PRESETS
from mlxfp.support.errors import ArgumentError, ConfigError, MissingFileError, suggest
from mlxfp.support.structuring import flatten, unstructure
from mlxfp.support.yaml_files import write_document


def add(commands: Commands) -> None:
    """Add `config show`, `config check`, `config schema` and `config presets`."""
    group = add_group(commands, "config", about="Show, check and describe configurations.", example="mlxfp config show titanic")
    show = add_command(group, "show", _show, example="mlxfp config show run.yaml training.epochs=3 --origins")
    add_config(show)
    show.add_argument("--origins", action="store_true", help="add to each value where it was set")
    add_config(add_command(group, "check", _check, example="mlxfp config check run.yaml training.epochs=3"))
    add_command(group, "schema", _schema, example="mlxfp config schema > mlxfp.schema.json")
    presets = add_command(group, "presets", _presets, example="mlxfp config presets titanic > run.yaml")
    presets.add_argument("name", metavar="NAME", nargs="?", help="the preset to print")


def add_config(command: ArgumentParser) -> None:
    """Add the arguments of a configuration: those of `load`."""
    config: Any = command.add_argument(
        "config", metavar="CONFIG", nargs="?", help="a YAML or JSON file, or a preset (default, with --data: auto)"
    )
    overrides: Any = command.add_argument(
        "overrides", metavar="key=value", nargs="*", help="values that override those of CONFIG, as in training.epochs=3"
    )
    preset: Any = command.add_argument(
        "--preset", metavar="NAME", help="the preset that the file is based on, instead of the one that it names"
    )
    config.completer = lambda prefix, **_: _overrides(prefix) if "=" in prefix else [*PRESETS, *_paths(prefix)]  # see `completing`
    overrides.completer = lambda prefix, **_: _overrides(prefix)
    preset.completer = lambda **_: [*PRESETS]
    command.add_argument("--data", metavar="PATH", help="short for data.path=PATH")


def _overrides(prefix: str) -> list[str]:
    """Return what an override that begins so may be: the paths of options or, after the `=`, values of one."""
    path, equals, begun = prefix.partition("=")
    if not equals:
        return [f"{each}=" for each in option_paths()]
    return [f"{path}={value}" for value in _values(path, begun)] if path in option_paths() else []


def _values(path: str, begun: str) -> Iterator[str]:
    """Yield the values that an option may have: names, true, false and null; of texts without known names, the paths of files."""
    ways = _ways(path, {})
    if any("string" in way.get("type", ()) for way in ways):  # the names of parts are those of MLX's rooms, which take a second to import
        ways = _ways(path, known_names())
    names = ["null" if name is None else name for way in ways for name in way.get("enum", ())]
    kinds = [way.get("type", ()) for way in ways]  # a text or a list
    yield from names
    yield from ("true", "false") if "boolean" in kinds else ()
    yield from ("null",) if any("null" in kind for kind in kinds) else ()
    yield from _paths(begun) if not names and any("string" in kind for kind in kinds) else ()


def _ways(path: str, choices: Choices) -> list[dict[str, Any]]:
    """Return the schemas of which the values of an option must fit one."""
    about: dict[str, Any] = json_schema(choices)
    for name in path.split("."):
        about = about["properties"][name]
    ways: list[dict[str, Any]] = about.get("anyOf", [about])
    return ways


def _paths(prefix: str) -> Iterator[str]:
    """Yield the files and folders whose paths begin so."""
    folder = prefix[: prefix.rfind("/") + 1]
    with suppress(OSError):
        yield from (f"{folder}{each.name}{'/' if each.is_dir() else ''}" for each in Path(folder or ".").iterdir())


def config_arguments(options: Namespace) -> list[str]:
    """Return the arguments of `add_config` again, for another process."""
    given = {"--preset": options.preset, "--data": options.data}
    name = [] if options.config is None else [options.config]
    return [*name, *options.overrides, *(word for name, value in given.items() if value is not None for word in (name, value))]


def add_code(command: ArgumentParser) -> None:
    """Add `--code`, which allows the modules that the section `own` of a configuration names."""
    command.add_argument(
        "--code", metavar="FOLDER", help="allow the configuration to run code: import the modules of its section own, from this folder"
    )


def load(
    config: str | None,
    overrides: Sequence[str] = (),
    *,
    preset: str | None = None,
    data: str | None = None,
    choices: Choices | None = None,
) -> Resolved:
    """Read a configuration: of a YAML or JSON file, or else of the preset with that name; `data` is short for `data.path=`.

    With data alone it is the preset auto, and the run has the name of the data.
    """
    if data is not None and preset is None and (config is None or ("=" in config and not Path(config).exists())):
        place = Path(data).resolve()
        name = f"name={json.dumps(place.stem if place.is_file() else place.name, ensure_ascii=False)}"
        overrides = [name, *([] if config is None else [config]), *overrides]
        config = "auto"
    if config is None:
        raise ArgumentError("There is no configuration. Give a folder of data, --data FOLDER, a YAML or JSON file, or a preset.")
    # Quoted: a path that looks like a number or a mapping is text, too.
    values = [*overrides, *([] if data is None else [f"data.path={json.dumps(data, ensure_ascii=False)}"])]
    if Path(config).is_file():
        return resolve_config(config, preset=preset, overrides=values, choices=choices, defaults=_model_defaults)
    if config not in PRESETS:
        raise MissingFileError(_no_such_config(config))
    if preset is not None:
        raise ArgumentError(
            f"{config!r} is a preset, and --preset names another: {preset!r}. Leave one out, or give a file that sets the rest."
        )
    return resolve_config(preset=config, overrides=values, choices=choices, defaults=_model_defaults)


def loaded(options: Namespace, choices: Choices | None = None) -> Resolved:
    """Read the configuration of the arguments of `add_config`; names of parts are checked with `choices`."""
    return load(options.config, options.overrides, preset=options.preset, data=options.data, choices=choices)


def _model_defaults(name: str) -> Mapping[str, Any]:
    start_mlx()  # a configuration that names a model imports MLX, whose rooms know the models
    from mlxfp.app.runs.from_config.parts import model_defaults

    return model_defaults(name)


def known_names() -> Choices:
    """Return the known names of parts, such as optimizers; this imports MLX, whose rooms have them."""
    start_mlx()
    from mlxfp.app.runs.from_config.parts import CHOICES

    return CHOICES


def _no_such_config(config: str) -> str:
    if "=" in config and "/" not in config.partition("=")[0]:
        return f"A configuration must come before {config!r}. Put a file or a preset first: mlxfp ... titanic {config}"
    hint = suggest(config, PRESETS)
    what = "is a folder, not a file" if Path(config).is_dir() else "is not a file"
    return f"{config!r} {what}, and no preset has that name.{hint} Give a YAML or JSON file, or one of {', '.join(PRESETS)}."


def _show(options: Namespace) -> int:
    """Print a whole configuration as YAML, which is a configuration file again."""
    resolved = loaded(options)
    say("\n".join(_with_origins(resolved) if options.origins else [write_document(unstructure(resolved.config)).rstrip("\n")]))
    return 0


def _with_origins(resolved: Resolved) -> Iterator[str]:
    """Yield lines of YAML, each value with a comment that has its origin."""
    lines = [*_yaml_lines(unstructure(resolved.config), ())]
    width = min(50, max(len(line) for line, _ in lines))
    return (line if path is None else f"{line:<{width}}  # {resolved.origin(path)}" for line, path in lines)


def _yaml_lines(values: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """Yield lines of YAML, and the path of the value that ends there."""
    margin = "  " * len(place)
    for name, value in values.items():
        if value and isinstance(value, Mapping):
            yield f"{margin}{name}:", None
            yield from _yaml_lines(value, (*place, name))
        else:
            *first, last = indent(write_document({name: value}), margin).rstrip("\n").split("\n")  # text with line breaks has several
            yield from ((line, None) for line in first)
            yield last, ".".join((*place, name))


def _check(options: Namespace) -> int:
    """Check a configuration, and list all mistakes at once, each with its line."""
    resolved = loaded(options, known_names())
    from mlxfp.app.runs.from_config.problems import config_problems

    found = [f"\n  {path} ({resolved.origin(path)}): {problem}" for path, problem in config_problems(resolved.config)]
    if found:
        raise ConfigError(f"{f'{len(found)} mistakes' if len(found) > 1 else 'A mistake'} in the configuration:{''.join(found)}")
    name = resolved.config.name
    what = options.config if Path(options.config).is_file() else f"The preset {options.config}"
    say(f"{what} is a valid configuration of the run {name!r}.")
    return 0


def _schema(_: Namespace) -> int:
    """Print the JSON schema of configuration files, for editors."""
    say(json.dumps(json_schema(known_names()), indent=2))
    return 0


def _presets(options: Namespace) -> int:
    """List the presets and what they set, or print one as YAML."""
    if options.name is not None:
        say(write_document(PRESETS[options.name]).rstrip("\n"))
        return 0
    width = max(map(len, PRESETS))
    for name, values in PRESETS.items():
        flat = flatten(values).items()
        say(f"{name:<{width}}  {' '.join(f'{path}={json.dumps(value) if isinstance(value, bool) else value}' for path, value in flat)}")
    return 0
