"""Views that update in place: in a notebook's cell (without ipywidgets) or in a terminal; and views as HTML."""

from __future__ import annotations

import importlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live

_UPDATE_INTERVAL_S = 0.5
_HTML_FORMAT = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'


def render_html(view: RenderableType, width: int) -> str:
    """Return a view as HTML; all text is escaped.

    Args:
        view: What a terminal would show.
        width: Number of columns.
    """
    console = Console(record=True, file=io.StringIO(), width=width, force_terminal=True, force_jupyter=False)
    console.print(view)
    return console.export_html(inline_styles=True, code_format=_HTML_FORMAT)


@contextmanager
def open_live_display(notebook_object: object, render: Callable[[], RenderableType]) -> Iterator[Callable[[], None]]:
    """Show something until the context ends; the returned function updates it, at most twice a second.

    Args:
        notebook_object: What a notebook shows; it has `_repr_html_`.
        render: Returns what a terminal shows.
    """
    if _is_in_notebook():
        handle = importlib.import_module("IPython.display").display(notebook_object, display_id=True)
        with _throttled(lambda: handle.update(notebook_object)) as update:
            yield update
    else:
        live = Live(console=Console(highlight=False), auto_refresh=False)
        with live, _throttled(lambda: live.update(render(), refresh=True)) as update:
            yield update


def _is_in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _throttled(action: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Call an action at most twice a second, and at the end."""
    next_call_at = 0.0

    def call() -> None:
        nonlocal next_call_at
        if time.monotonic() >= next_call_at:
            action()
            next_call_at = time.monotonic() + _UPDATE_INTERVAL_S

    yield call
    action()
