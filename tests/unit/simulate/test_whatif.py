"""Another world than the one that was seen."""

from __future__ import annotations

import pytest

from packtrain.errors import UsageError
from packtrain.simulate import whatif
from packtrain.simulate.empirical import Fitted
from tests.support.pool_models import site, world

POOL = world(site("Ada", 30, streams=30), site("Bob", 10, streams=10, cold=Fitted.to([60.0])))


@pytest.mark.parametrize(("text", "number"), [("500", 500), ("10x", 400), ("0.5x", 20), (" 7 ", 7)])
def test_amounts(text, number):
    assert whatif.amount(text, 40, "slots") == number


@pytest.mark.parametrize("text", ["", "x", "-3", "0", "1e9", "many", "10x10", "99999999999"])
def test_what_is_no_amount(text):
    with pytest.raises(UsageError, match="is no number of slots; write one such as 500, or 10x"):
        whatif.amount(text, 40, "slots")


def test_a_larger_pool_has_larger_caches():
    sites = whatif.with_slots(POOL, 80).sites
    assert [(one.slots, one.streams) for one in sites] == [(60, 60), (20, 20)]


def test_another_mix():
    assert [(one.name, one.slots) for one in whatif.with_mix(POOL, ["Ada=1", "Bob=3"]).sites] == [
        ("Ada", 10),
        ("Bob", 30),
    ]
    assert [one.name for one in whatif.with_mix(POOL, ["Bob=1"]).sites] == ["Bob"]


@pytest.mark.parametrize(
    ("mix", "sentence"),
    [
        (["Cyd=1"], "there is no site 'Cyd'; there are Ada, Bob"),
        (["Ada"], "there is no site ''"),
        (["Ada=much"], "'Ada=much' is no share"),
        (["Ada=-1"], "'Ada=-1' is no share"),
        (["Ada=nan"], "is no share"),
        (["Ada=0"], "needs a share above zero"),
    ],
)
def test_what_is_no_mix(mix, sentence):
    with pytest.raises(UsageError, match=sentence):
        whatif.with_mix(POOL, mix)


def test_a_site_less():
    assert [one.name for one in whatif.without_site(POOL, "Ada").sites] == ["Bob"]
    with pytest.raises(UsageError, match="no site is left"):
        whatif.without_site(whatif.without_site(POOL, "Ada"), "Bob")


def test_a_cache_less():
    ada, bob = whatif.without_cache(POOL, "Bob").sites
    assert (bob.cache, bob.streams, bob.cold) == ("Ada", 30, ada.cold)
    with pytest.raises(UsageError, match="there is none left"):
        whatif.without_cache(whatif.without_site(POOL, "Ada"), "Bob")
