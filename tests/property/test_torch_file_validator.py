"""The torch file validator, which does not use torch, agrees with torch on any file that torch saves."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packtrain.agent.outputs.validators import torch_file, torch_pickle

torch.set_num_threads(1)
FLOATS = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
OTHERS = [torch.int64, torch.int32, torch.uint8, torch.bool, torch.uint16]


def problem_of(path):
    return torch_file.validate(path, lambda: None)


@st.composite
def tensors(draw):
    """Tensors of any dtype and layout (contiguous, transposed, strided, slices), some with NaN or infinities."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(2, 6))
    tensor = torch.randn(rows, columns, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    for _ in range(draw(st.integers(0, 2))):
        value = draw(st.sampled_from([float("nan"), float("inf"), float("-inf"), 1e38]))
        tensor[draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))] = value
    dtype = draw(st.sampled_from(FLOATS + OTHERS))
    tensor = (torch.nan_to_num(tensor, 0, 0, 0).clamp(0, 9) if dtype in OTHERS else tensor).to(dtype)
    view = draw(
        st.sampled_from([lambda t: t, lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:], lambda t: t[:, 1:]])
    )
    tensor = view(tensor)
    return torch.nn.Parameter(tensor) if dtype in FLOATS and draw(st.booleans()) else tensor


def count_non_finite(tensor):
    if tensor.dtype not in FLOATS:
        return 0
    wide = tensor.detach() if tensor.is_complex() else tensor.detach().double()
    return int((~torch.isfinite(wide)).sum())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tensors(), min_size=1, max_size=4), st.booleans())
def test_any_state(tmp_path, values, zipped):
    path = tmp_path / "model.pt"
    state = {"net": {f"layer{number}.weight": tensor for number, tensor in enumerate(values)}, "epoch": 3}
    if not zipped and any(t.dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16) for t in values):
        zipped = True  # the format before torch 1.6 does not support these dtypes
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    assert torch.load(path, weights_only=True)["epoch"] == 3
    non_finite = {f"net.layer{number}.weight": count_non_finite(tensor) for number, tensor in enumerate(values)}
    non_finite = {name: count for name, count in non_finite.items() if count}
    problem = problem_of(path)
    if not any(tensor.numel() for tensor in values):
        assert problem == "it contains no tensors"
    elif not non_finite:
        assert problem is None
    else:
        name, count, others = re.match(r"the tensor (\S+) has (\d+) .*?(?:(\d+) other .*)?$", problem).groups()
        assert non_finite[name] == int(count)
        assert int(others or 0) == len(non_finite) - 1


def test_all_names_that_weights_only_allows():
    allowed = torch._weights_only_unpickler._get_allowed_globals()
    assert [name for name in allowed if not torch_pickle._ALLOWED_NAMES.fullmatch(name)] == []


@pytest.mark.parametrize(
    "name",
    ["os.system", "builtins.eval", "torch.load", "torch.hub.load", "torch.nn.modules.linear.Linear", "a.bTensor"],
)
def test_disallowed_names(name):
    assert not torch_pickle._ALLOWED_NAMES.fullmatch(name)
    assert name not in torch._weights_only_unpickler._get_allowed_globals()


def test_sparse_quantized_and_shared_tensors(tmp_path):
    path = tmp_path / "model.pt"
    sparse = torch.eye(3).to_sparse()
    sparse._values()[1] = float("nan")
    shared = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    torch.save({"quantized": quantized, "shared": [shared, shared], "wide": torch.ones(1).expand(4, 5)}, path)
    assert problem_of(path) is None
    torch.save({"sparse": sparse}, path)
    assert problem_of(path).startswith("the tensor sparse.1 has 1 value that is not finite (NaN or infinite), of 3")
    torch.save(torch.tensor(float("nan")), path)
    assert problem_of(path) == "its only tensor has 1 value that is not finite (NaN or infinite), of 1"


def test_optimizer_scheduler_and_rng_state(tmp_path):
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    objects = {"net": net, "optimizer": optimizer, "scheduler": scheduler}
    state = {**{name: value.state_dict() for name, value in objects.items()}, "random": torch.get_rng_state()}
    torch.save(state, tmp_path / "ckpt.pt")
    assert problem_of(tmp_path / "ckpt.pt") is None
    state["optimizer"]["state"][0]["exp_avg"][1, 2] = float("inf")
    torch.save(state, tmp_path / "ckpt.pt")
    assert problem_of(tmp_path / "ckpt.pt").startswith("the tensor optimizer.state.0.exp_avg has 1 value")
