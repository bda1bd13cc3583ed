"""The bar that is drawn: that of tqdm, which knows terminals and notebooks. Imported when the first one is drawn."""

import warnings
from threading import RLock
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # in a notebook without ipywidgets the bar is text
    from tqdm.auto import tqdm


class Bar(tqdm):  # type: ignore[misc]  # it has no types
    """A bar of the facts that it is given, as `format_meter` takes them; it counts nothing itself."""

    monitor_interval = 0  # no thread of its own that draws

    def __init__(self, file: Any, facts: dict[str, Any]) -> None:
        """Draw it."""
        self.facts = facts
        super().__init__(file=file, total=facts["total"], leave=False)

    @property
    def format_dict(self) -> dict[str, Any]:
        """What is formatted."""
        return {**super().format_dict, **self.facts}

    def draw(self, facts: dict[str, Any]) -> None:
        """Draw it again."""
        self.facts, self.n = facts, facts["n"]
        self.refresh()


Bar.set_lock(RLock())  # the default one comes from multiprocessing, and fixes how a user's program starts processes
