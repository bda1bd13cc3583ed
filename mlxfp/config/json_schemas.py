"""The JSON schema of configuration files: editors complete and check with it."""

from typing import Any, Literal, get_args, get_origin

from attrs import NOTHING, fields, has

from mlxfp.config.classes import RunConfig
from mlxfp.config.presets import PRESETS

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "null"}


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of the files that `load_config` reads.

    >>> made = json_schema()
    >>> made["properties"]["training"]["properties"]["epochs"]
    {'description': 'Times that every row is seen.', 'default': 10, 'type': 'integer', 'minimum': 1}
    """
    schema = _object(RunConfig)
    schema["properties"]["preset"] = {"description": "Settings to start from.", "enum": list(PRESETS)}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A run of mlxfp"} | schema


def _object(kind: Any) -> dict[str, Any]:
    about = (kind.__doc__ or "").splitlines()[0]
    properties = {field.name: _property(field) for field in fields(kind)}
    return {"type": "object", "description": about, "additionalProperties": False, "properties": properties}


def _property(field: Any) -> dict[str, Any]:
    if has(field.type):
        return _object(field.type)
    made = {"description": field.metadata["about"]} | ({} if field.default is NOTHING else {"default": field.default}) | _type(field.type)
    return made | {check.word: check.bound for check in field.metadata["checks"]}


def _type(kind: Any) -> dict[str, Any]:
    origin: Any = get_origin(kind)
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    names = [_TYPES[each] for each in get_args(kind) or (kind,)]
    return {"type": names[0] if len(names) == 1 else names}
