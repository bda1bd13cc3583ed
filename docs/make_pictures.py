"""Draw the pictures of README.md and of the site as SVG files in docs/pictures: a pipeline in `explain`, the benchmarks, and a report.

Run `python docs/make_pictures.py` after a change of the pipeline on docs/index.md, of the output of `explain`, or of the table of
benchmarks; a test fails until then. `python docs/make_pictures.py report` also trains a model and draws a report.
"""

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from math import log2
from pathlib import Path
from textwrap import wrap
from xml.etree import ElementTree as ET

import mlxfp as fp
from mlxfp.core.describing import part_facts
from mlxfp.core.notebooks.diagrams import PartFacts
from mlxfp.support.html import STYLE, Html, element, joined

ROOT = Path(__file__).parent.parent
PICTURES = Path(__file__).with_name("pictures")
WIDTH, MARGIN, CHART = 860, 24, 390
PHONE = 350  # fits the narrowest screens without scrolling
WORK = {  # names of the benchmarks in words
    "tokens-bpe": "Tokenize a column (BPE)",
    "tokens-wordpiece": "Tokenize a column (WordPiece)",
    "tokens-pipeline": "Lines to packed batches",
    "tokens-table": "Tokenize repeated texts",
    "tokens-plain": "Tokenize a list of texts",
    "first-epoch": "First epoch from CSV",
    "cached-epoch": "Epoch of cached rows",
    "memory-arrays": "Batches of arrays",
    "memory-tokens": "Batches of tokens",
    "memory-windows": "Windows of tokens",
    "memory-images": "Batches of images",
    "images": "Decode images",
    "images-augment": "Augment images",
    "sound": "Read and resample audio",
    "pack": "Pack token lists",
    "lora": "Train with LoRA",
    "python-map": "Map a Python function",
    "cores": "Scale to more cores",
    "jsonl": "Read JSON lines",
    "wide": "Read a wide CSV table",
}
COLORS = dict(re.findall(r"--(c\d):(#\w+)", STYLE))
INK = """
.ground{fill:#fff;stroke:#d4d8de}.ink,text{fill:#1b1f24;color:#1b1f24}.muted{fill:#57606a}.line{stroke:#d4d8de}.number{fill:#2460a8}
@media (prefers-color-scheme:dark){.ground{fill:#15181c;stroke:#3a4048}.ink,text{fill:#e4e7eb;color:#e4e7eb}.muted{fill:#a3abb5}
.line{stroke:#3a4048}.number{fill:#8ab8f0}}
text{font:13px system-ui,sans-serif}.code{font:13px ui-monospace,Menlo,monospace}.small{font-size:11.5px}.bold{font-weight:600}
.chart text{font-size:11px}.title{font-size:20px;font-weight:600}.big{font-size:30px;font-weight:600}
"""


def main() -> None:
    """Write the pictures. The argument `report` adds the picture of a report."""
    PICTURES.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        (PICTURES / f"{name}.svg").write_text(picture, "utf-8")
    if sys.argv[1:] == ["report"]:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "passengers")
            fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], data, rows=600, test_rows=200)
            overrides = [f"data.path={data}", "observers.minutes=1", f"output={folder}", "name=demo"]
            config = fp.runs.load_config(preset="auto", overrides=overrides).config
            outcome = fp.last(fp.runs.run(config))
            page = (outcome.folder / "report.html").read_text("utf-8")
        (PICTURES / "report.svg").write_text(report_picture(page), "utf-8")


def pictures() -> dict[str, str]:
    """Return the pictures of the landing page by name, each in a wide form and in a narrow form for phones."""
    facts, benchmarks = landing_facts(), (ROOT / "benchmarks/README.md").read_text("utf-8")
    return {
        f"{name}{suffix}": draw(width)
        for suffix, width in (("", WIDTH), ("-narrow", PHONE))
        for name, draw in (("explain", partial(explain_picture, facts)), ("benchmarks", partial(benchmarks_picture, benchmarks)))
    }


def landing_facts() -> list[PartFacts]:
    """Return the output of `explain` for the pipeline on docs/index.md. Runs the first Python block of the page."""
    text = Path(__file__).with_name("index.md").read_text("utf-8")
    shown = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0]
    names: dict[str, fp.Dataset[object]] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(shown, names)  # noqa: S102  # the code of our own page
    return list(part_facts(names["batches"]))


def explain_picture(parts: Iterable[PartFacts], width: int) -> str:
    """Draw the output of `explain`: for each part, the name and a description of the output."""
    margin = MARGIN if width > PHONE else MARGIN // 2
    drawn, y, room = [], margin, width - 2 * margin - 16
    above = None
    for part in parts:
        about = [line for line in part.about(above) if not line.startswith("encoded by")]  # depends on the installed packages
        above = part
        lines = [
            *(("code bold", line) for line in wrap(part.part, int(room / 8.1))),
            *(("muted small", line) for text in about for line in wrap(text, int(room / 6.2))),
        ]
        height = 8 + 18 * len(lines)
        drawn.append(element("rect", x=margin, y=y, width=4, height=height, rx=2, fill=COLORS["c0"]))
        drawn += [_text(line, margin + 16, y + 17 + 18 * index, kind) for index, (kind, line) in enumerate(lines)]
        y += height + 8
    return _picture("What explain says of a pipeline", y + margin - 8, drawn, width=width)


