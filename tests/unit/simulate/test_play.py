"""How often the supervisor looks in a simulated run."""

from itertools import pairwise

from worlds import HOUR, site, world

from packtrain.simulate.play import supervise
from packtrain.simulate.policy import POLICIES


def test_all_that_runs_is_looked_at_as_often_as_matters_to_a_training(monkeypatch):
    looked = []
    looks = lambda rules: lambda state, changed, now: looked.append(now) or []  # noqa: E731
    monkeypatch.setattr("packtrain.supervise.loop.stragglers", looks)
    supervise(world(site(slots=2)), POLICIES["packtrain"], 20, 1)
    gaps = [later - earlier for earlier, later in pairwise(looked) if earlier > 2 * HOUR]
    assert min(gaps) >= 70 * 60 / 40, "trainings take 70 minutes"
    assert len(gaps) > 20
