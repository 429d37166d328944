"""The machine's own instructions, for compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def instruction(builder: Callable[..., object]) -> Any:
    """Let compiled code call what this function builds of the compiler's own instructions."""
    return intrinsic(builder)


@instruction
def popcount(_context: Any, bits: Any) -> Any:
    """Bits set in an unsigned integer, of the same type."""
    return bits(bits), lambda _, builder, __, arguments: builder.ctpop(arguments[0])


@instruction
def prefetch(_context: Any, array: Any, place: Any) -> Any:
    """Ask for the memory of an array's element, counted along the flat array, without waiting for it."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        load = builder.module.declare_intrinsic("llvm.prefetch", (address.type,), kind)
        builder.call(load, [address, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64), build
