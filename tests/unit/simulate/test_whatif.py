"""Another world than the one that was seen."""

from __future__ import annotations

import pytest

from packtrain.errors import UsageError
from packtrain.simulate import whatif
from packtrain.simulate.empirical import EmpiricalDistribution
from tests.support.pool_models import make_model, make_site

POOL = make_model(
    make_site("Ada", 30, streams=30), make_site("Bob", 10, streams=10, cold=EmpiricalDistribution.from_values([60.0]))
)


@pytest.mark.parametrize(("text", "number"), [("500", 500), ("10x", 400), ("0.5x", 20), (" 7 ", 7)])
def test_amounts(text, number):
    assert whatif.parse_amount(text, 40, "slots") == number


@pytest.mark.parametrize("text", ["", "x", "-3", "0", "1e9", "many", "10x10", "99999999999"])
def test_what_is_no_amount(text):
    with pytest.raises(UsageError, match="is no number of slots; write one such as 500, or 10x"):
        whatif.parse_amount(text, 40, "slots")


def test_a_larger_pool_has_larger_caches():
    sites = whatif.with_slots(POOL, 80).sites
    assert [(one.n_slots, one.max_streams) for one in sites] == [(60, 60), (20, 20)]


def test_another_mix():
    assert [(one.name, one.n_slots) for one in whatif.with_site_mix(POOL, ["Ada=1", "Bob=3"]).sites] == [
        ("Ada", 10),
        ("Bob", 30),
    ]
    assert [one.name for one in whatif.with_site_mix(POOL, ["Bob=1"]).sites] == ["Bob"]


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
        whatif.with_site_mix(POOL, mix)


def test_a_site_less():
    assert [one.name for one in whatif.without_site(POOL, "Ada").sites] == ["Bob"]
    with pytest.raises(UsageError, match="no site is left"):
        whatif.without_site(whatif.without_site(POOL, "Ada"), "Bob")


def test_a_cache_less():
    ada, bob = whatif.without_cache(POOL, "Bob").sites
    assert (bob.cache_name, bob.max_streams, bob.cold_transfer_s) == ("Ada", 30, ada.cold_transfer_s)
    with pytest.raises(UsageError, match="there is none left"):
        whatif.without_cache(whatif.without_site(POOL, "Ada"), "Bob")
