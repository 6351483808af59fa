"""Expansion of a matrix, by the rules of GitHub Actions and with the examples of its documentation."""

from packtrain.spec.matrix import MAX_JOBS, expand_matrix, job_limit_error
from packtrain.spec.models.workflow import Matrix


def make_matrix(**keys):
    return Matrix.model_validate(keys)


def test_count_without_matrix():
    assert expand_matrix(None, 3) == [{}, {}, {}]


def test_last_key_varies_fastest():
    points = expand_matrix(make_matrix(lr=["0.1", "0.01"], seed=[1, 2]))
    assert [(point["lr"], point["seed"]) for point in points] == [
        ("0.1", "1"),
        ("0.1", "2"),
        ("0.01", "1"),
        ("0.01", "2"),
    ]


def test_count_repeats_each_point():
    assert expand_matrix(make_matrix(lr=[1, 2]), 2) == [{"lr": "1"}, {"lr": "1"}, {"lr": "2"}, {"lr": "2"}]


def test_exclude():
    assert expand_matrix(make_matrix(a=[1, 2], b=[1, 2], exclude=[{"a": 1}])) == [
        {"a": "2", "b": "1"},
        {"a": "2", "b": "2"},
    ]


def test_include():
    points = expand_matrix(
        make_matrix(
            fruit=["apple", "pear"],
            animal=["cat", "dog"],
            include=[
                {"color": "green"},
                {"color": "pink", "animal": "cat"},
                {"fruit": "apple", "shape": "circle"},
                {"fruit": "banana"},
                {"fruit": "banana", "animal": "cat"},
            ],
        )
    )
    assert points == [
        {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
        {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
        {"fruit": "pear", "animal": "cat", "color": "pink"},
        {"fruit": "pear", "animal": "dog", "color": "green"},
        {"fruit": "banana"},
        {"fruit": "banana", "animal": "cat"},
    ]


def test_include_only():
    assert expand_matrix(make_matrix(include=[{"a": 1}, {"b": 2}])) == [{"a": "1"}, {"b": "2"}]


def test_too_many_jobs():
    values = [str(n) for n in range(1000)]
    assert "more than 100000 jobs" in job_limit_error(make_matrix(a=values, b=values, c=values, d=values), 1)
    assert "more than 100000 jobs" in job_limit_error(None, MAX_JOBS + 1)
    assert job_limit_error(None, MAX_JOBS) == ""


def test_too_many_comparisons():
    matrix = make_matrix(a=list(range(300)), b=list(range(300)), exclude=[{"a": n} for n in range(200)])
    assert "which is too many" in job_limit_error(matrix, 1)
