"""E10: a pool of processes ends neither for a neighbour nor for a forked child, and prefetch in a forked child raises."""

import subprocess
import sys
from textwrap import dedent

HEAD = """
    import os, signal, sys, time
    import mlxfp as fp
    from mlxfp.data.running.processes import Processes

    rows = fp.from_table({"x": list(range(3000)), "text": ["a long text " * 40] * 3000})

    def slow(row):
        time.sleep(0.0002)
        return row

    def in_a_child(work):
        child = os.fork()
        if not child:
            signal.alarm(20)
            work()
            sys.exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def _run(code: str) -> str:
    program = dedent(HEAD) + dedent(code)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_e10_a_forked_child_that_exits_leaves_the_workers_of_its_parent_alive():
    """The child ends in order: Python calls the exit functions of the parent in the child."""
    code = """
        data = fp.pipe(rows, fp.map(slow), fp.prefetch(2, workers=2, kind="processes"))
        items = iter(data)
        first = next(items)
        status = in_a_child(lambda: None)
        print(status, 1 + len(list(items)))
    """
    assert _run(code) == "0 3000\n"


def test_e10_prefetch_in_a_forked_child_raises_instead_of_waiting():
    """All kinds of workers, and a child that closes the iterator."""
    code = """
        for options in ({}, {"workers": 2}, {"workers": 2, "kind": "processes"}):
            items = iter(fp.pipe(rows, fp.map(slow), fp.prefetch(2, **options)))
            next(items)

            def read():
                try:
                    list(items)
                except fp.errors.WorkerError as error:
                    assert "Begin the iterator after the fork" in str(error), error
                else:
                    raise AssertionError("no error")

            print(in_a_child(read), in_a_child(items.close), 1 + len(list(items)))
    """
    assert _run(code) == "0 0 3000\n" * 3


def test_e10_the_folder_of_a_running_pool_is_locked_and_the_folder_of_a_killed_pool_is_removed(tmp_path):
    """The lock works without process ids. Thus processes in other namespaces cannot remove the folder.

    The pools of the test have a folder of their own, because pools of other tests remove the folder of the killed pool too.
    """
    code = f"""
        import subprocess
        from pathlib import Path
        from mlxfp.data.running import processes
        processes._IN_MEMORY = Path({str(tmp_path)!r})
        running = Processes(1)
        other = 'import os\\nfrom pathlib import Path\\nfrom mlxfp.data.running import processes\\n'
        other += 'processes._IN_MEMORY = Path("{tmp_path}")\\n'
        other += 'pool = processes.Processes(1)\\nprint(pool._folder, flush=True)\\nos.kill(os.getpid(), 9)'
        def start():
            return subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stdout.strip()
        killed = start()
        assert os.path.isdir(killed), killed
        second = start()
        print(os.path.isdir(killed), os.path.isdir(running._folder))
        running.close()
        print(os.path.isdir(running._folder))
        Processes(1).close()
        assert not os.path.isdir(second)
    """
    assert _run(code) == "False True\nFalse\n"
