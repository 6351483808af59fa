"""The report as one self-contained HTML file: no network requests, no other files.

`page.html` is the template; `page.css` and `page.js` are embedded in it. A *section* is a part above the tables: the
findings, the cards with the key statistics, and the charts. Start with `render.write_page`.

All text from logs is escaped, and the content security policy of the page allows only its own script.
"""

from packtrain.report.page.render import write_page

__all__ = ["write_page"]
