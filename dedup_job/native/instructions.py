"""Processor instructions that Python has no word for, for compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def instruction(builder: Callable[..., object]) -> Any:
    """Let compiled code call a function that is built from LLVM's instructions."""
    return intrinsic(builder)


@instruction
def popcount(_context: Any, bits: Any) -> Any:
    """Count the bits set in an unsigned integer; the result has the same type."""
    return bits(bits), lambda _, builder, __, arguments: builder.ctpop(arguments[0])


@instruction
def prefetch(_context: Any, array: Any, place: Any) -> Any:
    """Load an array's element into the processor's cache without waiting for it.

    Args:
        place: Index of the element in the flat array.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        load = builder.module.declare_intrinsic("llvm.prefetch", (address.type,), kind)
        # 0: for reading; 3: keep it in all caches; 1: data, not instructions.
        builder.call(load, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), build
