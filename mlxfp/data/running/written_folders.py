"""Output folder of `write`, with finished files, progress entries and a lock."""

import json
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import attrs
import pyarrow as pa
from attrs import frozen

from mlxfp import __version__
from mlxfp.core.chunks import RecordBatch, Schema, visible
from mlxfp.core.cursors import Cursor
from mlxfp.data.manifests import NAME, PROGRESS, File, Manifest, digest, read_manifest
from mlxfp.data.rows.calling import stop_unwanted
from mlxfp.data.running.error_rows import SkippedRow
from mlxfp.data.running.part_files import Format
from mlxfp.support.atomic_files import write_whole, written_whole
from mlxfp.support.errors import ArgumentError, listed

_PIPELINE = "pipeline.json"
_LOCK = ".lock"


@frozen
class WrittenFolder:
    """Output folder of `write` and its settings. The subfolder `PROGRESS` contains an entry for each finished file."""

    folder: Path
    format: Format
    rows_per_file: int
    schema: Schema  # schema for writing a file without rows
    pipeline: tuple[str, ...]
    fingerprint: str
    hidden: bool = False  # True for `cache`, which also writes the columns `__row__` and `__key__`

    def __attrs_post_init__(self) -> None:
        """Raise `ArgumentError` if a file has the name of the folder or of a parent folder."""
        file = next((path for path in (self.folder, *self.folder.parents) if path.exists()), None)
        if file is not None and not file.is_dir():
            raise ArgumentError(f"The folder {self.folder} cannot be created, because {file} is a file. Name another folder.")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the folder. Other threads and processes wait, so that no file is written twice or removed during use."""
        from filelock import FileLock  # imported only when a lock is needed, because this import is slow

        lock = FileLock(self.folder / _LOCK)
        while not lock.is_locked:
            try:  # Create the folder before each attempt to lock it: a process whose write fails removes the folder.
                self.folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                if self.folder.is_file() or self.folder.is_symlink() or not self.folder.parent.is_dir():
                    raise
                continue
            with suppress(FileNotFoundError):
                lock.acquire(cancel_check=stop_unwanted)
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)  # A process that takes the lock later creates a new lock file.
            with suppress(OSError):
                self.folder.rmdir()  # `rmdir` removes only an empty folder.
            lock.release()

    def clear_lock(self) -> None:
        """Wait until no other process writes to the folder, and remove the lock file from the folder."""
        if (self.folder / _LOCK).exists():
            with suppress(OSError), self.alone():  # OSError: the lock cannot be acquired in a read-only folder
                pass

    @property
    def writer(self) -> str:
        """Name of the calling function: `write` or `cache`."""
        return "cache" if self.hidden else "write"

    def name(self, index: int) -> str:
        """Return the name of file `index`."""
        return f"part-{index:05d}{self.format.suffix}"

    @property
    def progress(self) -> Path:
        """Subfolder with a progress entry (a small JSON file) for each finished file."""
        return self.folder / PROGRESS

    def write_file(self, index: int, chunks: Iterable[RecordBatch], after: Callable[[], bytes]) -> None:
        """Write a data file, then the progress entry that marks the file as finished. `after` returns the cursor at the end of the file."""
        name = self.name(index)
        visible_chunks = iter(chunks if self.hidden else map(visible, chunks))
        first = next(visible_chunks, None)
        all_chunks = () if first is None else chain((first,), visible_chunks)
        with written_whole(self.folder / name, within=self.progress) as temporary:
            rows = self.format.write(temporary, self.schema if first is None else first.schema, all_chunks)
            done = File(name, rows, temporary.stat().st_size, digest(temporary))
        self._note(index, done, after())

    def _note(self, index: int, done: File, after: bytes | None) -> None:
        """Write the progress entry of a finished file: a JSON file with size, row count, hash, and the cursor at the end of the file."""
        entry = attrs.asdict(done) | {"after": None if after is None else b64encode(after).decode()}
        write_whole(self.progress / f"{self.name(index)}.json", json.dumps(entry).encode())

    def known(self, index: int) -> tuple[File | None, Cursor | None]:
        """Return the progress entry of file `index`, and the cursor at the end of the file. The cursor is None if the entry has no cursor.

        Returns (None, None) if the file or the progress entry is missing or damaged.
        """
        file, after = self.noted(index)
        return (file, after) if file is not None and file.is_whole(self.folder) else (None, None)

    def forget_cursor(self, index: int) -> None:
        """Remove the cursor from the progress entry of a file."""
        file, after = self.noted(index)
        if file is not None and after is not None:
            self._note(index, file, None)

    def noted(self, index: int) -> tuple[File | None, Cursor | None]:
        """Return the progress entry of file `index` and the cursor at the end of the file, without a check of the file."""
        path = self.progress / f"{self.name(index)}.json"
        try:
            entry = json.loads(path.read_bytes())
            after = entry.pop("after")
            file, cursor = File(**entry), None if after is None else Cursor.from_bytes(b64decode(after))
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # missing or damaged file
            return None, None
        return (file, cursor) if file.name == self.name(index) else (None, None)

    def clear(self) -> None:
        """Remove everything in the folder except the lock."""
        shutil.rmtree(self.progress, ignore_errors=True)
        for path in self.folder.iterdir():
            if path.name != _LOCK:
                path.unlink()

    def start_over(self) -> None:
        """Remove all data files and their progress entries."""
        for path in (*self.progress.glob("part-*.json"), *self.folder.glob(f"part-*{self.format.suffix}")):
            path.unlink()

    def written(self) -> Manifest | None:
        """Return the manifest if all files are written. Raises `ArgumentError` for the manifest of another pipeline."""
        manifest = read_manifest(self.folder)
        if manifest is not None:
            self._check_same(manifest.fingerprint, manifest.pipeline)
            # Remove progress files, which remain if a process was killed just after writing the manifest.
            shutil.rmtree(self.progress, ignore_errors=True)
        return manifest

    def begin(self) -> Manifest | None:
        """Prepare the folder. Return the manifest if all files are already written. Raises `ArgumentError` for data of another pipeline."""
        manifest = self.written()
        if manifest is not None:
            return manifest
        about = self.progress / _PIPELINE
        if about.is_file():
            entry = json.loads(about.read_bytes())
            self._check_same(entry["fingerprint"], tuple(entry["pipeline"]))
            return None
        others = sorted(path.name for path in self.folder.iterdir() if path.name not in {PROGRESS, _LOCK})
        if others:
            raise ArgumentError(
                f"write needs a new or empty folder, got {self.folder} with other files: {listed(others)}. Name another folder."
            )
        self._open()
        return None

    def begin_whole(self) -> Manifest | None:
        """Prepare the folder with `begin`. Return the manifest if all files are complete. Damaged files will be written again."""
        manifest = self.begin()
        damaged = () if manifest is None else manifest.damaged()
        if manifest is not None and damaged:
            self._reopen(manifest, damaged)
        return None if damaged else manifest

    def _open(self) -> None:
        self.progress.mkdir(parents=True, exist_ok=True)
        entry = {"fingerprint": self.fingerprint, "pipeline": self.pipeline}
        write_whole(self.progress / _PIPELINE, json.dumps(entry).encode())

    def finish(self, files: int, skipped: tuple[SkippedRow, ...] = ()) -> Manifest:
        """Write the manifest for the first `files` files, and remove the subfolder with the progress entries."""
        entries = tuple(file for index in range(files) if (file := self.noted(index)[0]))
        manifest = Manifest(
            folder=str(self.folder),
            pipeline=self.pipeline,
            fingerprint=self.fingerprint,
            format=self.format.name,
            rows=sum(item.rows for item in entries),
            schema={item.name: str(item.type) for item in self.schema},
            files=entries,
            skipped=tuple((repr(item.origin.source), item.origin.row, item.stage, item.reason) for item in skipped),
            versions={"mlxfp": __version__, "pyarrow": pa.__version__},
        )
        manifest.save()
        shutil.rmtree(self.progress, ignore_errors=True)
        return manifest

    def _reopen(self, manifest: Manifest, damaged: tuple[str, ...]) -> None:
        self._open()
        for index, file in enumerate(manifest.files):
            if file.name not in damaged:
                self._note(index, file, None)
        (self.folder / NAME).unlink()

    def _check_same(self, fingerprint: str, pipeline: tuple[str, ...]) -> None:
        if fingerprint != self.fingerprint:
            raise ArgumentError(
                f"The folder {self.folder} has data of another pipeline, of changed source files, or of a call with other "
                f"arguments: got pipe({', '.join(pipeline)}). Name another folder, or delete this folder."
            )
