"""Conversion of labels to arrays. A label is a class name, a class index, or a numeric value for regression."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.collators.columns import Numbers, as_floats, at_row, column_of, numbers_of, refuse
from mlxfp.core.examples import Examples
from mlxfp.support.arrow_types import is_text
from mlxfp.support.checks import as_class_names, check_choice, check_positive, check_text, in_nfc, not_none
from mlxfp.support.errors import FEW, ArgumentError, DataError, SchemaError, listed, suggest

LabelKind = Literal["class", "value"]
Classes = int | tuple[str, ...] | None  # number of classes, or names of the classes


def check_classes(classes: int | Sequence[str] | None) -> Classes:
    """Return the number of classes, or the class names as a tuple. Raise for another value."""
    if classes is None or isinstance(classes, int):
        check_positive(**not_none(classes=classes))
        return classes
    names = as_class_names(classes)
    if not names:
        raise ArgumentError("classes must have at least one name, got an empty list. Write the names of all classes in a fixed order.")
    return names


def check_label(label: str | None, label_kind: str, classes: int | Sequence[str] | None) -> Classes:
    """Check the label arguments of a collator. Return the number of classes, or the class names as a tuple."""
    check_text(**not_none(label=label))
    check_choice(("class", "value"), label_kind=label_kind)
    checked = check_classes(classes)
    if checked is not None and (label is None or label_kind == "value"):
        raise ArgumentError(
            f"classes={classes} needs class labels, got label={label!r}, label_kind={label_kind!r}. Add label=, or remove classes."
        )
    return checked


def labels_of(examples: Examples, name: str, kind: str, classes: Classes, wanted_by: str) -> Numbers:
    """Return the labels of a group. Kind "class" gives class indices as int32. Kind "value" gives numbers as float32.

    A class name becomes its index. Raises `DataError` for an index outside `classes`. Also raises `DataError` for an integer beyond 2**24
    of kind "value", because float32 cannot hold all such integers. The shape is [B], or [B, ...] for several labels per example.
    """
    column = column_of(examples, name, wanted_by, label=name)
    if is_text(column.type.value_type if pa.types.is_dictionary(column.type) else column.type):
        if kind == "value":
            raise SchemaError(
                f"{wanted_by}: column {name!r} must hold numbers, got {column.type}. Convert its values to numbers with map, or remove "
                'label_kind="value" for classes.'
            )
        return _class_indices(examples, name, column, classes, wanted_by)
    plain = numbers_of(examples, name, wanted_by)
    return as_labels(plain, kind, classes, lambda flat_index: at_row(examples, name, flat_index * len(plain) // plain.size, wanted_by))


def as_labels(plain: Numbers, kind: str, classes: Classes, at: Callable[[int], str]) -> Numbers:
    """Convert numbers to class indices (int32) or to values (float32). `at(index)` begins the error message about number `index`."""
    if kind == "value":
        return as_floats(plain, at)
    if plain.size and isinstance(classes, tuple) and _are_other_numbers(classes):
        raise DataError(
            f"{at(0)} holds a number, and the classes have numbers as names: {listed(map(repr, classes), most=FEW)}. The number "
            f"could be an index or a name. Convert the labels to texts with map, or declare indices with classes={len(classes)}."
        )
    if plain.dtype.kind == "f":
        refuse(plain != np.floor(plain), plain, at, 'which is not a class (an integer). For regression use label_kind="value"')
        why = "but a class in a column of floats must be below 2**24, because float32 rounds larger integers. Convert to integers with map"
        refuse(np.abs(plain) >= 2**24, plain, at, why)
    whole = plain.astype(np.int32, copy=False)
    if classes is not None:
        count = classes if isinstance(classes, int) else len(classes)
        why = f"outside the {count} classes 0 to {count - 1}. Correct the data, or set the right number of classes"
        # As an unsigned number, a negative label is larger than the number of classes.
        refuse(whole.view(np.uint32) >= count, whole, at, why)
    return whole


def _are_other_numbers(names: tuple[str, ...]) -> bool:
    """Return True if all class names are integers, and at least one name differs from the index of its class."""
    return all(map(str.isdecimal, names)) and names != tuple(map(str, range(len(names))))


def _class_indices(examples: Examples, name: str, column: Any, classes: Classes, wanted_by: str) -> Numbers:
    texts = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if not isinstance(classes, tuple):
        known = sorted(pc.unique(texts).to_pylist())
        example = f"classes={known[:5]!r}" if known else "classes=[...]"
        raise SchemaError(
            f"{wanted_by}: column {name!r} must hold class numbers, got {column.type}. Name all classes in a fixed order: {example}."
        )
    indices = pc.index_in(texts, pa.array(classes, texts.type))
    if indices.null_count:  # Compare all texts in the Unicode form NFC. In Arrow 25, `pc.utf8_normalize` returns NFD instead of NFC.
        indices = pc.index_in(pa.array(map(in_nfc, texts.to_pylist()), texts.type), pa.array(map(in_nfc, classes), texts.type))
    if indices.null_count:
        row = indices.is_null().to_pylist().index(True)
        value = texts[row].as_py()
        raise DataError(
            f"{at_row(examples, name, row, wanted_by)} holds {value!r}, which is not a class.{suggest(value, classes)} Classes: "
            f"{listed(map(repr, classes), most=FEW)}. Correct the row, or add the name to classes."
        )
    numbers: Numbers = indices.to_numpy().astype(np.int32, copy=False)
    return numbers
