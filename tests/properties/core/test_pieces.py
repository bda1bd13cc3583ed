"""Law of pieces: they come out end to end, in the order of their places."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.arrow.gathering import Pieces

BUFFERS = st.lists(st.binary(max_size=40), min_size=1, max_size=4)


@given(st.data(), BUFFERS, st.randoms(use_true_random=False))
def test_pieces_are_joined_in_the_order_of_their_places(data, buffers, random):
    spans = [
        (number, *sorted(data.draw(st.tuples(st.integers(0, len(held)), st.integers(0, len(held))))))
        for number, held in enumerate(buffers)
        for _ in range(data.draw(st.integers(0, 6)))
    ]
    random.shuffle(spans)
    pieces = Pieces(len(spans))
    for number, held in enumerate(buffers):
        at = np.array([place for place, (which, _, _) in enumerate(spans) if which == number], np.int64)
        begins = np.array([spans[place][1] for place in at], np.int64)
        stops = np.array([spans[place][2] for place in at], np.int64)
        pieces.put(at, pa.py_buffer(held), begins, stops - begins)
    ends, joined = pieces.joined()
    expected = [buffers[number][begin:stop] for number, begin, stop in spans]
    assert joined.to_pybytes() == b"".join(expected)
    assert ends.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
