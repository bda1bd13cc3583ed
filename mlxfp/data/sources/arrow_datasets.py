"""Sources that read a dataset of pyarrow or of Lance lazily.

Partition columns and the filter of a `pyarrow.dataset` are kept. A Lance dataset has random access to the rows of one version.
"""

from collections.abc import Iterator
from typing import Any

import attrs
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.arrow.gathering import equal_chunks, takeable
from mlxfp.core.arrow.int96_times import check_years
from mlxfp.core.chunks import CHUNK_ROWS, Indices, RecordBatch, Schema, check_fields, one_chunk
from mlxfp.core.sources import Position, Source, SourceTraits
from mlxfp.data.sources.column_source import reading
from mlxfp.data.sources.columns import check_unique_names
from mlxfp.data.sources.files import count_files, parse_position, position_in
from mlxfp.data.sources.partitions import fit
from mlxfp.data.sources.remote_files import FileStamp
from mlxfp.support.arrow_types import is_text, value_type

_AHEAD = 2  # number of chunks that Arrow reads ahead


def dataset_source(dataset: Any) -> Source | None:
    """Return the source for the files of a pyarrow dataset.

    Returns None for other objects, and for a dataset that holds tables in memory.
    """
    if not type(dataset).__module__.startswith("pyarrow") or not hasattr(dataset, "get_fragments"):
        return None
    fragments = tuple(dataset._get_fragments(None))  # noqa: SLF001  # the public method rejects datasets with a filter
    if any(getattr(fragment, "filesystem", None) is None for fragment in fragments):
        return None
    check_unique_names(dataset.schema.names, "the dataset")
    check_fields(dataset.schema, "the dataset")
    return _FromDataset(fragments, dataset.schema, dataset._scan_options.get("filter"))  # noqa: SLF001  # no public name exists


def _paths(fragments: tuple[Any, ...]) -> Any:
    return tuple((fragment.path, str(fragment.partition_expression)) for fragment in fragments)


@frozen(repr=False)
class _FromDataset(Source):
    """Source of the files of a pyarrow dataset.

    A position, at which reading can resume, is (file, row group, row). The row group is 0 for formats without row groups.
    """

    fragments: tuple[Any, ...] = field(eq=_paths)
    stated: Schema
    filter: Any = field(eq=str)  # pyarrow expression or None
    kept: tuple[str, ...] | None = None  # columns to read; None reads all columns

    def schema(self) -> Schema:
        kinds = {column.name: takeable(column.type) for column in self.stated}
        return pa.schema([(name, kinds[name]) for name in self.kept or kinds])

    def files(self) -> tuple[FileStamp, ...]:
        infos = [info.filesystem.get_file_info(info.path) for info in self.fragments]
        return tuple(FileStamp(info.path, info.size or 0, info.mtime_ns or 0) for info in infos)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        files, schema = self.files(), self.schema()
        first, group, row = parse_position(files, position)
        for number in range(first, len(files)):
            with reading("of the format of its dataset", files[number].path):
                whole = self.fragments[number]
                parts = whole.split_by_row_group() if hasattr(whole, "split_by_row_group") else [whole]
                for part in range(group, len(parts)):
                    for chunk, end in self._chunks(parts[part], schema):
                        if end > row:  # Skip the chunks before the resume position: every reading yields the same chunks.
                            yield chunk, position_in(files, number, part, end)
                    row = 0
            group = 0

    def _chunks(self, part: Any, schema: Schema) -> Iterator[tuple[RecordBatch, int]]:
        # Arrow's casts change values without an error, so columns are read with the types of the file and then cast by `fit`.
        physical = {column.name: column.type for column in part.physical_schema if not is_text(value_type(column.type))}
        kinds = [(column.name, physical.get(column.name, column.type)) for column in self.stated]
        if hasattr(part, "metadata"):
            check_years(part, schema.names)
        batches = part.to_batches(
            schema=pa.schema(kinds), columns=schema.names, filter=self.filter, batch_size=CHUNK_ROWS, batch_readahead=_AHEAD
        )
        end = 0
        for chunk in equal_chunks(batches, CHUNK_ROWS):
            end += chunk.num_rows
            yield fit(chunk, schema, (), part.path), end

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(
            restricted=lambda columns, conditions: attrs.evolve(self, kept=tuple(columns)),
            file_of=self.file_of,
            contents=lambda: count_files(self.files()),
        )

    def length(self) -> int | None:
        known = self.filter is None and all(hasattr(fragment, "split_by_row_group") for fragment in self.fragments)
        return sum(fragment.count_rows() for fragment in self.fragments) if known else None

    def version(self) -> Any:
        return tuple(file.version for file in self.files())

    def file_of(self, position: Position) -> str | None:
        number, _, _ = parse_position(self.files(), position)
        return self.fragments[number].path if 1 < len(self.fragments) > number else None

    def __fingerprint__(self) -> Any:
        return _paths(self.fragments), self.stated, str(self.filter)

    def __repr__(self) -> str:
        return f"from_table(a pyarrow dataset of {len(self.fragments):,} files)"


def lance_source(dataset: Any) -> Source | None:
    """Return the source for the rows of a Lance dataset, or None for other objects."""
    if type(dataset).__module__.partition(".")[0] != "lance" or not hasattr(dataset, "version"):
        return None
    check_unique_names(dataset.schema.names, "the dataset")
    return _FromLance(dataset)


def _lance_version(dataset: Any) -> Any:
    return dataset.uri, dataset.version


@frozen(repr=False)
class _FromLance(Source):
    """Source of the rows of a Lance dataset. A position, at which reading can resume, is a row number."""

    dataset: Any = field(eq=_lance_version)
    kept: tuple[str, ...] | None = None  # columns to read; None reads all columns

    def schema(self) -> Schema:
        kinds = {column.name: takeable(column.type) for column in self.dataset.schema}
        return pa.schema([(name, kinds[name]) for name in self.kept or kinds])

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        schema, row = self.schema(), position or 0
        batches = self.dataset.scanner(columns=schema.names, offset=row, batch_size=CHUNK_ROWS, scan_in_order=True).to_batches()
        for chunk in equal_chunks(batches, CHUNK_ROWS):
            row += chunk.num_rows
            yield fit(chunk, schema, (), self.dataset.uri), row

    @property
    def indexable(self) -> bool:
        return True

    def length(self) -> int:
        return int(self.dataset.count_rows())

    def take(self, epoch: int, indices: Indices) -> RecordBatch:
        schema = self.schema()
        rows = self.dataset.take(indices.tolist(), columns=schema.names)
        return fit(one_chunk(rows), schema, (), self.dataset.uri)

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(
            restricted=lambda columns, conditions: attrs.evolve(self, kept=tuple(columns)),
            take_workers=frozenset({"threads"}),
            costly=lambda: True,
        )

    def version(self) -> Any:
        return _lance_version(self.dataset)

    def __fingerprint__(self) -> Any:
        return *_lance_version(self.dataset), self.dataset.schema

    def __repr__(self) -> str:
        return f"from_table(the Lance dataset {self.dataset.uri!r}, version {self.dataset.version})"
