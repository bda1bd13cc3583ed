"""Views read few rows at once where rows are large, and cursors stay exact whatever is read at once."""

from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from attrs import field, frozen

import mlxfp as fp
from mlxfp.core.arrow.content import content_bits
from mlxfp.data.row_views import rows_at_once
from mlxfp.data.rows.map_filter import map_chunks, take
from mlxfp.testing import laws


@frozen(repr=False)
class Photographs(fp.Source):
    """As many bytes a row as `size` says, made when they are asked for; `asked` notes how many rows at once."""

    count: int
    size: int
    small: int = 0  # so many rows at the start are of one byte
    asked: list[int] = field(factory=list, eq=False, repr=False)

    @property
    def indexable(self):
        return True

    def schema(self):
        return pa.schema({"image": pa.binary()})

    def length(self):
        return self.count

    def take(self, epoch, indices):
        self.asked.append(len(indices))
        return pa.record_batch({"image": pa.array([bytes(1 if index < self.small else self.size) for index in indices], pa.binary())})

    def read(self, epoch, position):
        yield self.take(epoch, np.arange(self.count)), True


def test_large_rows_are_read_a_few_at_once():
    rows = fp.Dataset(Photographs(4096, 2**20))  # 4 GB, more than an Arrow column holds
    assert sum(len(row["image"]) for row in islice(fp.pipe(rows, fp.shuffle(seed=0)), 100)) == 100 * 2**20
    assert max(rows.source.asked) == 15


def test_small_rows_are_soon_read_many_at_once():
    rows = fp.Dataset(Photographs(20_000, 10))
    assert sum(1 for _ in fp.pipe(rows, fp.shuffle(seed=0))) == 20_000
    assert rows.source.asked[:7] == [4, 12, 48, 192, 768, 3072, 4096]  # ends of chunks are multiples of 4,096: batches fit into them
    assert sum(rows.source.asked) == 20_000


def test_rows_that_become_large_on_the_way_are_noticed():
    rows = fp.Dataset(Photographs(3000, 2**17, small=300))
    assert sum(1 for _ in fp.pipe(rows, take(1000))) == 1000
    assert rows.source.asked[:5] == [4, 12, 48, 192, 744]  # the last one: the first with large rows
    assert sum(1 for _ in fp.pipe(rows, take(2500))) == 2500
    assert max(rows.source.asked[10:]) == 135  # of 16 MB each, but for some of the small rows that were measured with them


def test_what_a_stage_makes_of_the_rows_counts():
    rows = fp.pipe(fp.from_table(pa.table({"x": range(200)})), map_chunks(Decoded(), schema=Decoded.kind), fp.shuffle(seed=0))
    chunks = [chunk.num_rows for chunk, _ in rows.source.read(0, None)]
    assert sum(chunks) == 200
    assert set(chunks[2:-1]) == {15}


def at_once(chunk):
    return rows_at_once(content_bits(chunk), chunk.num_rows)


@frozen
class Decoded:
    kind = pa.schema({"x": pa.fixed_shape_tensor(pa.uint8(), (1024, 1024))})

    def __call__(self, chunk):
        images = np.zeros((chunk.num_rows, 1024, 1024), np.uint8)
        return pa.record_batch({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(images)}, schema=self.kind)


def test_kept_rows_that_are_large_come_a_few_at_once():
    kept = fp.pipe(fp.from_table(pa.table({"image": [bytes(2**18)] * 300})), fp.load())
    assert [chunk.num_rows for chunk, _ in kept.source.read(0, None)] == [63] * 4 + [48]


@pytest.mark.parametrize("keep", [fp.shuffle(seed=0), fp.load()], ids=repr)
@pytest.mark.parametrize("sizes", [[1 << 21] * 20, [0] * 9 + [1 << 24] + [0] * 9, [1 << 24, 1, 1 << 24, 1 << 20, 3]])
def test_cursors_are_exact_whatever_is_read_at_once(keep, sizes):
    rows = keep(fp.from_examples([{"x": bytes([place]) * size} for place, size in enumerate(sizes)]))
    laws.assert_reads(rows.source, epoch=1)
    laws.assert_resumable(rows, epoch=1)
    laws.assert_resumable(fp.pipe(rows, fp.batch(3)), epoch=1)


def test_the_chunks_from_a_position_are_those_that_follow_it():
    rows = fp.pipe(fp.Dataset(Photographs(1000, 2**17, small=300)), fp.shuffle(seed=0))
    read = [(chunk.num_rows, position) for chunk, position in rows.source.read(0, None)]
    for place, (_, position) in enumerate(read, 1):
        assert [chunk.num_rows for chunk, _ in rows.source.read(0, position)] == [size for size, _ in read[place:]]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x" * 1000] * 100),
        pa.array(["x" * 1000] * 100, pa.string_view()),
        pa.array([b"x" * 1000] * 100, pa.binary_view()).slice(10, 50),
        pa.array([[0] * 125] * 100, pa.list_(pa.int64())),
    ],
    ids=lambda column: str(column.type),
)
def test_the_bytes_of_rows_are_those_of_these_rows(column):
    assert at_once(pa.record_batch({"x": column})) == pytest.approx(4096, rel=0.01)
    few = at_once(pa.record_batch([column] * 10, [str(n) for n in range(10)]))
    assert few == pytest.approx(1660, rel=0.02)


def test_a_large_dictionary_that_rows_share_does_not_count():
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 16, pa.int32()), pa.array([f"{n:01000}" for n in range(50_000)]))
    assert at_once(pa.record_batch({"x": column})) == 4096


def test_iterating_from_every_cursor_of_large_rows_gives_the_rest():
    rows = fp.pipe(fp.Dataset(Photographs(200, 2**17, small=100)), fp.shuffle(seed=1))
    run = [(len(row["image"]), cursor) for row, cursor in fp.iterate(rows)]
    for place in (0, 15, 16, 79, 80, 150, 199):
        assert [len(row["image"]) for row, _ in fp.iterate(rows, run[place][1])] == [size for size, _ in run[place + 1 :]]


@pytest.mark.parametrize("stage", [fp.shuffle(seed=1), take(500)], ids=repr)
def test_places_of_rows_in_a_table_are_read_as_rows_are(stage):
    table = pa.table({"x": np.arange(1000) * 3})
    view = stage(fp.from_table(table)).source
    late = view.in_table().source
    places = np.concatenate([fp.parts.source_rows(chunk) for chunk, _ in late.read(1, None)])
    assert (places * 3).tolist() == [value for chunk, _ in view.read(1, None) for value in chunk.column("x").to_pylist()]
    assert repr(late) == repr(view)
    assert [chunk.num_rows for chunk, _ in late.read(1, None)] == [len(places)]
