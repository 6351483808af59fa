"""A small drawing library for the charts: marks, scales, axes, and writers for SVG and PNG.

Start with `drawing.Drawing`, which charts fill with marks; `svg` and `png` write it.
"""
