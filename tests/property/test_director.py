"""A director's headers are parsed correctly, and no header text raises an error."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from packtrain.transfer.backends.pelican.director import (
    parse_director_response,
    parse_duplicate_links,
    parse_pelican_header,
)

urls = st.text(st.characters(min_codepoint=33, max_codepoint=126, blacklist_characters="<>"), min_size=1, max_size=30)
links = st.lists(st.tuples(urls, st.integers(0, 99), st.booleans()), max_size=5, unique_by=lambda link: link[0])


@given(links)
def test_links_are_sorted_by_priority(links):
    quoted = {True: '"duplicate"', False: "duplicate"}
    header = ", ".join(f"<{url}>; rel={quoted[q]}; pri={priority}; depth=1" for url, priority, q in links)
    assert parse_duplicate_links(header) == [url for url, priority, _ in sorted(links, key=lambda link: link[1])]


names = st.text("abcdefgh-", min_size=1, max_size=8)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126, blacklist_characters=","), max_size=20)


@given(st.dictionaries(names, values, max_size=4))
def test_pelican_header_round_trip(fields):
    assert parse_pelican_header(", ".join(f"{name}={value}" for name, value in fields.items())) == fields


link_like_text = st.text('<>[]/:;,="pri rel0', max_size=30)


@given(st.text(max_size=100) | link_like_text, st.text(max_size=100))
@example("<//[>", "")
def test_any_headers_give_a_server(link, namespace):
    assert parse_director_response("https://h/x", link, namespace).server_urls
