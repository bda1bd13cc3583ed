"""Pool of worker processes. loky starts the processes, cloudpickle sends functions, and rows are sent as Arrow IPC in shared memory.

Each run has a temporary folder. Stages and sources used by several jobs are pickled once into this folder, and each worker reads them
once. Small chunks are sent through the pipe. Large chunks are sent as files in the folder, which lies in memory (`/dev/shm`) if there is
enough room. The receiver maps a file into memory and deletes it.

The pool removes the folder when it closes. If this process is killed, the workers remove the folder. If the workers are killed as well,
the next pool removes the folder. A running pool locks its folder, so that other pools do not remove the folder. Unlike a process id,
the lock also protects the folder from processes in other containers that share the memory.
"""

import fcntl
import gc
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from types import FunctionType
from typing import Any

import pyarrow as pa

from mlxfp.core.nodes import brief
from mlxfp.core.running.segments import Job, Result, Segment
from mlxfp.core.sources import Source
from mlxfp.data.running.meters import Counts, add_counts, take_counts
from mlxfp.data.running.pools import Pool, timed, unstarted
from mlxfp.support.errors import WorkerError
from mlxfp.support.optional import optional

_IN_MEMORY = Path("/dev/shm")  # noqa: S108  # the folder of a run is private and has a unique name
_ROOM = 1 << 30  # Number of bytes that must be free in `/dev/shm`. A container may have only 64 MB.
_THROUGH_PIPE = 1 << 16  # Largest message that is sent through the pipe, in bytes. Larger messages are sent as files.
_LOOK = 1.0  # seconds between two checks by a worker that the parent process still runs
# Libraries use one thread in each worker process, because there are already as many worker processes as cores.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}


class Processes(Pool):
    """Pool of worker processes. Workers import neither MLX nor the main module of the program."""

    kind = "processes"

    def __init__(self, workers: int) -> None:
        """Create the temporary folder. loky starts the processes at the first job."""
        super().__init__(workers)
        loky = optional("loky", extra="processes", needed_by='prefetch(kind="processes")')
        self._process = os.getpid()
        self._unstarted: WorkerError | None = None  # error of the first process that could not start
        self._shared: dict[int, tuple[Any, str]] = {}  # maps the id of a shared value to the value and its file name
        self._jobs, self._texts = 0, dict[str, str]()
        self._sending = threading.Lock()
        try:
            self._folder, self._lock_of_folder = _make_folder()
            settings = {"initializer": _begin, "initargs": (str(self._folder), self._process), "env": _ONE_THREAD, "timeout": None}
            self._executor = loky.ProcessPoolExecutor(workers, **settings)
        except OSError as error:
            raise unstarted("process", workers, error) from error

    def submit(self, job: Job, unwanted: Callable[[], bool]) -> "Future[Result]":
        """Send a job to a worker process. Raises `WorkerError` with the stage if the job cannot be pickled."""
        with self._sending:
            if self._unstarted is not None:
                raise self._unstarted
            self._jobs += 1
            name = str(self._jobs)
            data = self._pickled(job)
            self._texts[name] = _text(job)
            try:
                sent: Future[Any] = self._executor.submit(_work, str(self._folder), name, data)
            except BrokenProcessPool as error:
                raise self._ended(error) from error
            # loky raises RuntimeError if no new thread can start.
            # loky raises UnboundLocalError instead of OSError if no new pipe can be opened.
            except (OSError, RuntimeError, UnboundLocalError) as error:
                self._unstarted = unstarted("process", self.workers, error.__context__ if isinstance(error, NameError) else error)
                raise self._unstarted from error
        received: Future[Result] = Future()
        # Mark the future as running: a job in a worker process cannot be cancelled.
        received.set_running_or_notify_cancel()
        sent.add_done_callback(lambda done: self._receive(done, name, received))
        return received

    def close(self) -> None:
        """Kill the worker processes and delete the temporary files. In a forked child, do nothing: the processes belong to the parent."""
        if os.getpid() != self._process:
            return
        processes = dict(self._executor._processes)  # noqa: SLF001  # loky has no public name for the processes
        self._executor.shutdown(wait=True, kill_workers=True)
        for process in processes.values():  # loky leaves processes alive if another process could not start
            process.terminate()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock_of_folder)

    def _receive(self, sent: "Future[Any]", name: str, received: "Future[Result]") -> None:
        try:
            result, data, counts = sent.result()
            add_counts(counts)
            result = result._replace(chunks=_read_chunks(self._folder, data))
            self._texts.pop(name, None)
            received.set_result(result)
        except BrokenProcessPool as error:
            received.set_exception(self._ended(error))
        except _UnreadableError as error:
            message = f'A worker process cannot load its job: {error}, for {self._texts[name]}. Use kind="threads".'
            received.set_exception(WorkerError(message))
        except BaseException as error:  # noqa: BLE001  # this process repeats the job and raises its error
            received.set_exception(error)

    def _ended(self, error: Exception) -> WorkerError:
        """Return a `WorkerError` that lists the jobs of the dead workers."""
        running = sorted(path.name.removeprefix(_RUNNING) for path in self._folder.glob(f"{_RUNNING}*"))
        texts = [self._texts[name] for name in running if name in self._texts]
        rows = "; ".join(texts) or "no rows (a worker may not have started)"
        reason = " ".join(str(error).split())
        return WorkerError(
            f"A worker process has ended. The workers were working on: {rows}. {reason[:300]} If the system killed it for memory, "
            'use fewer workers or smaller rows; if a function crashes, kind="threads" shows where.'
        )

    def _pickled(self, job: Job) -> bytes:
        try:
            return dumps(job, self._share, self._folder)
        except Exception as error:
            for step in job.segment.steps:
                try:
                    dumps(step.stage, lambda value: None, self._folder)
                except Exception as cause:
                    raise WorkerError(
                        f"A stage cannot be sent to another process: {cause}, in {step.text}. Create open files and locks "
                        'inside the function, or use kind="threads".'
                    ) from cause
            raise WorkerError(
                f'A task cannot be sent to another process: {error}, in {_text(job)}. Use kind="threads", or put load() or cache(path) '
                "after the source."
            ) from error

    def _share(self, value: Any) -> str | None:
        """Pickle a `Segment` or `Source` once, to a file that several jobs can read. Return the name of the file.

        Returns None for a value of another type. Such a value is pickled again for each job.
        """
        if not isinstance(value, Segment | Source):
            return None
        if id(value) not in self._shared:
            data = dumps(value, lambda inner: None if inner is value else self._share(inner), self._folder)
            name = f"shared-{len(self._shared)}"  # Get the number after `dumps`, because `dumps` may add values to `_shared`.
            (self._folder / name).write_bytes(data)
            self._shared[id(value)] = (value, name)  # The stored reference keeps the value alive, so that no other value gets the same id.
        return self._shared[id(value)][1]


