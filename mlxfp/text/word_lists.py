"""Columns with a list of words per row. The words of a row are joined to a text, and each token gets the index of its word."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from mlxfp.core.arrow.ragged import Ends, Ragged, check_values, column_without_nulls, read_lists, to_lists
from mlxfp.core.chunks import RecordBatch
from mlxfp.support.arrow_types import is_list_like, is_text


def holds_words(kind: pa.DataType) -> bool:
    """Return True if a column contains lists of text."""
    return is_list_like(kind) and is_text(kind.value_type)


@frozen(eq=False)
class WordLists:
    """Words of several rows, stored one after the other."""

    words: pa.Array  # concatenated words of all rows
    ends: Ends  # first word index of each row, and the total number of words, int64[N + 1]

    @property
    def texts(self) -> pa.Array:
        """Words of each row, joined with spaces."""
        return pc.binary_join(to_lists(self.words.cast(pa.string()), self.ends), " ")

    def numbers_of(self, starts: Ragged) -> Ragged:
        """Return the word index of each token within its row. `starts` contains the character offset of each token in the joined text."""
        # lengths of words, including the space after each word
        sizes = pc.utf8_length(self.words).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])  # character offsets of the words in the joined texts of all rows
        rows = np.repeat(np.arange(len(starts.lengths)), starts.lengths)
        positions = np.repeat(starts.starts - (starts.lengths.cumsum() - starts.lengths), starts.lengths) + np.arange(len(rows))
        offsets = starts.values[positions] + bounds[self.ends[:-1]][rows]
        word = np.searchsorted(bounds[1:] - 1, offsets, side="right")
        last = np.maximum(self.ends[1:] - 1, self.ends[:-1])[rows]
        numbers = np.zeros(len(starts.values), np.int32)
        numbers[positions] = np.minimum(word, last) - self.ends[:-1][rows]
        return Ragged(numbers, starts.starts, starts.lengths)


def read_words(chunk: RecordBatch, column: str, stage: str) -> WordLists:
    """Read a column of word lists. Raises `DataError` with the row for a missing list or word."""
    words, ends = read_lists(column_without_nulls(chunk, column, stage))
    check_values((words, ends), chunk, column, stage)
    return WordLists(words, ends)
