"""SPDL: a row with an error is logged and dropped, unless `max_failures=0` is set, as the docstring of `build` says."""

from importlib.metadata import version

from spdl.pipeline import PipelineBuilder


def refuse(row):
    if row == 7:
        raise ValueError("this row is refused")
    return row


print("spdl", version("spdl"))
pipeline = PipelineBuilder().add_source(range(12)).pipe(refuse, output_order="input").add_sink(3).build(num_threads=1)
with pipeline.auto_stop():
    print("rows:", list(pipeline))
