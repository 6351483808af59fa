"""The number of points, their difference and their order."""

import math

from hypothesis import given
from hypothesis import strategies as st

from packtrain.spec import placeholders
from packtrain.spec.matrix import expand_matrix
from packtrain.spec.models.workflow import Matrix

NAMES = ["a", "b", "c"]
VALUES = ["1", "2", "3", "4"]
AXES = st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(VALUES), min_size=1, unique=True), min_size=1)


def matrix(axes, **more):
    return Matrix.model_validate({**axes, **more})


def different(points):
    return len({tuple(sorted(point.items())) for point in points}) == len(points)


@given(AXES, st.integers(1, 3))
def test_all_combinations_each_as_often_as_counted(axes, count):
    points = expand_matrix(matrix(axes), count)
    assert len(points) == math.prod(map(len, axes.values())) * count
    assert different(points[::count])


@given(AXES, st.data())
def test_exclude_removes_exactly_what_agrees(axes, data):
    key = data.draw(st.sampled_from(sorted(axes)))
    gone = {key: data.draw(st.sampled_from(VALUES))}
    everything = expand_matrix(matrix(axes))
    assert expand_matrix(matrix(axes, exclude=[gone])) == [point for point in everything if point[key] != gone[key]]


@given(AXES, st.lists(st.sampled_from(["x", "y", "z"]), unique=True), st.data())
def test_includes_of_new_values_are_added_at_the_end(axes, new, data):
    key = data.draw(st.sampled_from(sorted(axes)))
    points = expand_matrix(matrix(axes, include=[{key: value} for value in new]))
    assert points == expand_matrix(matrix(axes)) + [{key: value} for value in new]
    assert different(points)


@given(AXES)
def test_an_include_without_keys_of_the_matrix_reaches_every_point(axes):
    points = expand_matrix(matrix(axes, include=[{"extra": "yes"}]))
    assert points == [{**point, "extra": "yes"} for point in expand_matrix(matrix(axes))]


@given(AXES)
def test_the_order_is_that_of_the_file(axes):
    points = expand_matrix(matrix(axes))
    ranks = [tuple(axes[key].index(point[key]) for key in axes) for point in points]
    assert ranks == sorted(ranks)


@given(st.text(), st.dictionaries(st.sampled_from(NAMES), st.text(alphabet="xyz/.")))
def test_templates_change_nothing_but_known_keys(text, values):
    assert placeholders.fill_placeholders(text.replace("{", "("), values) == text.replace("{", "(")
    assert placeholders.fill_placeholders("<{a}>", values) == f"<{values.get('a', '{a}')}>"
    assert placeholders.fill_placeholders("${a}{b", values) == "${a}{b"
