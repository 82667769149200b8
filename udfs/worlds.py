"""Tuples of arrays are passed to compiled functions by reference.

Numba passes a tuple as its members, and an array as seven words: the world of a broker was 250 words
in each call, and a thousand lines of intermediate code to take them apart. Here such a tuple is the
address of its members, which lie on the stack of the function that Python has called.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.boxing import unbox_tuple
from numba.core.datamodel import register_default
from numba.core.datamodel.models import DataModel, TupleModel, UniTupleModel
from numba.core.extending import NativeValue, lower_builtin, unbox
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.types.containers import BaseNamedTuple, NamedTuple, NamedUniTuple

T = TypeVar("T")
_made: set[type] = set()


def made_by_rules(kind: type[T]) -> type[T]:
    """A tuple of arrays that compiled functions make: it is passed as numba passes it, since its
    members would lie on the stack of a function that has ended."""
    _made.add(kind)
    return kind


class _ByReference(DataModel):  # type: ignore[misc]
    """The address of members that are never written."""

    def __init__(self, models: Any, kind: Any) -> None:
        super().__init__(models, kind)
        self.members = [models.lookup(each) for each in kind]

    def get_value_type(self) -> Any:
        """Of no type, which would be two thousand characters wherever the address is used."""
        return cgutils.voidptr_t

    def get_data_type(self) -> Any:
        return ir.LiteralStructType([each.get_data_type() for each in self.members])

    def as_argument(self, _: Any, value: Any) -> Any:
        return value

    from_argument = as_argument

    def as_data(self, builder: Any, value: Any) -> Any:
        return builder.load(builder.bitcast(value, self.get_data_type().as_pointer()))

    def load_from_data_pointer(self, builder: Any, pointer: Any, align: int | None = None) -> Any:
        del align
        return builder.bitcast(pointer, self.get_value_type())

    def inner_models(self) -> Any:
        return self.members

    def member(self, context: Any, builder: Any, value: Any, index: int) -> Any:
        """The value of a member."""
        layout = context.codegen().target_data
        offset = self.get_data_type().get_element_offset(layout, index)
        place = builder.gep(value, [cgutils.intp_t(offset)], inbounds=True)
        model = self.members[index]
        pointer = builder.bitcast(place, model.get_data_type().as_pointer())
        return model.load_from_data_pointer(builder, pointer)


def _is_passed_so(kind: Any) -> bool:
    return (
        kind.instance_class.__module__.startswith("state.")
        and kind.instance_class not in _made
        and any(
            isinstance(each, types.Array)
            or (isinstance(each, BaseNamedTuple) and _is_passed_so(each))
            for each in kind
        )
    )


@register_default(NamedTuple)
def _model(models: Any, kind: Any) -> Any:
    return (_ByReference if _is_passed_so(kind) else TupleModel)(models, kind)


@register_default(NamedUniTuple)
def _model_of_equals(models: Any, kind: Any) -> Any:
    return (_ByReference if _is_passed_so(kind) else UniTupleModel)(models, kind)


@lower_getattr_generic(NamedTuple)
@lower_getattr_generic(NamedUniTuple)
def _named(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    return _member(context, builder, kind, value, kind.fields.index(name))


@lower_builtin("static_getitem", NamedTuple, types.IntegerLiteral)
@lower_builtin("static_getitem", NamedUniTuple, types.IntegerLiteral)
def _numbered(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """A constant index, as a tuple has that is taken apart."""
    kind, (value, index) = signature.args[0], values
    return _member(context, builder, kind, value, range(len(kind))[index])


def _member(context: Any, builder: Any, kind: Any, value: Any, index: int) -> Any:
    model = context.data_model_manager[kind]
    if isinstance(model, _ByReference):
        found = model.member(context, builder, value, index)
    else:
        found = builder.extract_value(value, index)
    return impl_ret_borrowed(context, builder, kind[index], found)


@unbox(NamedTuple)
@unbox(NamedUniTuple)
def _from_python(kind: Any, value: Any, c: Any) -> NativeValue:
    """As numba's, except that the members stay where they are put; arrays and numbers leave nothing to
    clean up."""
    model = c.context.data_model_manager[kind]
    if not isinstance(model, _ByReference):
        return unbox_tuple(kind, value, c)
    here = cgutils.alloca_once(c.builder, model.get_data_type())
    failed = cgutils.alloca_once_value(c.builder, cgutils.false_bit)
    for i, (each, member) in enumerate(zip(kind, model.members, strict=True)):
        native = c.unbox(each, c.pyapi.tuple_getitem(value, i))
        place = cgutils.gep_inbounds(c.builder, here, 0, i)
        c.builder.store(member.as_data(c.builder, native.value), place)
        with c.builder.if_then(native.is_error, likely=False):
            c.builder.store(cgutils.true_bit, failed)
    address = c.builder.bitcast(here, model.get_value_type())
    return NativeValue(address, is_error=c.builder.load(failed))


def _short(kind: Any) -> tuple[str, tuple[()]]:
    """Name and parameters of a type in the names of compiled functions. Numba's has each member and
    each field of a record: half of all text that it makes."""
    name = str(kind.name)
    return f"{type(kind).__name__}{hashlib.sha256(name.encode()).hexdigest()[:16]}", ()


for _kind in (types.Record, NamedTuple, NamedUniTuple):
    _kind.mangling_args = property(_short)  # type: ignore[method-assign]
