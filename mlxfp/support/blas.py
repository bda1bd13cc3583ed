"""OpenBLAS for MLX on Linux: detection of the BLAS library in use, and loading of a fast library before MLX.

MLX looks up `cblas_sgemm`, `cblas_dgemm` and `cblas_cgemm` by name when `mlx.core` is imported. The dynamic loader searches
globally loaded libraries (RTLD_GLOBAL) before the libraries in the MLX wheel and uses the first match.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from time import sleep

from mlxfp.support.atomic_files import user_cache

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # OpenBLAS reads these variables when the library is loaded
_PAUSE = 0.1  # seconds between two counts of busy cores
SYSTEM_LIBRARY = "libopenblas.so.0"  # file of the Debian and Ubuntu package libopenblas0; other distributions use the same file name

# The wheel scipy-openblas32 exports every function with the prefix scipy_. The C code defines three functions without the prefix.
SHIM = """\
#define FORWARD(name, scalar, array) \\
  void scipy_##name(int, int, int, int, int, int, scalar, const array *, int, const array *, int, scalar, array *, int); \\
  void name(int order, int ta, int tb, int m, int n, int k, scalar alpha, const array *a, int lda, const array *b, int ldb, \\
            scalar beta, array *c, int ldc) { scipy_##name(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); }
FORWARD(cblas_sgemm, float, float)
FORWARD(cblas_dgemm, double, double)
FORWARD(cblas_cgemm, const void *, void)
"""


class _SymbolInfo(ctypes.Structure):  # Dl_info of <dlfcn.h>
    _fields_ = (("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p))


class _Library(ctypes.Structure):  # struct link_map of <link.h>: libraries in load order
    pass


_Library._fields_ = (
    ("address", ctypes.c_void_p),
    ("file", ctypes.c_char_p),
    ("dynamic", ctypes.c_void_p),
    ("next", ctypes.POINTER(_Library)),
    ("previous", ctypes.POINTER(_Library)),
)
_LINK_MAP = 2  # RTLD_DI_LINKMAP of <dlfcn.h>


def load_openblas(threads: int | None = None) -> str | None:
    """Load OpenBLAS globally: the system library, otherwise the library of the wheel. Return an error message, or None on success.

    `threads` sets the number of OpenBLAS threads. None leaves the number to OpenBLAS.
    """
    with suppress(OSError):
        library = ctypes.CDLL(SYSTEM_LIBRARY, mode=ctypes.RTLD_GLOBAL)
        if hasattr(library, "cblas_sgemm"):
            _set_threads(library, "openblas_set_num_threads", threads)
            return None
    try:
        import scipy_openblas32 as wheel

        library = ctypes.CDLL(str(Path(wheel.get_lib_dir(), wheel.get_library(fullname=True))), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(_shim(user_cache())), mode=ctypes.RTLD_GLOBAL)
        _set_threads(library, "scipy_openblas_set_num_threads", threads)
    except ModuleNotFoundError:
        return 'OpenBLAS is not installed. Install it with: pip install "mlxfp[cpu]" (or, as root on Debian: apt-get install libopenblas0).'
    except subprocess.CalledProcessError as error:
        return f"The C compiler failed to build the OpenBLAS shim: {error.stderr.strip()}"
    except (OSError, RuntimeError) as error:  # Path.home raises RuntimeError if the user has no home folder
        return f"OpenBLAS is installed, but loading failed: {error}"
    return None


def free_cores() -> tuple[int, int]:
    """Return the number of idle cores available to this process (at least 1), and the number of all available cores.

    Each running process is assumed to keep one core busy. The number of running processes is the present number or the mean of the last
    minute, whichever is smaller.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        average, _, _, processes, _ = Path("/proc/loadavg").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return cores, cores
    busy = min(float(average), int(processes.partition("/")[0]) - 1)  # subtract this process
    return min(cores, max(1, cores - round(busy))), cores


def threads_by_load() -> tuple[int | None, str | None]:
    """Return the number of idle cores as the number of OpenBLAS threads, and a warning. If all cores are idle, return (None, None).

    Cores are counted twice, because a program may be busy for a moment only. If an environment variable sets the number of threads, return
    (None, None).
    """
    free, cores = free_cores()
    if free == cores or any(os.environ.get(name) for name in THREAD_VARIABLES):
        return None, None
    sleep(_PAUSE)
    free = max(free, free_cores()[0])
    if free == cores:
        return None, None
    return free, (
        f"OpenBLAS multiplies matrices with {free} of {cores} threads, because other programs keep the other cores busy. Results may "
        "differ in their last digits from results with another number of threads. To continue a run bit for bit, set the number: "
        f"use_fast_blas(threads={free})."
    )


def blas_threads(threads: int | None = None) -> int | None:
    """Return the number of OpenBLAS threads, or None if MLX does not use OpenBLAS. If `threads` is given, set the number first."""
    if sys.platform != "linux":
        return None
    for library in (ctypes.CDLL(str(path)) for path in _loaded_libraries() if "openblas" in path.name):
        for prefix in ("openblas", "scipy_openblas"):  # functions of the OpenBLAS inside numpy begin with scipy_openblas
            if hasattr(library, f"{prefix}_get_num_threads"):
                _set_threads(library, f"{prefix}_set_num_threads", threads)
                return int(getattr(library, f"{prefix}_get_num_threads")())
    return None


def _set_threads(library: ctypes.CDLL, function: str, threads: int | None) -> None:
    if threads is not None and hasattr(library, function):
        getattr(library, function)(ctypes.c_int(threads))


def blas_library(extension: str) -> Path | None:
    """Return the path of the BLAS library that an extension module uses. `extension` is the path of the module, which must be loaded.

    Return None if the dynamic linker finds no function `cblas_sgemm`.
    """
    loaded_earlier = takewhile(lambda file: file != Path(extension).resolve(), _loaded_libraries())
    loaded_globally = _file_of(ctypes.CDLL(None))
    return loaded_globally if loaded_globally and loaded_globally in loaded_earlier else _file_of(ctypes.CDLL(extension))


def is_reference(library: Path) -> bool:
    """Return True for the slow reference BLAS. Names of fast libraries or of their folders contain a vendor name, such as mkl."""
    path = f"{library.parent.name}/{library.name}"
    fast = ("openblas", "mkl", "blis", "atlas", "armpl", "nvpl", "flexiblas")
    return library.name.startswith(("libblas", "libcblas", "librefblas")) and not any(word in path for word in fast)


def _shim(folder: Path) -> Path:
    """Return the path of a small library in `folder` that forwards calls to OpenBLAS. Build the library if necessary.

    Raises `OSError` or `CalledProcessError` if the build fails.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_ours(folder)
    content = sha256(f"{platform.machine()}\n{SHIM}".encode()).hexdigest()
    library = folder / f"mlxfp-openblas-{content[:16]}.so"  # threadpoolctl fails if the file name lacks the prefix mlxfp-
    if not library.exists():
        _build(library)
    _check_ours(library)
    return library


def _check_ours(path: Path) -> None:
    """Raise `PermissionError` if another user owns or can write `path`, because loading the file would run code of that user."""
    status = path.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"{path} belongs to another user or is writable by others, so mlxfp does not load it. "
            "Remove the file or folder, or set XDG_CACHE_HOME to a folder owned by you."
        )


def _build(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError(
            "there is no C compiler (cc, gcc or clang). Install a compiler, on Debian: apt-get install g++ (also needed by mx.compile)."
        )
    # Compile in a temporary folder, then move the complete library, so that other processes never see an incomplete library.
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        draft = Path(folder, library.name)
        command = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(draft)]
        subprocess.run(command, input=SHIM, text=True, capture_output=True, check=True)  # noqa: S603  # constant arguments, no shell
        draft.chmod(0o700)
        draft.replace(library)


def _file_of(library: ctypes.CDLL) -> Path | None:
    if not hasattr(library, "cblas_sgemm"):
        return None
    info = _SymbolInfo()
    success = ctypes.CDLL(None).dladdr(ctypes.cast(library.cblas_sgemm, ctypes.c_void_p), ctypes.byref(info))
    return Path(os.fsdecode(info.file)).resolve() if success and info.file else None


def _loaded_libraries() -> Iterator[Path]:
    """Yield the files of the loaded libraries in load order.

    `dl_iterate_phdr` is not used, because its Python callback can deadlock: the callback holds the loader lock and waits for the GIL,
    while a thread importing a module holds the GIL and waits for the loader lock.
    """
    program, library = ctypes.CDLL(None), ctypes.POINTER(_Library)()
    if program.dlinfo(ctypes.c_void_p(program._handle), _LINK_MAP, ctypes.byref(library)):  # noqa: SLF001  # ctypes has no public name
        return
    while library:  # type: ignore[truthy-bool]  # a null pointer is false
        # The list of loaded libraries begins with the Python program, which has no file name in the list.
        yield Path(os.fsdecode(library.contents.file or os.fsencode(sys.executable))).resolve()
        library = library.contents.next
