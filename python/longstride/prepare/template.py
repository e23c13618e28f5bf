"""Renders chats with Jinja templates the way transformers does, and notes what stands in `{% generation %}` blocks.

transformers' own renderer is not used, as it reads the clock (a run that is continued tomorrow must write the same
bytes) and copies the chat for every rendering. Tests compare the two.
"""
import datetime
import json
import re

from ..errors import Error
from .files import need
from .tokenizer import GENERATION

REASONING = ("reasoning_content", "thinking", "reasoning")


def has_tags(text):
    return re.search(GENERATION, text) is not None


def uses_date(text):
    return "strftime_now" in text


class Template:
    """A compiled template. `variables` are the special tokens and the user's arguments; `date` is YYYY-MM-DD."""

    def __init__(self, text, variables, date, name="the chat template"):
        self.variables, self.tags, self.name = variables, has_tags(text), name
        self.marks = Marks()
        self.environment = make_environment(self.marks, date)
        try:
            self.compiled = self.environment.from_string(text)
        except need("jinja2").TemplateSyntaxError as error:
            raise Error(f"{name} is not a valid Jinja template: line {error.lineno}: {error.message}",
                        "correct it, or give another with --template FILE") from None

    def render(self, messages, tools, prompt=False):
        """The text of a chat, with the start of an answer at its end if `prompt`."""
        return "".join(self.blocks(messages, tools, prompt))

    def render_tagged(self, messages, tools):
        """The text, and the ranges of characters inside of generation blocks."""
        self.marks.start()
        for block in self.blocks(messages, tools, False):
            self.marks.add(block)
        return self.marks.finish()

    def blocks(self, messages, tools, prompt):
        jinja2 = need("jinja2")
        try:
            yield from self.compiled.generate(messages=messages, tools=tools, documents=None,
                                              add_generation_prompt=prompt, **self.variables)
        except jinja2.TemplateError as error:
            raise Error(f"{self.name} refuses this chat: {error}", "change the chat, or the template with --template"
                        ) from None
        except (TypeError, ValueError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
            raise Error(f"{self.name} fails on this chat: {type(error).__name__}: {error}",
                        "a field may be missing or of another type than the template expects") from None


def with_reasoning(messages):
    """An answer's reasoning goes by several names; templates look for one of two."""
    result = []
    for message in messages:
        reasoning = next((message[key] for key in REASONING if message.get(key) is not None), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        result.append(message)
    return result


class Marks:
    """Where generation blocks stand: a block begins at the length of what was rendered before it."""

    def __init__(self):
        self.active = False

    def start(self):
        self.active, self.pieces, self.length, self.spans = True, [], 0, []

    def add(self, block):
        self.pieces.append(block)
        self.length += len(block)

    def block(self, text):
        if self.active:
            self.spans.append((self.length, self.length + len(text)))

    def finish(self):
        self.active = False
        return "".join(self.pieces), self.spans


def make_environment(marks, date):
    jinja2, extensions, sandbox = need("jinja2"), need("jinja2.ext"), need("jinja2.sandbox")
    now = datetime.datetime.fromisoformat(date)

    class Generation(extensions.Extension):
        """`{% generation %} ... {% endgeneration %}`: renders its body and marks it as an answer."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

        def mark(self, caller):
            text = caller()
            marks.block(text)
            return text

    class Namespace(jinja2.utils.Namespace):
        """Without attributes that lead to Python's internals, as templates come from others."""

        def __init__(*arguments, **values):  # no name for self, so that namespace(self=...) works
            self, values = arguments[0], dict(*arguments[1:], **values)
            for name in values:
                refuse_private(name)
            jinja2.utils.Namespace.__init__(self, values)

        def __setitem__(self, name, value):
            refuse_private(name)
            super().__setitem__(name, value)

    class Dict:
        """dict(...) without the type's other attributes."""

        def __call__(self, *arguments, **values):
            return dict(*arguments, **values)

        def fromkeys(self, *arguments):
            return dict.fromkeys(*arguments)

    def refuse_private(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace cannot hold {name!r}")

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                        extensions=[Generation, extensions.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=now.strftime, dict=Dict(),
                               namespace=Namespace)
    return environment
