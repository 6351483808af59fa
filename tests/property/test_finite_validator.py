"""Finding NaN and infinities in raw bytes agrees with Python's own decoding of them."""

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from packtrain.agent.outputs.validators.float_formats import FLOAT_FORMATS, find_non_finite

CODES = {"float64": "d", "float32": "f", "float16": "e"}


@given(st.sampled_from(sorted(CODES)), st.lists(st.binary(min_size=8, max_size=8), max_size=40), st.booleans())
def test_any_bits(name, chunks, big_endian):
    float_format = FLOAT_FORMATS[name]
    data = b"".join(chunk[: float_format.value_bytes] for chunk in chunks)
    values = struct.unpack(f"{'>' if big_endian else '<'}{len(chunks)}{CODES[name]}", data)
    expected = [index for index, value in enumerate(values) if not math.isfinite(value)]
    assert find_non_finite(data, float_format, big_endian) == expected


@given(st.lists(st.floats(width=32), max_size=40), st.booleans())
def test_bfloat16_is_the_upper_half_of_float32(values, big_endian):
    order = ">" if big_endian else "<"
    halves = [struct.pack(">f", value)[:2] for value in values]
    data = b"".join(half if big_endian else half[::-1] for half in halves)
    padded = [half + bytes(2) if big_endian else bytes(2) + half[::-1] for half in halves]
    singles = [struct.unpack(f"{order}f", single)[0] for single in padded]
    expected = [index for index, value in enumerate(singles) if not math.isfinite(value)]
    assert find_non_finite(data, FLOAT_FORMATS["bfloat16"], big_endian) == expected


@given(st.lists(st.complex_numbers(width=64), max_size=40))
def test_complex_values_count_once(values):
    data = b"".join(struct.pack("<ff", value.real, value.imag) for value in values)
    expected = [index for index, v in enumerate(values) if not (math.isfinite(v.real) and math.isfinite(v.imag))]
    assert find_non_finite(data, FLOAT_FORMATS["complex64"]) == expected
