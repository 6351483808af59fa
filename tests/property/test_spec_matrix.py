"""Expansion of any matrix: number, uniqueness and order of points."""

import math

from hypothesis import given
from hypothesis import strategies as st

from packtrain.spec import placeholders
from packtrain.spec.matrix import expand_matrix
from packtrain.spec.models.workflow import Matrix

NAMES = ["a", "b", "c"]
VALUES = ["1", "2", "3", "4"]
AXES = st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(VALUES), min_size=1, unique=True), min_size=1)


def make_matrix(axes, **options):
    return Matrix.model_validate({**axes, **options})


def all_unique(points):
    return len({tuple(sorted(point.items())) for point in points}) == len(points)


@given(AXES, st.integers(1, 3))
def test_combinations_and_count(axes, count):
    points = expand_matrix(make_matrix(axes), count)
    assert len(points) == math.prod(map(len, axes.values())) * count
    assert all_unique(points[::count])


@given(AXES, st.data())
def test_exclude(axes, data):
    key = data.draw(st.sampled_from(sorted(axes)))
    excluded = {key: data.draw(st.sampled_from(VALUES))}
    points = expand_matrix(make_matrix(axes))
    assert expand_matrix(make_matrix(axes, exclude=[excluded])) == [
        point for point in points if point[key] != excluded[key]
    ]


@given(AXES, st.lists(st.sampled_from(["x", "y", "z"]), unique=True), st.data())
def test_include_new_values(axes, new_values, data):
    key = data.draw(st.sampled_from(sorted(axes)))
    points = expand_matrix(make_matrix(axes, include=[{key: value} for value in new_values]))
    assert points == expand_matrix(make_matrix(axes)) + [{key: value} for value in new_values]
    assert all_unique(points)


@given(AXES)
def test_include_new_key(axes):
    points = expand_matrix(make_matrix(axes, include=[{"extra": "yes"}]))
    assert points == [{**point, "extra": "yes"} for point in expand_matrix(make_matrix(axes))]


@given(AXES)
def test_order(axes):
    points = expand_matrix(make_matrix(axes))
    ranks = [tuple(axes[key].index(point[key]) for key in axes) for point in points]
    assert ranks == sorted(ranks)


@given(st.text(), st.dictionaries(st.sampled_from(NAMES), st.text(alphabet="xyz/.")))
def test_placeholders(text, values):
    assert placeholders.fill_placeholders(text.replace("{", "("), values) == text.replace("{", "(")
    assert placeholders.fill_placeholders("<{a}>", values) == f"<{values.get('a', '{a}')}>"
    assert placeholders.fill_placeholders("${a}{b", values) == "${a}{b"
