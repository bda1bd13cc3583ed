"""Text collator: from token lists to padded batches."""

from collections.abc import Sequence

from attrs import frozen

from mlxfp.collators.columns import ids_of, names_of
from mlxfp.collators.cutting import MASK, Columns, Padded, PaddedColumn, carried_columns, check_unpadded, side_columns
from mlxfp.collators.labels import Classes, LabelKind, check_label, labels_of
from mlxfp.collators.padding import Side, check_ids, check_padding
from mlxfp.core.examples import Examples
from mlxfp.support.checks import as_strings, check_positive, check_text, check_types, explain_call, not_none
from mlxfp.support.errors import ArgumentError


@explain_call
def text(  # noqa: PLR0913  # keyword-only, all but one with defaults
    *,
    pad_id: int,
    column: str = "input_ids",
    prefix: str = "",
    label: str | None = None,
    label_kind: LabelKind = "class",
    classes: int | Sequence[str] | None = None,
    vocab_size: int | None = None,
    length: int | None = None,
    lengths: Sequence[int] = (),
    pad_multiple: int = 1,
    side: Side = "right",
    type_ids: bool = False,
    carry: Sequence[str] = (),
) -> "_Text":
    """Return the collator for tokenized text: columns from `tokenize` become a padded batch.

    The batch contains `input_ids` int32[B, L] and `attention_mask` int32[B, L]. The mask is 1 on tokens and 0 on padding. After `pad`,
    the mask is the column `attention_mask` of the rows. `type_ids=True` adds `token_type_ids` int32[B, L], 0 on padding.

    The argument `label` names a column of labels. The batch then contains `labels`: int32[B] for `label_kind="class"`, float32[B] for
    "value". Decimals are rounded to float32 (seven digits). Integers beyond 2**24 raise an error, because float32 cannot hold all of them.
    Labels may also be tensors or equally long lists, for example several labels per example.

    Columns in `carry` keep their names: numbers become arrays [B], tensors and equally long lists become arrays [B, ...], and text becomes
    a tuple of B strings.

    `column` names another column of ids, as from `tokenize(into=)`. Such a column gets the mask of its own ids, and no token types.
    `prefix` is put before the names of the padded arrays. With a prefix, `multimodal` can join two texts of a row, such as the pairs of
    `losses.contrastive`.

    `classes` is the number of classes, or the names of all classes in a fixed order. With names, text labels become the indices of the
    names. `Classifier(classes=...)` saves the names with the model.

    If `length` is given, L is `length`. If `lengths` is given, L is the smallest of `lengths` that fits all rows of the group. Otherwise, L
    is the length of the longest row, rounded up to `pad_multiple`. MLX compiles a step per shape, so fewer shapes are faster.

    Raises `DataError` with the row for a longer row, a null, an invalid class label, and an id outside `vocab_size`. Also raises
    `DataError` for another `column` padded by `pad`. Raises `SchemaError` for rows of `pack`, which contain several texts.

    >>> import mlxfp as fp
    >>> collator = fp.collators.text(pad_id=0, label="y")
    >>> batch = collator([{"input_ids": [5, 6, 7], "y": 1}, {"input_ids": [8], "y": 0}])
    >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist(), batch["labels"].tolist()
    ([[5, 6, 7], [8, 0, 0]], [[1, 1, 1], [1, 0, 0]], [1, 0])
    >>> words = fp.collators.text(pad_id=0, label="mood", classes=["calm", "happy", "sad"])
    >>> words([{"input_ids": [5], "mood": "sad"}, {"input_ids": [8], "mood": "calm"}])["labels"].tolist()
    [2, 0]
    >>> pairs = fp.collators.multimodal([fp.collators.text(pad_id=0), fp.collators.text(pad_id=0, column="answer", prefix="answer_")])
    >>> sorted(pairs([{"input_ids": [5, 6, 7], "answer": [8]}]))
    ['answer_attention_mask', 'answer_input_ids', 'attention_mask', 'input_ids']

    See also: `causal` and `masked`, whose labels are tokens; `default`, which has no required arguments.
    """
    check_ids(pad_id=pad_id)
    check_text(column=column)
    check_types(str, prefix=prefix)
    if type_ids and column != _IDS:
        raise ArgumentError(
            f"Only the column {_IDS!r} has token types, got type_ids=True and column={column!r}. Remove one of these arguments."
        )
    named = check_label(label, label_kind, classes)
    fixed = check_padding(length=length, lengths=lengths, pad_multiple=pad_multiple, side=side)
    check_positive(**not_none(vocab_size=vocab_size))
    carry = as_strings("carry", carry)
    return _Text(pad_id, column, prefix, label, label_kind, named, vocab_size, fixed, pad_multiple, side, type_ids, carry)


@frozen(repr=False)
class _Text(Padded):
    pad_id: int
    column: str = "input_ids"
    prefix: str = ""
    label: str | None = None
    label_kind: LabelKind = "class"
    classes: Classes = None
    vocab_size: int | None = None
    lengths: tuple[int, ...] = ()
    pad_multiple: int = 1
    side: Side = "right"
    type_ids: bool = False
    carry: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[str, ...]:
        return self.column, MASK, *(["token_type_ids"] if self.type_ids else []), *names_of(self.label), *self.carry

    def read(self, examples: Examples) -> Columns:
        ids, ends = ids_of(examples, self.column, self.vocab_size, self.name)
        check_unpadded(examples, self.column, (ids, ends), self.pad_id, self.name)
        ragged: dict[str, PaddedColumn] = {f"{self.prefix}{_IDS}": (ids, self.pad_id)}
        if self.column == _IDS:
            aligned = side_columns(examples, ends, self.name, type_ids=self.type_ids)
            ragged |= {f"{self.prefix}{name}": values for name, values in aligned.items()}
        single = {} if self.label is None else {"labels": labels_of(examples, self.label, self.label_kind, self.classes, self.name)}
        single |= carried_columns(examples, self.carry, self.name, {*ragged, *single, self.mask})
        return Columns(self, examples, ends, ragged, single)


_IDS = "input_ids"
