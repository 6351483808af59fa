"""The examples are those of GitHub's documentation, whose rules these are."""

from packtrain.spec.matrix import MAX_JOBS, expand_matrix, job_limit_error
from packtrain.spec.models.workflow import Matrix


def matrix(**keys):
    return Matrix.model_validate(keys)


def test_without_a_matrix_count_gives_that_many_empty_points():
    assert expand_matrix(None, 3) == [{}, {}, {}]


def test_the_last_key_varies_fastest():
    points = expand_matrix(matrix(lr=["0.1", "0.01"], seed=[1, 2]))
    assert [(p["lr"], p["seed"]) for p in points] == [("0.1", "1"), ("0.1", "2"), ("0.01", "1"), ("0.01", "2")]


def test_count_repeats_each_point():
    assert expand_matrix(matrix(lr=[1, 2]), 2) == [{"lr": "1"}, {"lr": "1"}, {"lr": "2"}, {"lr": "2"}]


def test_exclude_removes_what_agrees_with_a_part():
    assert expand_matrix(matrix(a=[1, 2], b=[1, 2], exclude=[{"a": 1}])) == [{"a": "2", "b": "1"}, {"a": "2", "b": "2"}]


def test_include_adds_to_what_it_does_not_contradict_and_else_stands_alone():
    points = expand_matrix(
        matrix(
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


def test_include_alone_makes_a_job_an_entry():
    assert expand_matrix(matrix(include=[{"a": 1}, {"b": 2}])) == [{"a": "1"}, {"b": "2"}]


def test_too_many_jobs_are_noticed_without_making_them():
    wide = [str(n) for n in range(1000)]
    assert "more than 100000 jobs" in job_limit_error(matrix(a=wide, b=wide, c=wide, d=wide), 1)
    assert "more than 100000 jobs" in job_limit_error(None, MAX_JOBS + 1)
    assert job_limit_error(None, MAX_JOBS) == ""


def test_too_many_comparisons_are_noticed_too():
    many = matrix(a=list(range(300)), b=list(range(300)), exclude=[{"a": n} for n in range(200)])
    assert "which is too many" in job_limit_error(many, 1)
