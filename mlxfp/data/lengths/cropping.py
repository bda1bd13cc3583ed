"""Stage that crops waveforms to a maximum length, at random or in the middle."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from attrs import frozen
from toolz import identity

from mlxfp.core.arrow.ragged import column_without_nulls, ends_of, read_lists, to_lists
from mlxfp.core.chunks import Example, Indices, RecordBatch, Schema, row_keys, set_column, set_field
from mlxfp.core.datasets import Dataset
from mlxfp.core.stages import RowWise, Traits, seeded
from mlxfp.data.sound.samples import waveform_values
from mlxfp.support.checks import check_integer, check_positive, check_text, explain_call, not_none
from mlxfp.support.randomness import fold_into_rows


@explain_call
def crop_waveforms(length: int, *, seed: int | None = None, column: str = "waveform") -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Crop waveforms to at most `length` samples. With `seed`, the position is random in each epoch, otherwise the middle is kept.

    Shorter waveforms stay unchanged, because a collator pads them. Use random crops for training and the middle for validation. To fit
    `collators.audio(length=)` without a spectrogram, use the same `length`. A spectrogram of n samples has 1 + n // hop frames.

    Raises `SchemaError` unless the column contains lists or tensors [T] of numbers, and `DataError` for a row without a waveform.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"waveform": [0.1, 0.2, 0.3, 0.4, 0.5]}, {"waveform": [0.6]}])
    >>> [row["waveform"] for row in fp.pipe(rows, fp.audio.crop_waveforms(3))]
    [[0.2, 0.3, 0.4], [0.6]]

    See also: `windows`, which cuts tokens into parts and keeps them all.
    """
    check_positive(length=length)
    check_integer(**not_none(seed=seed))
    check_text(column=column)
    return _CropWaveforms(length, seed, column)


@frozen(repr=False)
class _CropWaveforms(RowWise):
    _length: int
    seed: int | None = None
    column: str = "waveform"

    def schema(self, schema: Schema) -> Schema:
        return set_field(schema, self.column, pa.list_(waveform_values(schema, self.column, _NAME)))

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, draws=seeded(self), columns_read=(self.column,), longest_row=identity)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        values, ends = read_lists(column_without_nulls(chunk, self.column, _NAME))
        counts = np.diff(ends)
        kept = np.minimum(counts, self._length)
        starts = ends[:-1] + self._skipped(chunk, counts - kept)
        parts = [values.slice(start, count) for start, count in zip(starts.tolist(), kept.tolist(), strict=True)]
        return set_column(chunk, self.column, to_lists(pa.concat_arrays(parts) if parts else values, ends_of(kept)))

    def _skipped(self, chunk: RecordBatch, spare: Indices) -> Indices:
        """Return the number of samples to remove at the start of each row, int64[N].

        The argument `spare` is the number of samples by which each row exceeds the crop length.
        """
        if self.seed is None:
            return spare // 2
        draws = fold_into_rows(row_keys(chunk), _NAME, self.seed) % (spare + 1).astype(np.uint64)
        return draws.astype(np.int64)


_NAME = "crop_waveforms"
