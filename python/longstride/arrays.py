"""Arrays that users give: what they may be, and how the engine gets them."""
from collections.abc import Sequence
from typing import Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeVar

import numpy
from numpy.typing import NDArray

from .errors import Error

Scalar_co = TypeVar("Scalar_co", bound=numpy.generic, covariant=True)
Number = TypeVar("Number", numpy.int32, numpy.int64, numpy.float32)


class SupportsArray(Protocol[Scalar_co]):
    """Arrays of numpy, tensors of torch, columns of tables."""

    def __array__(self) -> NDArray[Scalar_co]: ...


# One dimension: no str, no list of lists.
Integers: TypeAlias = Sequence[SupportsIndex] | SupportsArray[numpy.integer[Any]]
Floats: TypeAlias = (Sequence[SupportsFloat]
                     | SupportsArray[numpy.floating[Any] | numpy.integer[Any] | numpy.bool_])


def array_of(name: str, values: Integers | Floats | None, dtype: type[Number]) -> NDArray[Number]:
    """One dimension, in host memory, of the wanted type; whole numbers are not made of others."""
    if values is None:
        raise Error(f"{name} is None", "give a sequence of token ids")
    given: Any = values
    if hasattr(given, "detach"):
        given = given.detach().cpu()
    try:
        array = numpy.asarray(given)
    except (TypeError, ValueError) as error:
        raise Error(f"{name} is no array: {error}", "give a list, a numpy array or a torch tensor") from error
    if array.ndim != 1:
        raise Error(f"{name} has {array.ndim} dimensions", "give one sequence: one dimension")
    if issubclass(dtype, numpy.integer):
        if not numpy.issubdtype(array.dtype, numpy.integer):
            raise Error(f"{name} has the type {array.dtype}", "give whole numbers")
        limits = numpy.iinfo(dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise Error(f"{name} has values outside of {dtype.__name__}", "give token ids")
    elif not (numpy.issubdtype(array.dtype, numpy.floating) or numpy.issubdtype(array.dtype, numpy.integer)
              or array.dtype == bool):
        raise Error(f"{name} has the type {array.dtype}", "give numbers")
    return numpy.ascontiguousarray(array, dtype=dtype)


def array_or_none(name: str, values: Integers | Floats | None, dtype: type[Number]) -> NDArray[Number] | None:
    return None if values is None else array_of(name, values, dtype)
