"""The report of a run: one HTML file without server, network or scripts."""

from collections.abc import Sequence
from os import PathLike, fspath
from os.path import commonpath
from pathlib import Path

from attrs import evolve

from mlxfp.app.reports import sections
from mlxfp.app.reports.reading import FinishedRun, LinearOf, ModelOf, is_blend, read_blend, read_run
from mlxfp.app.run_folders.files import write_text
from mlxfp.app.run_folders.folders import REPORT
from mlxfp.support.html import STYLE, Html, element

_PAGE = """
:root{color-scheme:light dark;--ground:#fff;--ink:#1b1f24}
@media (prefers-color-scheme:dark){:root{--ground:#15181c;--ink:#e4e7eb}}
body{margin:0;background:var(--ground)}
body.mlxfp{color:var(--ink);font-size:15px}
main{max-width:900px;margin:0 auto;padding:1em 1em 3em}
h1{font-size:1.5em;margin:.6em 0 .2em;overflow-wrap:anywhere}
h2{font-size:1.15em;margin:1.8em 0 .4em;border-bottom:2px solid var(--c0);padding-bottom:.15em}
p,li{max-width:75ch;overflow-wrap:anywhere}
p{margin:.4em 0}
.big{font-size:2em;margin-right:.2em}
mark{background:rgba(255,200,60,.35);color:inherit;padding:0 .15em;border-radius:3px}
summary{cursor:pointer;padding:.3em 0}
figure{margin:.8em 0;max-width:540px;min-width:0}
figcaption{font-weight:600;font-size:13px;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto;overflow:hidden;stroke-linejoin:round}
svg text{font-size:11px;fill:currentColor;opacity:.85}
svg path{fill:none}
svg .grid{stroke:var(--line)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:0 1.2em}
.legend{display:flex;flex-wrap:wrap;gap:.1em .9em;font-size:12px}
.key{overflow-wrap:anywhere}
.key i{display:inline-block;width:.9em;height:.3em;margin:0 .35em .2em 0;border-radius:2px}
"""


def write(run: Path, linear_of: LinearOf, model_of: ModelOf | None, *, out: str | PathLike[str] | None = None) -> Path:
    """Write the report of a finished run or blend. Return the path, by default `report.html` in the run folder.

    The report is computed from the files, the data rows and the models of the run. The function `linear_of(folder)` returns the linear
    baseline of a run, and `model_of(index)` returns the trained model of a fold.
    """
    path = run / REPORT if out is None else Path(out)
    read = read_blend if is_blend(run) else read_run
    write_text(path, report_page(evolve(read(run, linear_of), model_of=model_of)))
    return path


def write_at_the_end(folder: Path, linear_of: LinearOf, model_of: ModelOf | None, *, code: str | PathLike[str] | None) -> str:
    """Write the report of a completed run. Return "" on success. If the report cannot be written, return a message and raise no error.

    The message contains the command `mlxfp report`, which writes the report again, with the option `--code` if `code` is given.
    """
    try:
        write(folder, linear_of, model_of)
    except Exception as error:  # noqa: BLE001  # the run is complete, so no error may end it
        option = "" if code is None else f" --code {fspath(code)}"
        message = f"The report was not written: {type(error).__name__}: {error}"
        return f"{message} The run itself is done. To try again: mlxfp report {folder}{option}"
    return ""


def report_page(run: FinishedRun) -> str:
    """Return the report of a run as an HTML page."""
    results = (sections.predictions, sections.worst)
    parts = (
        (sections.scores, sections.blended, sections.cautions, *results)  # a blend has no model, so sections about models are left out
        if run.blended
        else (
            *(sections.scores, sections.members, sections.cautions, sections.importance, sections.curves, *results),
            *(sections.lengths, sections.configuration, sections.environment),
        )
    )
    rows = "" if run.scored is None else f"{len(run.scored.ids):,} rows, {run.scored.oof.folds.count} folds, "
    subtitle = element("p", f"{rows}task {run.settings['task']}", class_="muted")
    return page(f"{'Blend' if run.blended else 'Run'} {run.settings['name']}", subtitle, *(part(run) for part in parts))


def short_names(paths: Sequence[str | PathLike[str]]) -> list[str]:
    """Return the paths without the folder that all paths share."""
    whole = [Path(path).resolve() for path in paths]
    shared = commonpath([path.parent for path in whole]) if len(whole) > 1 else whole[0].parents[1]
    return [path.relative_to(shared).as_posix() for path in whole]


def page(title: str, *content: Html) -> str:
    """Return a complete HTML page."""
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'),
        element("title", title),
        element("style", Html(STYLE + _PAGE)),
    )
    main = element("main", element("h1", title), *content)
    return f'<!doctype html>\n<html lang="en">{head}{element("body", main, class_="mlxfp")}</html>\n'
