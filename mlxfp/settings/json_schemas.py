"""JSON schemas of configuration classes: editors use them to complete and check files."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin

from attrs import NOTHING, fields, has

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "null"}


def class_schema(kind: Any, *, choices: Mapping[str, Collection[str]] | None = None, path: str = "") -> dict[str, Any]:
    """Return the JSON schema of the plain values that `structure` makes a class of.

    `choices` has the known names of fields that are plain text in the class, by their paths, such as `optimizer.name`.

    >>> from attrs import frozen
    >>> from mlxfp.settings.options import option
    >>> @frozen(kw_only=True)
    ... class Loop:
    ...     "How often."
    ...     epochs: int = option(3, "The number of epochs.", at_least=1)
    >>> class_schema(Loop)["properties"]
    {'epochs': {'description': 'The number of epochs.', 'default': 3, 'type': 'integer', 'minimum': 1}}
    """
    about = (kind.__doc__ or "").splitlines()[0]
    properties = {field.name: _property(field, choices or {}, f"{path}{field.name}") for field in fields(kind)}
    return {"type": "object", "description": about, "additionalProperties": False, "properties": properties}


def _property(field: Any, choices: Mapping[str, Collection[str]], path: str) -> dict[str, Any]:
    if has(field.type):
        return class_schema(field.type, choices=choices, path=f"{path}.")
    default = {} if field.default is NOTHING else {"default": field.default}
    made = {"description": field.metadata["about"], **default, **_type(field.type, choices.get(path))}
    return made | {check.word: check.bound for check in field.metadata["checks"]}


def _type(kind: Any, names: Collection[str] | None) -> dict[str, Any]:
    origin: Any = get_origin(kind)
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    kinds = get_args(kind) or (kind,)
    if names is not None:
        return {"enum": [*names, *([None] if type(None) in kinds else [])]}
    types = [_TYPES[each] for each in kinds]
    return {"type": types[0] if len(types) == 1 else types}
