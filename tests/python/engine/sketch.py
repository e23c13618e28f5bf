"""Gradients in little room: their products with fixed random vectors of signs.

If R is a vector of independent random signs, the mean of (R·E)² is |E|², whatever the error E is. So the root of the
mean of 32 such squares estimates the norm of an error from 32 numbers per gradient. It comes out at less than half of
the norm for about one direction in 200,000, and exactly right if a single element is wrong. So errors of 1e-4 are
caught if 5e-5 is the limit for the estimate. The signs come from a hash of the name: they are the same everywhere. A
gradient of at most 64 elements is stored whole.
"""
import hashlib

import numpy

PRODUCTS, WHOLE = 32, 64
LIMIT = 5e-5


def signs(name, size):
    bits = hashlib.shake_256(name.encode()).digest((PRODUCTS * size + 7) // 8)
    ones = numpy.unpackbits(numpy.frombuffer(bits, numpy.uint8), count=PRODUCTS * size)
    return (2.0 * ones - 1).reshape(PRODUCTS, size)


def sketch(name, gradient):
    """The norm, and the products; or the norm and all elements."""
    flat = numpy.asarray(gradient, numpy.float64).ravel()
    products = flat if flat.size <= WHOLE else signs(name, flat.size) @ flat
    return numpy.concatenate([[numpy.linalg.norm(flat)], products])


def error(name, gradient, stored):
    """The estimated norm of what a gradient is off by, as a share of the stored norm."""
    difference = sketch(name, gradient)[1:] - stored[1:]
    if gradient.size > WHOLE:
        difference = difference / PRODUCTS ** 0.5
    return float(numpy.linalg.norm(difference) / max(stored[0], 1e-12))


def noise(name, step, shape):
    """Gradients of many magnitudes for an optimizer: the same float32 everywhere."""
    size = int(numpy.prod(shape))
    words = numpy.frombuffer(hashlib.shake_256(f"{name} {step}".encode()).digest(4 * size), "<u4")
    sign = 1 - 2.0 * (words & 1)
    # Powers of two and small multiples of them have no rounding of their own.
    value = sign * (1 + (words >> 8) % 255 / 256) * 2.0 ** -((words >> 1) % 24).astype(numpy.float64)
    return value.astype(numpy.float32).reshape(shape)


def some(weight):
    """Every seventh element: of every row and column, as 7 divides none of the sizes. All, if there are few."""
    return weight.ravel()[::7 if weight.size > 512 else 1]
