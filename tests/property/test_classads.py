"""ClassAds survive a round trip, and no text crashes the parser."""

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


@given(st.lists(ads, max_size=4), st.sampled_from(["", "\n", "  // comment\n", " /* comment */ ", ",\n"]))
def test_new_form_round_trip(written, separator):
    assert parse_new_classads(separator.join(map(format_new_classad, written))) == written


lines = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), max_size=30)


@given(st.dictionaries(names, plain | lines.filter(lambda line: not line.endswith("\\")), max_size=6))
def test_old_form_round_trip(ad):
    assert parse_old_classad(format_old_classad(ad)) == ad


@given(st.text(max_size=60) | st.text("[]{}();,=\"\\'/*ab1 .\n", max_size=40))
def test_any_text(text):
    parse_old_classad(text)
    try:
        for ad in parse_new_classads(text):
            assert parse_new_classads(format_new_classad(ad)) is not None
    except FormatError as error:
        assert "\n" not in str(error)


def test_ads_of_htcondor():
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


def test_job_ad():
    lines = ['Cmd = "C:\\tools\\run"', 'Args = "say \\"hi\\""', "RequestDisk = DiskUsage", "JobPrio = 0", "On = TRUE"]
    text = "\n".join([*lines, "", "Other = 1"])
    assert parse_old_classad(text) == {
        "Cmd": "C:\\tools\\run",
        "Args": 'say "hi"',
        "RequestDisk": Expression("DiskUsage"),
        "JobPrio": 0,
        "On": True,
    }


def test_infinity():
    assert format_new_classad({"A": math.inf}) == '[ A = real("inf") ]'
    assert isinstance(parse_new_classads('[ A = real("inf") ]')[0]["A"], Expression)


@pytest.mark.parametrize("text", ["[", "[ A = ]", "[ A 1 ]", "x", '[ A = "x ]', "[ A = (1 ]", "[" * 5000, "[A=" * 5000])
def test_invalid_ads(text):
    with pytest.raises(FormatError):
        parse_new_classads(text)
