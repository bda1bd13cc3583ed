"""Files written by `cache`. The files are memory-mapped, and compared with the hashes of the manifest at the first use."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from mlxfp.core.chunks import RecordBatch
from mlxfp.data.manifests import File, Manifest, has_hash
from mlxfp.data.sources.files import look_up
from mlxfp.data.sources.remote_files import FileStamp
from mlxfp.support.arrow_types import with_text_names
from mlxfp.support.errors import DataError


class CachedItems(Sequence[Any]):
    """Sequence of the groups or batches in the files of a cache. A group is stored as a record batch. `restored` decodes a stored batch."""

    def __init__(
        self,
        readers: Sequence[pa.ipc.RecordBatchFileReader],
        files: Sequence[FileStamp],
        folder: Path,
        restored: Callable[[RecordBatch], Any] | None,
    ) -> None:
        """List the record batches of all files."""
        self._locations = [
            (reader, file, index) for reader, file in zip(readers, files, strict=True) for index in range(reader.num_record_batches)
        ]
        self._folder, self._restored = folder, restored

    def __getitem__(self, index: Any) -> Any:
        reader, file, batch_index = self._locations[index]
        with reading_cache(self._folder):
            check_hash(file)
            item = reader.get_batch(batch_index)
            return item if self._restored is None else self._restored(item)

    def __len__(self) -> int:
        return len(self._locations)


def open_files(folder: Path, manifest: Manifest) -> tuple[list[pa.ipc.RecordBatchFileReader], tuple[FileStamp, ...]]:
    """Open the files of a cache as memory maps."""
    files = tuple(look_up(folder / file.name)._replace(hash=file.hash) for file in manifest.files)
    return list(map(_open, files, manifest.files)), files


def check_hash(file: FileStamp) -> None:
    """Raise `ArrowInvalid` if the hash of a file differs from the manifest. A damaged offset could make Arrow read outside the file."""
    if not has_hash(file.path, file.size, file.modified, file.hash or ""):
        raise pa.ArrowInvalid(f"the SHA-256 hash of {Path(file.path).name} differs from the manifest")


def _open(stamp: FileStamp, written: File) -> pa.ipc.RecordBatchFileReader:
    file = Path(stamp.path)
    if stamp.size != written.bytes:
        raise pa.ArrowInvalid(f"{file.name} has {stamp.size:,} bytes instead of {written.bytes:,}")
    reader = pa.ipc.open_file(pa.memory_map(str(file)))
    with_text_names(reader.schema)
    return reader


@contextmanager
def reading_cache(folder: Path) -> Iterator[None]:
    """Convert read errors inside the `with` block to a `DataError` that names the folder of the cache."""
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:  # tensors of a wrong shape raise ValueError
        raise DataError(f"The cache {folder} cannot be read: {error}. Delete this folder; the next run creates the cache again.") from error
