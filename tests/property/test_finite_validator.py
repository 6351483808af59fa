"""Values that are not finite are found as Python itself finds them, whatever the bits."""

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from packtrain.agent.outputs.validators.float_formats import FLOAT_FORMATS, find_non_finite

CODES = {"float64": "d", "float32": "f", "float16": "e"}


@given(st.sampled_from(sorted(CODES)), st.lists(st.binary(min_size=8, max_size=8), max_size=40), st.booleans())
def test_any_bits(name, words, big):
    form = FLOAT_FORMATS[name]
    data = b"".join(word[: form.value_bytes] for word in words)
    values = struct.unpack(f"{'>' if big else '<'}{len(words)}{CODES[name]}", data)
    assert find_non_finite(data, form, big) == [at for at, value in enumerate(values) if not math.isfinite(value)]


@given(st.lists(st.floats(width=32), max_size=40), st.booleans())
def test_bfloat16_is_the_upper_half_of_float32(values, big):
    order = ">" if big else "<"
    halves = [struct.pack(">f", value)[:2] for value in values]
    data = b"".join(half if big else half[::-1] for half in halves)
    whole = [struct.unpack(f"{order}f", half + bytes(2) if big else bytes(2) + half[::-1])[0] for half in halves]
    found = [at for at, value in enumerate(whole) if not math.isfinite(value)]
    assert find_non_finite(data, FLOAT_FORMATS["bfloat16"], big) == found


@given(st.lists(st.complex_numbers(width=64), max_size=40))
def test_complex_values_count_once(values):
    data = b"".join(struct.pack("<ff", value.real, value.imag) for value in values)
    bad = [at for at, v in enumerate(values) if not (math.isfinite(v.real) and math.isfinite(v.imag))]
    assert find_non_finite(data, FLOAT_FORMATS["complex64"]) == bad
