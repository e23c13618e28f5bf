"""From a chat to samples: texts with the ranges of characters that are answers.

Where the template has generation tags, they tell. Else an answer is what its rendering adds to the rendering of the
chat before it; if these renderings recur in the whole, one sample holds all answers. Where a template rewrites
history, an answer that is not found again later gets a sample of its own: the chat up to it.
"""
import bisect
import json

from ..errors import Error
from .template import with_reasoning

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
ANSWER = "assistant"


class Chats:
    """Makes samples of chats. `templates` maps "default" and perhaps "tool_use" to Template objects."""

    def __init__(self, templates, roles=()):
        self.templates, self.roles = templates, {*ROLES, *roles}

    def samples(self, messages, tools):
        """The whole chat's text, and [(text, [(first, last + 1), ...]), ...] with the ranges that are answers."""
        messages, tools = parse(messages, "messages"), parse(tools, "tools")
        self.check(messages, tools)
        chosen = self.choose(tools)
        messages = with_reasoning(messages)
        if not chosen.tags:
            return from_prefixes(chosen, messages, tools)
        text, spans = chosen.render_tagged(messages, tools)
        if not any(first < last for first, last in spans):
            raise Error("the template's generation tags mark nothing in this chat",
                        "see that they surround what is rendered for assistant messages")
        return text, [(text, spans)]

    def choose(self, tools):
        """Some tokenizers have a template of its own for chats with tools."""
        return self.templates.get("tool_use" if tools is not None else "default") or self.templates["default"]

    def check(self, messages, tools):
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise Error("the messages are not a list of objects",
                        "a message is like {\"role\": \"user\", \"content\": \"...\"}")
        for number, message in enumerate(messages, 1):
            role = message.get("role")
            if role not in self.roles:
                known = ", ".join(sorted(self.roles))
                wrong = f"the unknown role {role!r}" if "role" in message else "no role"
                raise Error(f"message {number} has {wrong}",
                            f"known roles are: {known}; add one that the template knows with --role NAME")
        if not any(message["role"] == ANSWER for message in messages):
            raise Error("the chat has no answer: no message has the role 'assistant'",
                        "remove it, as there is nothing to learn from it")
        if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            raise Error("the tools are not a list of JSON schemas", "see --tools-column")


def parse(value, what):
    """Tables often hold nested values as JSON in a string."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Error(f"the {what} are a string that is not JSON: {error}", "give a list, or a list as JSON") from None


def from_prefixes(template, messages, tools):
    """Answers are found from the last to the first: each is in the latest sample that begins with its rendering."""
    whole = text = template.render(messages, tools)
    samples, spans = [], []
    for number in reversed([i for i, message in enumerate(messages) if message["role"] == ANSWER]):
        before = template.render(messages[:number], tools, prompt=True)
        after = whole if number + 1 == len(messages) else template.render(messages[:number + 1], tools)
        if not after.startswith(before) or len(after) == len(before):
            raise Error(f"the template renders message {number + 1}, an answer, in a way that does not begin with the "
                        "rendering of the chat before it, so what the model would write is not known",
                        "give a template with {% generation %} tags around the answers: --template FILE")
        if not text.startswith(after):
            samples.append((text, spans[::-1]))
            text, spans = after, []
        spans.append((len(before), len(after)))
    samples.append((text, spans[::-1]))
    return whole, [sample for sample in reversed(samples) if sample[1]]


def token_ranges(encoding, count, spans, tagged):
    """The tokens of ranges of characters: those that share a character with it. Tokens' offsets ascend, so a search by
    halves needs few of them, where asking for all would cost a fifth of the tokenizer's time.

    For tagged templates a range ends with the first token of its last character, as in transformers' mask; it matters
    only if a range ends with a character of several tokens instead of an end marker."""
    def ends(token):
        return encoding.token_to_chars(token)[1]

    def starts(token):
        return encoding.token_to_chars(token)[0]

    for first, last in spans:
        if first < last:
            begin = bisect.bisect_right(range(count), first, key=ends)
            end = bisect.bisect_left(range(count), last, lo=begin, key=starts)
            if tagged:
                final = bisect.bisect_right(range(count), last - 1, lo=begin, key=ends)
                if final < end:
                    end = final + 1
            yield begin, end
