"""The codec of TVM's JSON beside TVM itself."""

from collections.abc import Callable
from typing import Any

from opsieve.gen.irs.tvm.nodes import decode, encode, schema


def test_what_is_written_is_the_module_that_was_read(tvm: Callable[..., Any]) -> None:
    for text in tvm("examples"):
        again = encode(decode(text))
        assert tvm("compare", texts=[text, again])
        assert encode(decode(again)) == again


def test_the_table_of_fields_is_that_of_tvm(tvm: Callable[..., Any]) -> None:
    assert tvm("schema", keys=sorted(schema())) == schema()