def _text(job: Job) -> str:
    stages = ", ".join(step.text for step in job.segment.steps)
    return f"{job.task.rows} rows from row {job.first} on" + (f" in {stages}" if stages else f" of {brief(job.task)}")


# --- messages between this process and the workers


@lru_cache(maxsize=1024)
def _is_importable(module: str) -> bool:
    """Return True if a new process can import a module by name. Returns False for a module created at run time."""
    top = module.partition(".")[0]
    return module not in sys.modules or module == "__main__" or any(finder.find_spec(top, None) for finder in sys.meta_path)


def dumps(value: Any, shared: Callable[[Any], str | None], folder: Path | None) -> bytes:
    """Pickle a job or a result. Functions that cannot be imported are pickled by value, and rows as Arrow IPC.

    `shared` is called with each object inside `value`. If an object is stored in a file, `shared` returns the file name. The pickle then
    contains only the name, and the receiver reads the file. Large chunks are written to files in `folder`. With `folder=None`, the returned
    bytes contain all chunks.
    """
    cloudpickle = optional("cloudpickle", extra="processes", needed_by="Sending work to other processes")

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc,name-defined]  # the package is imported where it is used
        def persistent_id(self, value: Any) -> str | None:
            return shared(value)

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, pa.RecordBatch):  # A plain pickle of an Arrow slice would contain the whole buffers.
                return _read_chunk, (str(folder), _write_chunks(folder, [value]))
            if isinstance(value, FunctionType | type) and not _is_importable(value.__module__):
                cloudpickle.register_pickle_by_value(sys.modules[value.__module__])
            return super().reducer_override(value)

    file = BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def _read_chunk(folder: str, data: "bytes | str") -> pa.RecordBatch:
    return _read_chunks(Path(folder), data)[0]


def _write_chunks(folder: Path | None, chunks: list[pa.RecordBatch]) -> bytes | str:
    """Return small chunks as bytes. Write large chunks to a file and return its path."""
    size = sum(chunk.nbytes for chunk in chunks)
    if folder is None or size < _THROUGH_PIPE:
        sink = pa.BufferOutputStream()
        _write(chunks, sink)
        written: bytes = sink.getvalue().to_pybytes()
        return written
    handle, path = tempfile.mkstemp(dir=folder)
    os.close(handle)
    with pa.OSFile(path, "wb") as file:
        _write(chunks, file)
    return path


def _write(chunks: list[pa.RecordBatch], sink: Any) -> None:
    for chunk in chunks:
        with pa.ipc.new_stream(sink, chunk.schema) as writer:
            writer.write_batch(chunk)


