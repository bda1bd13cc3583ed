"""Columns of lists of words: their text, and the word of each of its tokens."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from mlxfp.core.arrow.ragged import Ends, Ragged, check_values, column_without_nulls, read_lists, to_lists
from mlxfp.core.chunks import RecordBatch
from mlxfp.support.arrow_types import is_list_like, is_text


def holds_words(kind: pa.DataType) -> bool:
    """Whether a column holds lists of text."""
    return is_list_like(kind) and is_text(kind.value_type)


@frozen(eq=False)
class WordLists:
    """The words of several rows."""

    words: pa.Array  # of all rows, end to end
    ends: Ends  # where those of each row end: int64[N + 1]

    @property
    def texts(self) -> pa.Array:
        """The words of each row with a space between."""
        return pc.binary_join(to_lists(self.words.cast(pa.string()), self.ends), " ")

    def numbers_of(self, starts: Ragged) -> Ragged:
        """Return the number in its row of the word of each token, whose place in the text of its row is in `starts`."""
        sizes = pc.utf8_length(self.words).to_numpy(zero_copy_only=False).astype(np.int64) + 1  # with the space behind it
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])  # on a number line of all rows
        rows = np.repeat(np.arange(len(starts.lengths)), starts.lengths)
        places = np.repeat(starts.starts - (starts.lengths.cumsum() - starts.lengths), starts.lengths) + np.arange(len(rows))
        at = starts.values[places] + bounds[self.ends[:-1]][rows]
        word = np.searchsorted(bounds[1:] - 1, at, side="right")
        last = np.maximum(self.ends[1:] - 1, self.ends[:-1])[rows]
        numbers = np.zeros(len(starts.values), np.int32)
        numbers[places] = np.minimum(word, last) - self.ends[:-1][rows]
        return Ragged(numbers, starts.starts, starts.lengths)


def read_words(chunk: RecordBatch, column: str, stage: str) -> WordLists:
    """Read a column of lists of words. Raises `DataError` for a missing list or word, naming its row."""
    words, ends = read_lists(column_without_nulls(chunk, column, stage))
    check_values((words, ends), chunk, column, stage)
    return WordLists(words, ends)
