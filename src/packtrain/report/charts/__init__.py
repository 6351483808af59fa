"""The charts of a report.

`catalog` selects the charts of a page; each kind of chart has a module. A *drawing* is a list of marks (`canvas`),
written as SVG for the page and as PNG for slides. `palette` assigns one color to each meaning. Start with `catalog`.
The page around the charts is in `report.page`.
"""
