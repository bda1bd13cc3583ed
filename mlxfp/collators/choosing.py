"""Collators by name, and the one for a task."""

from collections.abc import Callable, Mapping

from mlxfp.collators.built_in import BuiltIn, Setting
from mlxfp.collators.columns import Collator
from mlxfp.collators.task_specs import BUILT_IN, TASK_COLLATORS, TaskSpec
from mlxfp.core.arrow.types import is_text, value_type
from mlxfp.core.checks import check_columns, check_integer, check_types
from mlxfp.core.chunks import Schema
from mlxfp.core.errors import SchemaError
from mlxfp.settings.registries import Registry
from mlxfp.text.tokenizers.tokenizer import Tokenizer

COLLATORS: Registry[Callable[..., Collator]] = Registry("collator", {each.name: each.make for each in BUILT_IN})


def for_task(
    task: TaskSpec,
    *,
    tokenizer: Tokenizer | None = None,
    schema: Schema | None = None,
    seed: int = 0,
    collators: Mapping[str, Callable[..., Collator]] = COLLATORS,
) -> Collator:
    """Make the collator that a task needs.

    A causal, masked or seq2seq task gets the collator of that name, other tasks the one named like their modality. Columns, classes and
    length come from the task; ids and the size of the vocabulary come from `tokenizer`, which every task with text needs; `schema`, that
    of the rows to collate, tells whether they have token types and whether they are packed. `seed` is the seed of masks. All other
    arguments keep their defaults; change one with `attrs.evolve`, as in `evolve(for_task(task), normalization=NORMALIZATIONS["cifar10"])`.
    To use a collator of your own, pass `collators=COLLATORS | {"vision": mine}`: it is called with the arguments that ours would get.

    Raises `ArgumentError` if a tokenizer is needed and not given; with `schema`, `SchemaError` for a missing column and for class labels
    that are text.

    >>> for_task(TaskSpec("vision", "classification", columns={"label": "digit"}, classes=10))
    vision(label='digit', classes=10)

    See also: `TASKS`, which has some tasks by name.
    """
    check_types(TaskSpec, task=task)
    check_types((Tokenizer, type(None)), tokenizer=tokenizer)
    check_integer(seed=seed)
    collator = TASK_COLLATORS[task.modality, task.kind]
    setting = Setting(
        modality=task.modality,
        kind=task.kind,
        roles={role: task.column(role) for role in collator.roles},
        classes=task.classes,
        length=task.length,
        given_tokenizer=tokenizer,
        columns=() if schema is None else tuple(schema.names),
        seed=seed,
        collators=collators,
    )
    arguments = collator.arguments(setting)
    if schema is not None:
        _check_schema(collator, setting.roles, schema)
    return collators[collator.name](**arguments)


def _check_schema(collator: BuiltIn, roles: Mapping[str, str | None], schema: Schema) -> None:
    """Raise `SchemaError` unless the schema has the columns of the roles, and labels are numbers."""
    wanted = [*(["input_ids"] if collator.reads_tokens else []), *(column for column in roles.values() if column is not None)]
    check_columns(wanted, schema.names, "for_task")
    label = roles.get("label")
    if label is not None and is_text(value_type(schema.field(label).type)):
        raise SchemaError(f"for_task: the labels in column {label!r} are text, {schema.field(label).type}. Number the classes with map.")
