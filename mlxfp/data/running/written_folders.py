"""The folder of `write`: finished files, progress and lock."""

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
    """What is to be written. The folder holds the files that are done, and in `PROGRESS` what is known of each."""

    folder: Path
    format: Format
    rows_per_file: int
    schema: Schema  # where there are no rows
    pipeline: tuple[str, ...]
    fingerprint: str
    hidden: bool = False  # the hidden columns are written, too

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the folder. Other threads and processes wait, so no work is repeated or removed during use."""
        from filelock import FileLock  # takes longer to import than all of Arrow's formats

        lock = FileLock(self.folder / _LOCK)
        while not lock.is_locked:
            try:  # the last holder of the lock may fail and remove the folder
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
            Path(lock.lock_file).unlink(missing_ok=True)  # waiting processes notice, and create another file
            with suppress(OSError):
                self.folder.rmdir()  # only an empty folder is removed
            lock.release()

    def clear_lock(self) -> None:
        """Remove the lock file of a process that has written everything; wait for the release of the lock."""
        if (self.folder / _LOCK).exists():
            with suppress(OSError), self.alone():  # an error where nothing may be written
                pass

    @property
    def writer(self) -> str:
        """The public function that writes: `write` or `cache`."""
        return "cache" if self.hidden else "write"

    def name(self, place: int) -> str:
        """Name the file."""
        return f"part-{place:05d}{self.format.suffix}"

    @property
    def progress(self) -> Path:
        """The folder of what is known while data are written."""
        return self.folder / PROGRESS

    def write_file(self, place: int, chunks: Iterable[RecordBatch], after: Callable[[], bytes]) -> None:
        """Write a file, then its entry, which marks the file as finished. `after` returns the cursor at the end of the file."""
        name = self.name(place)
        found = iter(chunks if self.hidden else map(visible, chunks))
        first = next(found, None)
        every = () if first is None else chain((first,), found)
        with written_whole(self.folder / name, within=self.progress) as temporary:
            rows = self.format.write(temporary, self.schema if first is None else first.schema, every)
            done = File(name, rows, temporary.stat().st_size, digest(temporary))
        self._note(place, done, after())

    def _note(self, place: int, done: File, after: bytes | None) -> None:
        """Write the entry of a file."""
        said = attrs.asdict(done) | {"after": None if after is None else b64encode(after).decode()}
        write_whole(self.progress / f"{self.name(place)}.json", json.dumps(said).encode())

    def known(self, place: int) -> tuple[File | None, Cursor | None]:
        """Return the entry of a finished, undamaged file, and the cursor at its end, if stored."""
        file, after = self.noted(place)
        return (file, after) if file is not None and file.is_whole(self.folder) else (None, None)

    def forget_cursor(self, place: int) -> None:
        """Remove the cursor from the entry of a file."""
        file, after = self.noted(place)
        if file is not None and after is not None:
            self._note(place, file, None)

    def noted(self, place: int) -> tuple[File | None, Cursor | None]:
        """Return the entry of a file and its cursor without a check of the file."""
        path = self.progress / f"{self.name(place)}.json"
        if not path.is_file():
            return None, None
        said = json.loads(path.read_bytes())
        after = said.pop("after")
        return File(**said), None if after is None else Cursor.from_bytes(b64decode(after))

    def clear(self) -> None:
        """Remove everything in the folder except the lock."""
        shutil.rmtree(self.progress, ignore_errors=True)
        for path in self.folder.iterdir():
            if path.name != _LOCK:
                path.unlink()

    def start_over(self) -> None:
        """Remove the files and their entries."""
        for path in (*self.progress.glob("part-*.json"), *self.folder.glob(f"part-*{self.format.suffix}")):
            path.unlink()

    def written(self) -> Manifest | None:
        """Return the manifest if all files are written. Raises `ArgumentError` for the manifest of another pipeline."""
        manifest = read_manifest(self.folder)
        if manifest is not None:
            self._check_same(manifest.fingerprint, manifest.pipeline)
            shutil.rmtree(self.progress, ignore_errors=True)  # left by a process that was killed after it wrote the manifest
        return manifest

    def begin(self) -> Manifest | None:
        """Look at what is in the folder; return the manifest if all has been written. Raises `ArgumentError` for data of something else."""
        manifest = self.written()
        if manifest is not None:
            return manifest
        about = self.progress / _PIPELINE
        if about.is_file():
            said = json.loads(about.read_bytes())
            self._check_same(said["fingerprint"], tuple(said["pipeline"]))
            return None
        others = sorted(path.name for path in self.folder.iterdir() if path.name not in {PROGRESS, _LOCK})
        if others:
            raise ArgumentError(
                f"write needs a folder of its own, got {self.folder} with other files: {listed(others)}. "
                "Name one that is empty or not there."
            )
        self._open()
        return None

    def begin_whole(self) -> Manifest | None:
        """Call `begin`; if files are damaged, reopen the folder so that these files are written again."""
        manifest = self.begin()
        damaged = () if manifest is None else manifest.damaged()
        if manifest is not None and damaged:
            self._reopen(manifest, damaged)
        return None if damaged else manifest

    def _open(self) -> None:
        self.progress.mkdir(parents=True, exist_ok=True)
        said = {"fingerprint": self.fingerprint, "pipeline": self.pipeline}
        write_whole(self.progress / _PIPELINE, json.dumps(said).encode())

    def finish(self, files: int, skipped: tuple[SkippedRow, ...] = ()) -> Manifest:
        """Write the manifest of `files` files, and remove the folder of progress."""
        found = tuple(file for place in range(files) if (file := self.noted(place)[0]))
        manifest = Manifest(
            folder=str(self.folder),
            pipeline=self.pipeline,
            fingerprint=self.fingerprint,
            format=self.format.name,
            rows=sum(each.rows for each in found),
            schema={each.name: str(each.type) for each in self.schema},
            files=found,
            skipped=tuple((repr(each.origin.source), each.origin.row, each.stage, each.reason) for each in skipped),
            versions={"mlxfp": __version__, "pyarrow": pa.__version__},
        )
        manifest.save()
        shutil.rmtree(self.progress, ignore_errors=True)
        return manifest

    def _reopen(self, manifest: Manifest, damaged: tuple[str, ...]) -> None:
        self._open()
        for place, each in enumerate(manifest.files):
            if each.name not in damaged:
                self._note(place, each, None)
        (self.folder / NAME).unlink()

    def _check_same(self, found: str, pipeline: tuple[str, ...]) -> None:
        if found != self.fingerprint:
            raise ArgumentError(
                f"The folder {self.folder} has data of another pipeline, of files that have changed since, or of a call with other "
                f"arguments: got pipe({', '.join(pipeline)}). Name another folder, or delete this one."
            )