def benchmarks_picture(page: str, width: int) -> str:
    """Draw the speed of mlxfp relative to other libraries, from the table on the page. `WORK` has a name for each benchmark."""
    ratios = speeds(page)
    narrow = width == PHONE
    y, left, top, least = MARGIN + 28, 178 if narrow else 430, max(ratios.values()), min(1.0, *ratios.values())
    scale = (width - left - 56) / log2(top / least)
    one = left - log2(least) * scale
    drawn = [_text("times as fast as the other library (logarithmic)", MARGIN / 2, MARGIN, "muted small")]
    for (work, peer), ratio in ratios.items():
        lines = [*(("bold", line) for line in wrap(WORK[work], 24)), *(("muted small", line) for line in wrap(f"against {peer}", 27))]
        if not narrow:
            lines = [("bold", WORK[work])]
            drawn.append(_text(f"against {peer}", 250, y, "muted small"))
        drawn += [_text(line, MARGIN / 2, y + 15 * index, kind) for index, (kind, line) in enumerate(lines)]
        end = one + log2(ratio) * scale
        middle = y if narrow else y - 5  # in the narrow picture, a bar is beside two lines of text
        bar = {"x": round(min(one, end), 1), "width": round(abs(end - one), 1), "y": middle - 8, "height": 18, "rx": 2}
        drawn.append(element("rect", **bar, fill=COLORS["c0" if ratio >= 1 else "c1"]))
        drawn.append(_text(f"{ratio:.3g}", max(one, end) + 6, middle + 6, "bold"))
        y += 10 + 15 * len(lines)
    drawn.append(element("path", d=f"M{one:.1f} {MARGIN + 10}V{y - 14}", class_="line"))
    drawn.append(_text("1: as fast", one, y, "muted small", text_anchor="middle"))
    return _picture("The speed of mlxfp as a multiple of that of other libraries", y + MARGIN // 2, drawn, width=width)


def speeds(page: str) -> dict[tuple[str, str], float]:
    """Return the lowest ratio for each pair of benchmark and library, from all table lines that compare speeds."""
    ratios: dict[tuple[str, str], float] = {}
    for line in page.partition("<!-- written by")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        peer = re.match(r"(.*?) [\d,.]+M?(?: \w+/s|,|$)", cells[3]) if len(cells) == 7 and "/s" in cells[2] else None
        if peer and cells[4] != "-" and not cells[1].endswith(": fill"):
            key = (cells[0], peer[1])
            ratios[key] = min(ratios.get(key, float("inf")), float(cells[4]))
    return ratios


def report_picture(page: str) -> str:
    """Draw the score, the score table and the first chart of each section of a report."""
    main = ET.fromstring(re.search(r"<main>.*</main>", page, re.DOTALL)[0])  # noqa: S314  # our own report
    title, about, score = main.find("h1"), main.find("p"), main.find("section")
    drawn = [_text(_plain(title), MARGIN, MARGIN + 18, "title"), _text(_plain(about), MARGIN, MARGIN + 42, "muted")]
    big, rest = score.find("p/strong"), score.find("p")
    drawn.append(_text(big.text or "", MARGIN, MARGIN + 90, "big number"))
    drawn.append(_text((big.tail or "").strip() or _plain(rest), MARGIN + 135, MARGIN + 90, "ink"))
    y = MARGIN + 122
    for index, row in enumerate(score.find(".//table").iter("tr")):
        for column, cell in enumerate(row):
            x, anchor = (MARGIN, "start") if not column else (170 + 170 * column, "end")
            drawn.append(_text(_plain(cell), x, y, "bold small" if not index else "", text_anchor=anchor))
        y += 24
    figures = [figure for section in main.iter("section") if (figure := section.find(".//figure")) is not None]
    for index, figure in enumerate(figures[:4]):
        drawn += _chart(figure, MARGIN + index % 2 * (CHART + 20), y + index // 2 * 300)
    return _picture("The first parts of the report of a run", y + (len(figures[:4]) + 1) // 2 * 300, drawn)


def _chart(figure: ET.Element, x: int, y: int) -> Iterator[Html]:
    """Yield the elements of a chart: title, drawing and legend."""
    drawn, scale = figure.find("svg"), CHART / 400
    inner = Html("".join(_svg(child) for child in drawn))
    yield _text(_plain(figure.find("figcaption")), x, y + 14, "bold small")
    yield element("g", inner, class_="chart ink", transform=f"translate({x} {y + 20}) scale({scale:.3f})")
    offset = x
    for key in figure.iter("span"):
        color, width = COLORS[re.search(r"--(c\d)", key.find("i").get("style"))[1]], 30 + 7 * len(_plain(key))
        if offset + width > x + CHART:
            yield _text("…", offset, y + 268, "small")
            return
        yield element("rect", x=offset, y=y + 262, width=12, height=4, fill=color)
        yield _text(_plain(key), offset + 17, y + 268, "small")
        offset += width


def _svg(node: ET.Element) -> str:
    text = ET.tostring(node, encoding="unicode")
    text = re.sub(r"var\(--(c\d)\)", lambda match: COLORS[match[1]], text)
    return text.replace('class="grid"', 'class="line" fill="none"')


def _plain(node: ET.Element) -> str:
    return "".join(node.itertext())


def _text(line: str, x: float, y: float, kind: str, **more: object) -> Html:
    return element("text", line, x=round(x, 1), y=y, class_=kind or None, **more)


def _picture(title: str, height: int, drawn: Iterable[Html], *, width: int = WIDTH) -> str:
    ground = element("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=8, class_="ground")
    size = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    inner = joined([element("title", title), element("style", Html(INK)), ground, *drawn])
    return element("svg", inner, xmlns="http://www.w3.org/2000/svg", role="img", **size) + "\n"


if __name__ == "__main__":
    main()