def _read_chunks(folder: Path, data: bytes | str) -> list[pa.RecordBatch]:
    """Read chunks from bytes or from a file. A file stays mapped into memory as long as any of its chunks exists."""
    if isinstance(data, bytes):
        return list(_read(pa.BufferReader(data)))
    with suppress(FileNotFoundError):
        mapped = pa.memory_map(data)
        os.unlink(data)  # noqa: PTH108  # a string, not a `Path`
        return list(_read(mapped))
    raise WorkerError(
        f"The result file {data} of a worker is missing. Another program deletes files in {folder.parent}: stop this program."
    )


def _read(source: Any) -> Iterator[pa.RecordBatch]:
    end = source.size()
    while source.tell() < end:
        with pa.ipc.open_stream(source) as reader:
            yield from reader


# --- temporary folder of the run, in this process

_PREFIX = "mlxfp-run-"
_RUNNING = "running-"


def _make_folder() -> tuple[Path, int]:
    """Create and lock the temporary folder of a run. Return the path of the folder and the file descriptor that holds the lock.

    The function also deletes the folders of killed processes.
    """
    parent = None
    with suppress(OSError):
        if os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free >= _ROOM:
            parent = _IN_MEMORY
    try:
        parent = parent or Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise WorkerError(
            f"Workers have no folder for their results: {error.strerror}. Set a writable folder: export TMPDIR=FOLDER."
        ) from error
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # skip a folder that belongs to another user or to a running pool
            lock = _lock(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
    # Lock the new folder before renaming it to `mlxfp-run-...`, because other processes delete unlocked folders with such a name.
    new = Path(tempfile.mkdtemp(prefix="mlxfp-new-", dir=parent))
    lock = _lock(new)
    return new.rename(parent / new.name.replace("mlxfp-new-", _PREFIX)), lock


def _lock(folder: Path) -> int:
    """Lock a folder until the returned descriptor is closed, or the process ends. Raises `OSError` if another process has the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


# --- functions that run in workers


# Objects that several jobs use, by folder and file name. No lock is needed, because a worker runs one job at a time.
_loaded: dict[tuple[str, str], Any] = {}


def _begin(folder: str, parent: int) -> None:  # pragma: no cover  # would end the test process
    """Prepare a worker process: ignore interrupts, and exit after the parent process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    gc.disable()  # Without garbage collection, a worker starts faster by a tenth. The first job enables garbage collection.

    def watch() -> None:
        while os.getppid() == parent:  # After the end of the parent process, this process gets another parent.
            time.sleep(_LOOK)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, name="mlxfp-watch", daemon=True).start()


def _work(folder: str, name: str, data: bytes) -> tuple[Result, bytes | str, dict[int, Counts]]:
    """Run a job in a worker process. Chunks are returned separately, as bytes or as the path of a file.

    A file in the temporary folder marks the running job, so that an error about a dead worker can name the job.
    """
    mark = Path(folder, f"{_RUNNING}{name}")
    mark.touch()
    try:
        job = _load(data, folder)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        result = timed(job)
        return result._replace(chunks=[]), _write_chunks(Path(folder), result.chunks), take_counts()
    except Exception as error:
        if _can_be_sent(error):
            raise
        raise _FailedError(f"{type(error).__name__}: {error}") from None
    finally:
        mark.unlink(missing_ok=True)


def _can_be_sent(error: Exception) -> bool:
    """Return True if an error can be pickled and unpickled. An error with unusual `__init__` arguments would make the pool unusable."""
    try:
        pickle.loads(dumps(error, lambda value: None, None))  # noqa: S301  # written in the same call
    except Exception:  # noqa: BLE001  # any class of error
        return False
    return True


class _FailedError(Exception):
    """Replacement for an error that cannot be pickled. The parent process repeats the job to raise the original error."""


def _load(data: bytes, folder: str) -> Any:
    try:
        return _Unpickler(BytesIO(data), folder).load()
    except Exception as error:
        raise _UnreadableError(f"{type(error).__name__}: {error}") from error


class _UnreadableError(Exception):
    """Exception for a job that the worker cannot unpickle."""


class _Unpickler(pickle.Unpickler):
    """Unpickler for jobs sent by the parent process."""

    def __init__(self, file: BytesIO, folder: str) -> None:
        """Create an unpickler. Values used by several jobs are read from `folder`."""
        super().__init__(file)
        self._folder = folder

    def persistent_load(self, name: str) -> Any:
        key = self._folder, name
        if key not in _loaded:
            _loaded[key] = _Unpickler(BytesIO(Path(self._folder, name).read_bytes()), self._folder).load()
        return _loaded[key]
