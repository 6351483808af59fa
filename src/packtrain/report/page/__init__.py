"""The report as one HTML file that needs nothing else: no network, no other file. `write_page` makes it.

`page.html` is its frame, `page.css` and `page.js` go into it; `tables` and `parts` fill it. Whatever comes from a log
is escaped, and the page's own policy lets no script run but this one."""

from packtrain.report.page.render import write_page

__all__ = ["write_page"]
