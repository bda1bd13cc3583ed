"""Stage that converts waveforms to log-mel spectrograms."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from attrs import frozen
from toolz import identity

from mlxfp.core.arrow.ragged import check_values, column_without_nulls, read_lists, to_lists
from mlxfp.core.chunks import Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.row_names import PATH, file_of, row_at
from mlxfp.core.stages import RowWise, Traits
from mlxfp.data.sound.samples import as_samples, waveform_values
from mlxfp.data.sound.spectrograms import LogMel
from mlxfp.support.checks import check_text, check_types, explain_call
from mlxfp.support.errors import DataError, SchemaError

_NAME = "log_mel"


@explain_call
def log_mel(
    spectrogram: LogMel, *, waveform: str = "waveform", features: str = "features", rate: str | None = "rate"
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Replace waveforms by log-mel spectrograms.

    Put the stage before `batch`, so that `prefetch(workers=)` computes spectrograms on all cores.

    The column `waveform` holds lists or tensors [T] of floats or 16-bit samples, as for `collators.audio`. The new column `features`
    holds lists of vectors float32[mels]: 1 + n // hop vectors for n samples. `collators.audio(features="features")` pads the lists to a
    batch. This batch equals the batch that `collators.audio(spectrogram=spectrogram)` makes from waveforms.

    `rate` is the column of sample rates made by `read_audio`. If the column exists, a row whose rate differs from the rate of
    `spectrogram` raises `DataError` with row and file. `rate=None` skips the check. Raises `SchemaError` unless `waveform` holds numbers.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"waveform": [0.5] * 800}])
    >>> (row,) = fp.pipe(rows, fp.audio.log_mel(fp.audio.LogMel(8000, size=200, hop=80, mels=20)))
    >>> list(row), len(row["features"]), len(row["features"][0])
    (['features'], 11, 20)

    See also: `read_audio`, `crop_waveforms`, `collators.LogMel`.
    """
    check_types(LogMel, spectrogram=spectrogram)
    check_text(waveform=waveform, features=features)
    check_types((str, type(None)), rate=rate)
    return _LogMel(spectrogram, waveform, features, rate)


@frozen(repr=False)
class _LogMel(RowWise):
    _spectrogram: LogMel
    waveform: str = "waveform"
    features: str = "features"
    rate: str | None = "rate"

    def schema(self, schema: Schema) -> Schema:
        waveform_values(schema, self.waveform, _NAME)
        if self.features != self.waveform and self.features in schema.names:
            raise SchemaError(f"{_NAME} makes the column {self.features!r}, which already exists. Choose another name with features=.")
        frames = pa.list_(pa.list_(pa.float32(), self._spectrogram.mels))
        return schema.set(schema.get_field_index(self.waveform), pa.field(self.features, frames))

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, columns_read=(self.waveform, PATH, *(() if self.rate is None else (self.rate,))), longest_row=identity)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        self._check_rates(chunk)
        lists = read_lists(column_without_nulls(chunk, self.waveform, _NAME))
        check_values(lists, chunk, self.waveform, _NAME)
        values, ends = lists
        samples = as_samples(
            values.to_numpy(zero_copy_only=False), ends, lambda row: f"{_NAME}: column {self.waveform!r} of {self._row(chunk, row)}"
        )
        frames, frame_ends = self._spectrogram.frames(samples, ends)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(frames.reshape(-1)), self._spectrogram.mels)
        return chunk.set_column(chunk.schema.get_field_index(self.waveform), self.features, to_lists(vectors, frame_ends))

    def _check_rates(self, chunk: RecordBatch) -> None:
        if self.rate not in chunk.schema.names:
            return
        wanted = self._spectrogram.rate
        rows = np.flatnonzero(chunk.column(self.rate).to_numpy(zero_copy_only=False) != wanted)
        if len(rows):
            row = int(rows[0])
            location, rate = self._row(chunk, row), chunk.column(self.rate)[row]
            raise DataError(
                f"{_NAME}: column {self.rate!r} of {location} holds {rate} samples per second, but the rate of the spectrogram is "
                f"{wanted}. Read all files at one rate: read_audio(folder, rate={wanted})."
            )

    def _row(self, chunk: RecordBatch, row: int) -> str:
        return row_at(chunk, row) + file_of(chunk, self.waveform, row)
