"""The fast BLAS: found, built once, trusted only where it is ours, and right for every kind of matrix product."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp import runtime
from mlxfp.support import blas
from mlxfp.support.atomic_files import user_cache
from mlxfp.support.blas import SHIM, _shim, is_reference
from mlxfp.support.errors import ArgumentError, MissingExtraError, UnknownNameError

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="OpenBLAS is put in front of MLX on Linux only")
ABSENT = (
    "import sys; sys.modules['scipy_openblas32'] = None; import mlxfp.support.blas; mlxfp.support.blas.SYSTEM_LIBRARY = 'libabsent.so'; "
)


def fresh(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process, where MLX is not imported yet."""
    program = f"import mlxfp as fp\n{code}"
    return subprocess.run([sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def reference_wheel() -> None:
    """Skip where MLX on its own is fast: on a GPU, on macOS, or built with a fast BLAS."""
    if fresh("print(fp.runtime.report().slow)").stdout.strip() != "True":
        pytest.skip("MLX is fast here without help")


# --- the law: the shim forwards every argument, so a product is that of numpy -------------------------------------------------------


class Kind(NamedTuple):
    """One of the three functions: its numpy type and how it takes a scalar."""

    function: str
    dtype: Any
    scalar: Callable[[Any], Any]


def by_pointer(value: complex) -> Any:
    return np.array(value, np.complex64).ctypes.data_as(ctypes.c_void_p)


KINDS = (
    Kind("cblas_sgemm", np.float32, ctypes.c_float),
    Kind("cblas_dgemm", np.float64, ctypes.c_double),
    Kind("cblas_cgemm", np.complex64, by_pointer),
)
ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112


def load(library: Path) -> ctypes.CDLL:
    wheel = pytest.importorskip("scipy_openblas32", reason="scipy-openblas32 comes with the extra cpu")
    ctypes.CDLL(str(Path(wheel.get_lib_dir(), wheel.get_library(fullname=True))), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(library))


def whole(numbers: np.random.Generator, shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """Small whole numbers: sums of their products are exact in every dtype, so no tolerance is needed."""
    values = numbers.integers(-4, 5, shape).astype(dtype)
    return values + 1j * numbers.integers(-4, 5, shape) if np.iscomplexobj(values) else values


def assert_products_are_those_of_numpy(
    library: ctypes.CDLL, kind: Kind, shape: tuple[int, int, int], flip: tuple[bool, bool], seed: int
) -> None:
    rows, columns, inner = shape
    numbers = np.random.default_rng(seed)
    left = whole(numbers, (inner, rows) if flip[0] else (rows, inner), kind.dtype).astype(kind.dtype)
    right = whole(numbers, (columns, inner) if flip[1] else (inner, columns), kind.dtype).astype(kind.dtype)
    out = whole(numbers, (rows, columns), kind.dtype).astype(kind.dtype)
    expected = 2 * (left.T if flip[0] else left) @ (right.T if flip[1] else right) + 3 * out
    turns = (TRANSPOSE if turned else NO_TRANSPOSE for turned in flip)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (left, right, out)]
    getattr(library, kind.function)(
        ROW_MAJOR, *turns, rows, columns, inner, kind.scalar(2), pointers[0], left.shape[1], pointers[1], right.shape[1],
        kind.scalar(3), pointers[2], columns,
    )  # fmt: skip
    np.testing.assert_array_equal(out, expected)


sizes = st.integers(1, 9)


@only_linux
@given(st.sampled_from(KINDS), st.tuples(sizes, sizes, sizes), st.tuples(st.booleans(), st.booleans()), st.integers(0, 2**32))
def test_a_product_through_the_shim_is_that_of_numpy(tmp_path_factory, kind, shape, flip, seed):
    folder = tmp_path_factory.getbasetemp() / "one-shim"
    assert_products_are_those_of_numpy(load(_shim(folder)), kind, shape, flip, seed)


@only_linux
@pytest.mark.parametrize(
    ("right", "wrong"), [("alpha, a, lda, b, ldb", "alpha, b, ldb, a, lda"), ("k, alpha", "m, alpha"), ("beta, c, ldc)", "alpha, c, ldc)")]
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.function)
def test_the_law_catches_a_shim_that_mixes_up_arguments(tmp_path, monkeypatch, kind, right, wrong):
    assert SHIM.count(right) == 1
    monkeypatch.setattr(blas, "SHIM", SHIM.replace(right, wrong))
    broken = load(_shim(tmp_path / "cache"))
    with pytest.raises(AssertionError):
        assert_products_are_those_of_numpy(broken, kind, (3, 4, 4), (False, False), 0)


# --- what a program gets ------------------------------------------------------------------------------------------------------------


def test_mlx_is_fast_once_it_is_asked_for_first():
    run = fresh("fp.runtime.use_fast_blas(); fp.runtime.use_fast_blas(); fp.runtime.warn_if_slow(); print(fp.runtime.report().slow)")
    assert (run.stdout.strip(), run.stderr) == ("False", "")


@pytest.mark.usefixtures("reference_wheel")
@pytest.mark.parametrize("first", ["import mlx.core", "from mlxfp import models"])
def test_asking_after_mlx_was_imported_says_that_it_is_too_late(first: str):
    """Name the imports that load MLX, also the import of `mlxfp.models`."""
    run = fresh(f"{first}; fp.runtime.use_fast_blas(); print(fp.runtime.report().slow)")
    assert run.stdout.strip() == "True"
    assert "mlx.core was imported earlier. Call use_fast_blas() directly after `import mlxfp as fp`" in run.stderr
    assert "such as `from mlxfp import models`" in run.stderr


@pytest.mark.usefixtures("reference_wheel")
def test_without_openblas_the_message_says_what_to_install():
    run = fresh(f"{ABSENT} fp.runtime.use_fast_blas()")
    assert 'pip install "mlxfp[cpu]"' in run.stderr
    assert "apt-get install libopenblas0" in run.stderr


@pytest.mark.usefixtures("reference_wheel")
def test_training_on_the_reference_blas_warns_once_even_where_every_warning_is_shown():
    run = fresh("import warnings; warnings.simplefilter('always')\nfor _ in range(3): fp.runtime.warn_if_slow()")
    assert run.stderr.count("use_fast_blas() before anything imports mlx.core") == 1


@pytest.mark.usefixtures("reference_wheel")
def test_a_library_loaded_after_mlx_is_not_taken_for_the_one_that_mlx_uses():
    run = fresh("import mlx.core; from mlxfp.support.blas import load_openblas; print(load_openblas(), fp.runtime.report().slow)")
    assert run.stdout.strip() == "None True"


@only_linux
def test_the_libraries_are_listed_while_another_thread_imports(tmp_path):
    """An import holds the interpreter's lock while it waits for the loader's: the list must not wait for them in the other order."""
    program = """
import importlib.util, shutil, sys, threading
from pathlib import Path
import numpy.linalg.lapack_lite as extension
from mlxfp.support.blas import _loaded_libraries

copies = [Path(shutil.copy(extension.__file__, Path(sys.argv[1], f"{number}.so"))) for number in range(100)]

def load_all():
    for copy in copies:
        try:
            importlib.util.module_from_spec(importlib.util.spec_from_file_location("lapack_lite", copy))
        except ImportError:  # numpy allows one copy of it in a process; it is loaded nevertheless
            pass

thread = threading.Thread(target=load_all, daemon=True)
thread.start()
while thread.is_alive():
    list(_loaded_libraries())
print({copy.resolve() for copy in copies} < set(_loaded_libraries()))
"""
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "True\n"


THREADS = """
import ctypes
from mlxfp.support import blas
libraries = [ctypes.CDLL(None), *map(ctypes.CDLL, map(str, {path for path in blas._loaded_libraries() if "openblas" in path.name}))]
names = ("openblas_get_num_threads", "scipy_openblas_get_num_threads")
print(next(getattr(library, name)() for library in libraries for name in names if hasattr(library, name)))
"""


@only_linux
@pytest.mark.usefixtures("reference_wheel")
@pytest.mark.parametrize("variables", [{}, {"OPENBLAS_NUM_THREADS": "2"}])
def test_openblas_has_as_many_threads_as_are_named(variables):
    run = fresh(f"fp.runtime.use_fast_blas(threads=1)\n{THREADS}", **variables)
    assert (run.stdout, run.stderr) == ("1\n", "")


@only_linux
@pytest.mark.usefixtures("reference_wheel")
def test_openblas_leaves_cores_that_are_busy_to_others_and_says_so_once(tmp_path):
    load = "from mlxfp.support import blas; blas.free_cores = lambda: (1, 2); fp.runtime.use_fast_blas()"
    cache = {"OPENBLAS_NUM_THREADS": "", "OMP_NUM_THREADS": "", "XDG_CACHE_HOME": str(tmp_path)}
    run = fresh(f"{load}\n{THREADS}", **cache)
    assert run.stdout == "1\n"
    assert "OpenBLAS multiplies matrices with 1 of 2 threads" in run.stderr
    assert "use_fast_blas(threads=1)" in run.stderr
    second = fresh(f"{load}\n{THREADS}", **cache)
    assert (second.stdout, second.stderr) == ("1\n", "")
    told = fresh(f"{load}\n{THREADS}", OPENBLAS_NUM_THREADS="2")
    assert told.stderr == ""


@only_linux
def test_cores_that_are_busy_for_a_moment_are_used(monkeypatch):
    counts = [(1, 4), (4, 4), (1, 4), (2, 4)]
    monkeypatch.setattr(blas, "free_cores", lambda: counts.pop(0))
    for name in blas.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert blas.threads_by_load() == (None, None)
    threads, warning = blas.threads_by_load()
    assert threads == 2
    assert warning is not None
    assert warning.startswith("OpenBLAS multiplies matrices with 2 of 4 threads, because other programs keep the other cores busy.")


@only_linux
@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("0.00 0.00 0.00 1/80 1", 4),
        ("3.90 1.00 0.50 1/80 1", 4),  # a program that has ended
        ("0.10 1.00 0.50 5/80 1", 4),  # a moment
        ("2.20 1.00 0.50 9/80 1", 2),
        ("40.0 1.00 0.50 41/80 1", 1),
        ("0.00 0.00 0.00 0/0 0", 4),
        ("what is this", 4),
        (None, 4),
    ],
)
def test_cores_are_busy_where_programs_run_now_and_have_run_before(monkeypatch, text, free):
    def read(path, **_):
        if text is None:
            raise FileNotFoundError(path)
        return text

    monkeypatch.setattr(blas.os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(blas.Path, "read_text", read)
    assert blas.free_cores() == (free, 4)


def test_the_module_prints_its_report():
    run = subprocess.run([sys.executable, "-W", "error", "-m", "mlxfp.runtime"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["mlx", "backend", "device", "blas", "memory", "matmul"]


def test_mlx_without_a_backend_says_which_extras_bring_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(MissingExtraError, match=r'MLX cannot start: .*pip install "mlxfp\[cpu\]", .*pip install "mlxfp\[cuda\]"'):
        runtime.report()


def test_a_number_of_threads_that_is_not_positive_is_refused():
    with pytest.raises(ArgumentError, match="threads must be at least 1, got threads=0"):
        runtime.use_fast_blas(threads=0)


@pytest.mark.parametrize(
    ("file", "slow"),
    [
        ("site-packages/mlx_cpu.libs/libblas-bd8a282c.so.3.10.0", True),
        ("lib/blas/libblas.so.3", True),
        ("lib/libcblas.so.3", True),
        ("lib/openblas-pthread/libblas.so.3", False),
        ("lib/libopenblasp-r0.3.21.so", False),
        ("lib/libmkl_rt.so.2", False),
        (".cache/mlxfp/mlxfp-openblas-0123456789abcdef.so", False),
    ],
)
def test_the_reference_blas_is_known_by_its_file(file: str, slow: bool):
    assert is_reference(Path(file)) is slow


# --- the cache ----------------------------------------------------------------------------------------------------------------------


@only_linux
def test_the_shim_is_built_once_and_only_for_this_user(tmp_path):
    first = _shim(tmp_path / "cache")
    built = first.stat().st_mtime_ns
    assert _shim(tmp_path / "cache") == first
    assert first.stat().st_mtime_ns == built
    assert [oct(path.stat().st_mode & 0o077) for path in (first, first.parent)] == ["0o0", "0o0"]
    assert list(first.parent.iterdir()) == [first]


@only_linux
@pytest.mark.parametrize("part", ["folder", "file"])
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_nothing_is_loaded_from_where_others_can_write(tmp_path, part, mode):
    library = _shim(tmp_path / "cache")
    (library if part == "file" else library.parent).chmod(mode)
    with pytest.raises(PermissionError, match=r"is writable by others.*set XDG_CACHE_HOME"):
        _shim(tmp_path / "cache")


@only_linux
def test_processes_that_build_at_once_leave_one_whole_library(tmp_path):
    with get_context("spawn").Pool(4) as pool:
        libraries = pool.map(_shim, [tmp_path / "cache"] * 8)
    assert len(set(libraries)) == 1
    assert list((tmp_path / "cache").iterdir()) == libraries[:1]
    assert load(libraries[0]).cblas_sgemm


@only_linux
def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert user_cache() == tmp_path / "elsewhere/mlxfp"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/are/ignored")
    assert user_cache() == tmp_path / ".cache/mlxfp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache() == tmp_path / ".cache/mlxfp"


@only_linux
@pytest.mark.parametrize(
    ("compiler", "message"), [(None, "there is no C compiler"), ("#!/bin/sh\necho cc1 is missing >&2\nexit 1\n", "cc1 is missing")]
)
def test_a_compiler_that_is_absent_or_fails_is_named(tmp_path, monkeypatch, compiler, message):
    pytest.importorskip("scipy_openblas32", reason="scipy-openblas32 comes with the extra cpu")
    programs = tmp_path / "bin"
    programs.mkdir()
    if compiler:
        (programs / "cc").write_text(compiler, encoding="utf-8")
        (programs / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(blas, "SYSTEM_LIBRARY", "libabsent.so")
    missing = blas.load_openblas()
    assert missing is not None
    assert message in missing
    assert list((tmp_path / "cache/mlxfp").iterdir()) == []


@only_linux
def test_the_systems_openblas_is_taken_before_the_wheel(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(blas, "SYSTEM_LIBRARY", str(_shim(tmp_path / "stands-in-for-it")))
    load(_shim(tmp_path / "stands-in-for-it"))
    assert blas.load_openblas() is None
    assert not (tmp_path / "mlxfp").exists()


def test_progress_is_shown_when_one_says_so(monkeypatch):
    monkeypatch.setenv("MLXFP_PROGRESS", "")
    found = []
    for mode in ("never", "always", "auto"):
        runtime.show_progress(mode)
        found.append(os.environ["MLXFP_PROGRESS"])
    assert found == ["0", "1", ""]
    with pytest.raises(UnknownNameError, match=r"No mode is named 'quiet'\. Known: always, auto, never"):
        runtime.show_progress("quiet")
