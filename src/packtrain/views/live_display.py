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

from packtrain.views.terminal import make_console

_UPDATE_INTERVAL_S = 0.2
_HTML_WIDTH = 120
_HTML_FORMAT = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'


def render_html(view: RenderableType) -> str:
    """Return what a terminal would show as HTML; all text is escaped."""
    console = make_console(record=True, file=io.StringIO(), width=_HTML_WIDTH, force_terminal=True, force_jupyter=False)
    console.print(view)
    return console.export_html(inline_styles=True, code_format=_HTML_FORMAT)


@contextmanager
def open_live_display(view: RenderableType, console: Console | None = None) -> Iterator[Callable[[], None]]:
    """Show a view until the context ends; the returned function updates it, at most five times a second.

    Args:
        view: What is shown. In a notebook, it has `_repr_html_`.
        console: The terminal.
    """
    if _is_in_notebook():
        handle = importlib.import_module("IPython.display").display(view, display_id=True)
        with _throttled(lambda: handle.update(view)) as update:
            yield update
    else:
        live = Live(console=console or make_console(), auto_refresh=False)
        with live, _throttled(lambda: live.update(view, refresh=True)) as update:
            yield update


def _is_in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _throttled(action: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Call an action at most five times a second, and at the end."""
    next_call_at = 0.0

    def call() -> None:
        nonlocal next_call_at
        if time.monotonic() >= next_call_at:
            action()
            next_call_at = time.monotonic() + _UPDATE_INTERVAL_S

    yield call
    action()
