"""The bar that is drawn: that of tqdm, which knows terminals and notebooks. Imported when the first one is drawn."""

import warnings
from threading import RLock
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # in a notebook without ipywidgets the bar is text
    from tqdm.auto import tqdm
    from tqdm.utils import disp_len, disp_trim


class Bar(tqdm):  # type: ignore[misc]  # it has no types
    """A bar of the facts that it is given, as `format_meter` takes them; it counts nothing itself."""

    monitor_interval = 0  # no thread of its own that draws

    def __init__(self, file: Any, facts: dict[str, Any]) -> None:
        """Draw it."""
        self.facts = facts
        unicode = str(file.encoding).lower().startswith("utf")
        super().__init__(file=file, total=facts["total"], leave=False, ascii=not unicode)

    @staticmethod
    def format_meter(*values: Any, **facts: Any) -> str:
        """Write the facts in one line: `12.3k rows/s`, but `3.00s/fold`."""
        text: str = tqdm.format_meter(*values, **facts).replace("s/ ", "s/")
        return disp_trim(text, facts["ncols"]) if facts["ncols"] else text  # before 4.70, only what has a total is cut

    @staticmethod
    def status_printer(file: Any, *widget: Any) -> Any:
        """Return what writes over the text before. The one of tqdm flushes standard output and error too, which may be gone."""
        if widget:
            return tqdm.status_printer(file, *widget)
        before = ""

        def write(text: str) -> None:
            nonlocal before
            file.write(f"\r{text}{' ' * (disp_len(before) - disp_len(text))}")
            file.flush()
            before = text

        return write

    @property
    def format_dict(self) -> dict[str, Any]:
        """What is formatted."""
        return {**super().format_dict, **self.facts}

    def draw(self, facts: dict[str, Any]) -> None:
        """Draw it again."""
        self.facts, self.n = facts, facts["n"]
        self.refresh()


Bar.set_lock(RLock())  # the default one comes from multiprocessing, and fixes how a user's program starts processes
