"""The device of the tests: LONGSTRIDE_TEST_DEVICE=cuda runs them on a GPU, where views are tensors of torch."""
import os

import numpy

DEVICE = os.environ.get("LONGSTRIDE_TEST_DEVICE", "cpu")
# fp32, so that one bound serves both devices.
SETTINGS = {"device": DEVICE} if DEVICE == "cpu" else {"device": DEVICE, "numerics": {"compute": "f32"}}
TINY = {"preset": "tiny-qwen3", "context": 512, "chunk": 64, "page": 16, **SETTINGS}
if DEVICE != "cpu":
    TINY["model_settings"] = {"dtype": "f32"}


def array_of(view):
    """What a view shows: an array of numpy, or on a GPU a tensor of torch. No copy."""
    if DEVICE == "cpu":
        return numpy.from_dlpack(view)
    import torch
    return torch.from_dlpack(view)


def copy_of(view):
    array = array_of(view)
    return array.copy() if DEVICE == "cpu" else array.cpu().numpy()


def write_to(view, values):
    """Values of numpy into the memory that a view shows."""
    if DEVICE == "cpu":
        numpy.from_dlpack(view)[...] = values
    else:
        import torch
        torch.from_dlpack(view).copy_(torch.from_numpy(values))
