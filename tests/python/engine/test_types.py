"""The types that the package ships: the stub says what the extension module has, and mypy agrees with the sources and
with a user's program. Without mypy, the latter is skipped."""
import ast
import glob
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import unittest

import longstride
from longstride import _core, engine
from longstride.annotations import EngineSettings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
PACKAGE = os.path.dirname(longstride.__file__)


def plain(annotation):
    """A type without the modules of its names."""
    return re.sub(r"\b[a-z_.]+\.(?=\w)", "", annotation)


def parsed(signature):
    """The definition of a function by nanobind's text of it. Arrays become NDArray[int32]."""
    signature = re.sub(r"ndarray\[dtype=(\w+)[^]]*]", r"NDArray[\1]", signature)
    signature = re.sub(r"^def \(", "def property(", signature)
    return ast.parse(signature + ": ...").body[0]


def same_type(stub, module):
    """Whether the stub's type is the module's, or says more where the module knows only object, tuple or dict."""
    if module.removesuffix(" | None") in ("object", "tuple", "dict"):
        if module.endswith(" | None") != stub.endswith(" | None"):
            return False
        kind = module.removesuffix(" | None")
        return kind == "object" or stub.startswith(kind + "[")
    return stub == module


def differences(stub, module):
    """What is not the same in two definitions of a function."""
    def arguments(function, kind):
        return [(one.arg, one.annotation and plain(ast.unparse(one.annotation)))
                for one in getattr(function.args, kind)]

    for kind in ("posonlyargs", "args", "kwonlyargs"):
        ours, theirs = arguments(stub, kind), arguments(module, kind)
        if [name for name, _ in ours] != [name for name, _ in theirs]:
            yield f"{kind} {[name for name, _ in ours]}, not {[name for name, _ in theirs]}"
            continue
        for (name, our), (_, their) in zip(ours, theirs):
            if (our is None) != (their is None) or our is not None and not same_type(our, their):
                yield f"{name}: {our}, not {their}"
    if ast.dump(ast.Tuple(stub.args.defaults)) != ast.dump(ast.Tuple(module.args.defaults)):
        yield "defaults"
    returned = plain(ast.unparse(stub.returns)), plain(ast.unparse(module.returns))
    if not same_type(*returned):
        yield "returns {}, not {}".format(*returned)


def described(owner):
    """{name: definition, or None of what is no function} of what a module or a class of it has."""
    found = {}
    for name, value in vars(owner).items():
        if isinstance(value, property):
            value = value.fget
        if hasattr(value, "__nb_signature__"):
            (signature, *_), = value.__nb_signature__  # no function is overloaded
            found[name] = parsed(signature)
        elif isinstance(value, type) or name == "__version__":
            found[name] = None
        elif not name.startswith("__"):
            raise AssertionError(f"{name} is a {type(value)}, which this test does not know")
    return found


def written(body):
    """Likewise of the stub."""
    found = {}
    for one in body:
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            found[one.name] = one if isinstance(one, ast.FunctionDef) else None
        elif isinstance(one, ast.AnnAssign):
            found[one.target.id] = None
    return found


class Stub(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(PACKAGE, "_core.pyi"), encoding="utf-8") as file:
            self.text = file.read()

    def disagreements(self, text):
        body = ast.parse(text).body
        session, = (one for one in body if isinstance(one, ast.ClassDef))
        found = []
        for name, owner, own in (("module", _core, body), ("Session", _core.Session, session.body)):
            stub, module = written(own), described(owner)
            found += [f"{name}: {one} is on one side alone" for one in sorted(stub.keys() ^ module.keys())]
            for one in sorted(stub.keys() & module.keys()):
                if (stub[one] is None) != (module[one] is None):
                    found.append(f"{name}.{one} is a function on one side alone")
                elif stub[one] is not None:
                    found += [f"{name}.{one}: {what}" for what in differences(stub[one], module[one])]
        for one in session.body:
            marked = [ast.unparse(mark) for mark in one.decorator_list] == ["property"]
            if isinstance(getattr(_core.Session, one.name, None), property) != marked:
                found.append(f"Session.{one.name} is a property on one side alone")
        return found

    def test_agrees_with_the_module(self):
        self.assertEqual(self.disagreements(self.text), [])

    def test_a_difference_is_seen(self):
        for old, new in (("lr: float", "rate: float"), ("lr: float", "lr: int"), ("-> float", "-> int"),
                         ("clip_norm: float | None", "clip_norm: float"), ("arg: str, /", "arg: str"),
                         ("numpy.int64] | None", "numpy.int32] | None"),
                         ("    @property\n    def chunk", "    def chunk"), ("def stop_messages() -> None: ...\n", ""),
                         ("receiver: Callback)", "receiver: Callback | None)"), ("-> dict[str, View]", "-> list[View]"),
                         ("def stop_messages", "def more() -> None: ...\ndef stop_messages"),
                         ("clip_norm: float | None)", "clip_norm: float | None = None)")):
            with self.subTest(new):
                self.assertIn(old, self.text)
                self.assertNotEqual(self.disagreements(self.text.replace(old, new)), [])


class Shipped(unittest.TestCase):
    def test_marker_and_names(self):
        self.assertTrue(os.path.exists(os.path.join(PACKAGE, "py.typed")))
        for name in longstride.__all__:
            self.assertIsNotNone(getattr(longstride, name))
        self.assertEqual(set(EngineSettings.__annotations__), {*engine.KEYS, *engine.SECTIONS})

    def test_import_is_quick(self):
        """Nothing large is imported before it is needed."""
        program = ("import sys, longstride\nassert not {'numpy', 'torch', 'longstride._core'} & set(sys.modules)\n"
                   "import longstride.callbacks\nassert not {'numpy', 'torch'} & set(sys.modules)\n"
                   "longstride.Engine\nassert 'torch' not in sys.modules\n")
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(PACKAGE)}
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
class Mypy(unittest.TestCase):
    def test_sources_and_a_program(self):
        """Sources: none is reported. Program: the lines that say so are, and no other."""
        sample = os.path.join(HERE, "typed_sample.py")
        with open(sample, encoding="utf-8") as file:
            wanted = {(number, found.group(1)) for number, line in enumerate(file, 1)
                      if (found := re.search("# error: ([a-z-]+)$", line.rstrip()))}
        self.assertGreater(len(wanted), 20)
        with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
            files = [path for pattern in tomllib.load(file)["tool"]["mypy"]["files"]
                     for path in glob.glob(pattern, root_dir=ROOT)]
        self.assertIn("python/longstride/engine.py", files)
        done = subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary", *files, sample], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr + done.stdout)
        errors = re.findall(r"^(.*?):(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.M)
        self.assertEqual({path for path, _, _ in errors}, {os.path.relpath(sample, ROOT)}, done.stdout)
        self.assertEqual({(int(line), code) for _, line, code in errors}, wanted, done.stdout)


if __name__ == "__main__":
    unittest.main()
