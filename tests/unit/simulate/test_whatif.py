"""Changes to a pool model: slots, mix of sites, a site or cache removed."""

from __future__ import annotations

import pytest

from packtrain.errors import UsageError
from packtrain.simulate import whatif
from packtrain.simulate.empirical import EmpiricalDistribution
from tests.support.pool_models import make_model, make_site

POOL = make_model(
    make_site("Ada", 30, max_streams=30),
    make_site("Bob", 10, max_streams=10, cold_transfer_s=EmpiricalDistribution.from_values([60.0])),
)


@pytest.mark.parametrize(("text", "number"), [("500", 500), ("10x", 400), ("0.5x", 20), (" 7 ", 7)])
def test_parse_amount(text, number):
    assert whatif.parse_amount(text, 40, "slots") == number


@pytest.mark.parametrize("text", ["", "x", "-3", "0", "1e9", "many", "10x10", "99999999999"])
def test_bad_amounts(text):
    with pytest.raises(UsageError, match="is not a number of slots; write a number such as 500, or 10x"):
        whatif.parse_amount(text, 40, "slots")


def test_with_slots_scales_caches():
    sites = whatif.with_slots(POOL, 80).sites
    assert [(site.n_slots, site.max_streams) for site in sites] == [(60, 60), (20, 20)]


def test_with_site_mix():
    assert [(site.name, site.n_slots) for site in whatif.with_site_mix(POOL, ["Ada=1", "Bob=3"]).sites] == [
        ("Ada", 10),
        ("Bob", 30),
    ]
    assert [site.name for site in whatif.with_site_mix(POOL, ["Bob=1"]).sites] == ["Bob"]


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        (["Cyd=1"], "there is no site 'Cyd'; there are Ada, Bob"),
        (["Ada"], "there is no site ''"),
        (["Ada=much"], "'Ada=much' is not a share"),
        (["Ada=-1"], "'Ada=-1' is not a share"),
        (["Ada=nan"], "is not a share"),
        (["Ada=0"], "needs a share above zero"),
    ],
)
def test_bad_mixes(mix, message):
    with pytest.raises(UsageError, match=message):
        whatif.with_site_mix(POOL, mix)


def test_without_site():
    assert [site.name for site in whatif.without_site(POOL, "Ada").sites] == ["Bob"]
    with pytest.raises(UsageError, match="no site remains"):
        whatif.without_site(whatif.without_site(POOL, "Ada"), "Bob")


def test_without_cache():
    ada, bob = whatif.without_cache(POOL, "Bob").sites
    assert (bob.cache_name, bob.max_streams, bob.cold_transfer_s) == ("Ada", 30, ada.cold_transfer_s)
    with pytest.raises(UsageError, match="no cache remains"):
        whatif.without_cache(whatif.without_site(POOL, "Ada"), "Bob")
