"""Where CUDA's libraries are that came as Python packages: the extra `cuda`, or those that torch brings.

A library that the process has loaded already, by torch for instance, is used as it is."""
import glob
import importlib.util
import os

VARIABLE = "LONGSTRIDE_CUDA_LIBRARIES"
WANTED = ("libcublasLt.so.*", "libcudnn.so.*", "libnvrtc.so.*", "libcupti.so.*", "libnccl.so.*")


def folders() -> list[str]:
    """Folders of the package `nvidia` that have one of them."""
    spec = importlib.util.find_spec("nvidia")
    found: list[str] = []
    for root in (spec.submodule_search_locations or []) if spec else []:
        for folder in sorted(glob.glob(os.path.join(root, "*", "lib"))):
            if any(glob.glob(os.path.join(folder, name)) for name in WANTED):
                found.append(folder)
    return found


def use() -> None:
    """Names them to the engine and to the program, unless the user has named some."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = ":".join(folders())
