"""ClassAds: what is written is read again, and nothing that is read breaks the reader."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.condor.classads import (
    Expression,
    format_new_classad,
    format_old_classad,
    get_attribute,
    parse_new_classads,
    parse_old_classad,
)
from packtrain.errors import FormatError

texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=30)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    plain | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | texts.filter(bool), inner, max_size=4),
    max_leaves=12,
)
ads = st.dictionaries(names | texts.filter(bool), values, max_size=6)


@given(st.lists(ads, max_size=4), st.sampled_from(["", "\n", "  // words\n", " /* words */ ", ",\n"]))
def test_the_new_form_comes_back(written, between):
    assert parse_new_classads(between.join(map(format_new_classad, written))) == written


lines = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), max_size=30)


@given(st.dictionaries(names, plain | lines.filter(lambda line: not line.endswith("\\")), max_size=6))
def test_the_old_form_comes_back(ad):
    assert parse_old_classad(format_old_classad(ad)) == ad


@given(st.text(max_size=60) | st.text("[]{}();,=\"\\'/*ab1 .\n", max_size=40))
def test_any_text_is_read_or_refused(text):
    parse_old_classad(text)
    try:
        for ad in parse_new_classads(text):
            assert parse_new_classads(format_new_classad(ad)) is not None
    except FormatError as error:
        assert "\n" not in str(error)


def test_what_htcondor_writes():
    text = (
        '[ LocalFileName = "/x/data \\"1\\".bin"; Url = "osdf:///a;b]c"; Size = 12 ]'
        '[ PluginData = [ Caches = { "a", "b" }; Wait = 1.5E+01; Rank = Speed * 2 + f("]") ] ]'
    )
    first, second = parse_new_classads(text)
    assert get_attribute(first, "URL") == "osdf:///a;b]c"
    assert first["LocalFileName"] == '/x/data "1".bin'
    inner = second["PluginData"]
    assert inner == {"Caches": ["a", "b"], "Wait": 15.0, "Rank": 'Speed * 2 + f("]")'}
    assert isinstance(inner["Rank"], Expression)


def test_the_ad_of_a_job():
    lines = ['Cmd = "C:\\tools\\run"', 'Args = "say \\"hi\\""', "RequestDisk = DiskUsage", "JobPrio = 0", "On = TRUE"]
    text = "\n".join([*lines, "", "Other = 1"])
    assert parse_old_classad(text) == {
        "Cmd": "C:\\tools\\run",
        "Args": 'say "hi"',
        "RequestDisk": Expression("DiskUsage"),
        "JobPrio": 0,
        "On": True,
    }


def test_numbers_that_are_none():
    assert format_new_classad({"A": math.inf}) == '[ A = real("inf") ]'
    assert isinstance(parse_new_classads('[ A = real("inf") ]')[0]["A"], Expression)


@pytest.mark.parametrize("text", ["[", "[ A = ]", "[ A 1 ]", "x", '[ A = "x ]', "[ A = (1 ]", "[" * 5000, "[A=" * 5000])
def test_what_is_none_is_refused(text):
    with pytest.raises(FormatError):
        parse_new_classads(text)
