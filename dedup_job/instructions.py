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
def lowest(_context: Any, bits: Any) -> Any:
    """Place of the lowest bit set in a uint64 that is not 0."""

    def build(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(bits), build


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


def differing(builder: Any, entries: Any, wanted: Any) -> Any:
    """Build the number of bits in which the lanes of two vectors differ."""
    kind = entries.type
    name = f"llvm.ctpop.v{kind.count}{kind.element}"
    popcount = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind]))
    return builder.call(popcount, [builder.xor(entries, wanted)])


def lesser(builder: Any, one: Any, other: Any) -> Any:
    """Build a vector of the lesser of two numbers in each lane."""
    return builder.select(builder.icmp_unsigned("<", one, other), one, other)


def spread(builder: Any, value: Any, lanes: int) -> Any:
    """Build a vector that has the value in each lane."""
    unset = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(unset, value, ir.IntType(32)(0))
    return builder.shuffle_vector(
        first, unset, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    )
