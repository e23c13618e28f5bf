"""Chats: texts and masks are transformers', answers alone are targets, and templates that rewrite history are told."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import prepare_support as support  # noqa: E402

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
AGENT = [{"role": "user", "content": "Add 2 and 3, then 4."},
         {"role": "assistant", "content": "", "reasoning_content": "I need the tool.",
          "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}]},
         {"role": "tool", "content": "5"},
         {"role": "assistant", "content": "", "thinking": "Once more.",
          "tool_calls": [{"function": {"name": "add", "arguments": {"a": 5, "b": 4}}}]},
         {"role": "tool", "content": "9"},
         {"role": "assistant", "content": "It is 9.", "reasoning_content": "Now I know."}]


class Chat(support.Case):
    def template(self, text):
        name = self.path("tokenizer")
        return support.with_template(name, self.tokenizer, text) if not os.path.exists(name) else name

    def chats(self, rows):
        return support.write_lines(self.path("chats.jsonl"), rows)

    def run_chats(self, rows, *arguments, template=support.CHATML, **options):
        return self.prepare(self.chats(rows), "--messages-column", "messages", "--workers", 1, *arguments,
                            tokenizer=self.template(template), **options)

    def answers(self, document, tokenizer):
        """The texts of the runs of targets."""
        tokens, mask = document
        runs, run = [], []
        for token, flag in [*zip(tokens, mask, strict=True), (0, 0)]:
            if flag:
                run.append(token)
            elif run:
                runs.append(tokenizer.decode(run))
                run = []
        return runs

    def test_tagged_masks_equal_those_of_transformers(self):
        emoji = {"role": "assistant", "content": "crème brûlée 👨‍👩‍👧‍👦 水"}
        rows = [support.chat(i, turns=1 + i % 4) for i in range(60)] + [
            [{"role": "user", "content": text}, {"role": "assistant", "content": text + " "},
             {"role": "user", "content": ""}, emoji] for text in support.SCRIPTS.values()]
        unmarked = support.TAGGED.replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}<|im_end|>")
        for name, template in {"with end": support.TAGGED, "without end": unmarked}.items():
            with self.subTest(name):
                self.directory = os.path.join(self.shared, name)
                os.makedirs(self.directory)
                self.run_chats([{"messages": row} for row in rows], template=template, out=self.path("out"))
                loaded = self.transformers(self.path("tokenizer"))
                found = support.documents(self.path("out"))
                self.assertEqual(len(found), len(rows))
                for row, (tokens, mask) in zip(rows, found, strict=True):
                    wanted = loaded.apply_chat_template(row, return_dict=True, return_assistant_tokens_mask=True)
                    self.assertEqual((tokens, mask), (wanted["input_ids"], wanted["assistant_masks"]))
                self.assertEqual(sum(sum(mask) for _, mask in found),
                                 support.manifest_of(self.path("out"))["splits"]["train"]["targets"])

    def test_prefixes(self):
        rows = [support.chat(i, turns=1 + i % 3) for i in range(20)]
        rows.append([*support.chat(1), {"role": "user", "content": "Unanswered."}])
        self.run_chats([{"messages": row} for row in rows])
        loaded = self.transformers(self.path("tokenizer"))
        found = support.documents(self.out)
        self.assertEqual(len(found), len(rows))
        for row, document in zip(rows, found, strict=True):
            self.assertEqual(document[0], loaded.apply_chat_template(row)["input_ids"])
            self.assertEqual(self.answers(document, loaded),
                             [m["content"] + "<|im_end|>\n" for m in row if m["role"] == "assistant"])

    def test_a_character_of_several_tokens_is_wholly_a_target(self):
        template = support.CHATML.replace("<|im_end|>\n{% endfor %}", "{% endfor %}")
        self.run_chats([{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "👨‍👩‍👧‍👦"}]}],
                       template=template)
        loaded = self.transformers(self.path("tokenizer"))
        self.assertEqual(self.answers(support.documents(self.out)[0], loaded), ["👨‍👩‍👧‍👦"])

    def test_tools_and_reasoning_as_transformers_renders_them(self):
        as_text = {"messages": json.dumps(AGENT), "tools": json.dumps(TOOLS)}
        self.run_chats([{"messages": AGENT, "tools": TOOLS}, as_text],
                       template=support.THINKING)
        loaded = self.transformers(self.path("tokenizer"))
        found = support.documents(self.out)
        self.assertEqual(len(found), 2)  # the thinking of one turn stays: nothing is rewritten
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0][0], loaded.apply_chat_template(AGENT, tools=TOOLS)["input_ids"])
        answers = self.answers(found[0], loaded)
        self.assertEqual(len(answers), 3)
        self.assertTrue(answers[0].startswith("<think>\nI need the tool.\n</think>"))
        self.assertIn('"arguments": {"a": 2, "b": 3}', answers[0])
        self.assertEqual(answers[2], "<think>\nNow I know.\n</think>\n\nIt is 9.<|im_end|>\n")

    def test_rewritten_history_gives_a_sample_per_answer(self):
        rows = [support.chat(i, turns=2, thinking=True) for i in range(8)]
        output = self.run_chats([{"messages": row} for row in rows], template=support.THINKING)
        loaded = self.transformers(self.path("tokenizer"))
        found = support.documents(self.out)
        self.assertEqual(len(found), 16)
        at, once = 0, 0
        for row in rows:
            once += len(loaded.apply_chat_template(row)["input_ids"])
            for number, message in enumerate(row):
                if message["role"] == "assistant":
                    self.assertEqual(found[at][0], loaded.apply_chat_template(row[:number + 1])["input_ids"])
                    self.assertEqual(self.answers(found[at], loaded), [
                        f"<think>\n{message['reasoning_content']}\n</think>\n\n{message['content']}<|im_end|>\n"])
                    at += 1
        factor = sum(len(tokens) for tokens, _ in found) / once
        self.assertIn(f"{factor:.2f} times the tokens", output)

    def test_answers_of_one_turn_share_a_sample(self):
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "thinking": "?"},
                    *AGENT]
        self.run_chats([{"messages": messages}], "--max-factor", 3, template=support.THINKING)
        loaded = self.transformers(self.path("tokenizer"))
        self.assertEqual([len(self.answers(document, loaded)) for document in support.documents(self.out)], [1, 3])

    def test_factor_above_two_is_refused_unless_asked_for(self):
        rows = [{"messages": support.chat(i, turns=8, thinking=True)} for i in range(4)]
        error = self.refused_chats(r"with [3-9]\.\d\d times the tokens of the chats \(allowed: 2\)", rows,
                                   template=support.THINKING)
        self.assertFalse(os.path.exists(os.path.join(self.out, "manifest.json")))
        asked = error.hint.split()[3:5]
        self.assertEqual(asked[0], "--max-factor")
        self.run_chats(rows, *asked, template=support.THINKING)
        self.assertEqual(len(support.documents(self.out)), 32)

    def refused_chats(self, pattern, rows, *arguments, template=support.CHATML):
        return self.refused(pattern, self.chats(rows), "--messages-column", "messages", "--workers", 1, *arguments,
                            tokenizer=self.template(template))

    def test_unusable_template(self):
        self.refused_chats(r"chats.jsonl, line 1: the template renders message 4, an answer, in a way",
                           [{"messages": support.chat(1)}], template=support.UNUSABLE)

    def test_bad_chats(self):
        good = {"messages": support.chat(1)}
        user = {"role": "user", "content": "Hi"}
        for messages, pattern in [
                ([{"role": "human", "content": "x"}, *support.chat(1)],
                 "line 3: message 1 has the unknown role 'human'"),
                ([{"from": "user"}], "line 3: message 1 has no role"),
                ([user], "line 3: the chat has no answer"),
                ([], "line 3: the chat has no answer"),
                ("Hi", "line 3: the messages are a string that is not JSON"),
                (["Hi"], "line 3: the messages are not a list of objects"),
                (None, "line 3: no value for 'messages'"),
                ([user, {"role": "assistant", "content": "\ud800"}], "line 3: half a surrogate pair")]:
            with self.subTest(pattern):
                support.write(self.path("bad.jsonl"),
                              json.dumps(good) + "\n\n" + json.dumps({"messages": messages}) + "\n")
                self.refused("bad.jsonl, " + pattern, self.path("bad.jsonl"), "--messages-column", "messages",
                             "--workers", 1, out=self.path("bad"))

    def test_bad_templates(self):
        rows = [{"messages": support.chat(1)}]
        self.refused_chats("has no chat template", rows, template=None)
        broken = support.write(self.path("broken.jinja"), "{% if %}\n")
        self.refused_chats("broken.jinja is not a valid Jinja template: line 1", rows, "--template", broken)
        raising = support.write(self.path("raising.jinja"), "{{ raise_exception('no system role') }}")
        self.refused_chats("line 1: the chat template refuses this chat: no system role", rows, "--template", raising)
        nothing = support.write(self.path("nothing.jinja"), "{{ messages }}{% generation %}{% endgeneration %}")
        self.refused_chats("generation tags mark nothing", rows, "--template", nothing, "--max-factor", 2)
        text = support.write(self.path("chat.txt"), "Hi")
        self.refused("chat.txt is read as plain text", text, "--messages-column", "messages")
        self.refused("a template is for chats", text, "--template", raising)

    def test_template_file_arguments_and_date(self):
        file = support.write(self.path("own.jinja"),
                             "{{ strftime_now('%d %b %Y') }} {{ style }} {{ n + 1 }} {{ eos_token }} "
                             + support.CHATML)
        rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
        arguments = ["--template", file, "--template-arg", "style=plain", "--template-arg", "n=41", "--date",
                     "2026-01-31"]
        self.run_chats(rows, *arguments)
        loaded = self.transformers(self.path("tokenizer"))
        text = loaded.decode(support.documents(self.out)[0][0])
        self.assertTrue(text.startswith("31 Jan 2026 plain 42 <|endoftext|> "), text)
        self.run_chats(rows, *arguments[:-2])  # complete already; without --date its own date counts
        self.assertEqual(support.manifest_of(self.out)["options"]["date"], "2026-01-31")
        self.assertEqual(support.manifest_of(self.out)["options"]["template_arguments"], {"style": "plain", "n": 41})

    def test_other_roles(self):
        rows = [{"messages": [{"role": "judge", "content": "So."}, {"role": "assistant", "content": "Yes."}]}]
        self.run_chats(rows, "--role", "judge")
        self.assertEqual(len(support.documents(self.out)), 1)

    def test_parquet_without_nulls(self):
        import pyarrow
        import pyarrow.parquet

        rows = [AGENT, support.chat(1, turns=1)]
        pyarrow.parquet.write_table(pyarrow.table({"messages": rows, "tools": [json.dumps(TOOLS), None]}),
                                    self.path("a.parquet"))
        strict = "(message.tool_calls if message.tool_calls is defined else [])"
        tokenizer = self.template(support.THINKING.replace("message.tool_calls or []", strict))
        self.prepare(self.path("a.parquet"), "--messages-column", "messages", tokenizer=tokenizer)
        loaded = self.transformers(tokenizer)
        self.assertEqual(support.documents(self.out)[1][0], loaded.apply_chat_template(rows[1])["input_ids"])

    def test_weighted_chats(self):
        rows = [{"messages": support.chat(1), "reward": -1.5}, {"messages": support.chat(2), "reward": 0}]
        self.run_chats(rows, "--weight-column", "reward")
        (_, first), (_, second) = support.documents(self.out)
        self.assertEqual((set(first), set(second)), ({0.0, -1.5}, {0.0}))

    def test_show(self):
        rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}] * 3
        output = support.prepare(self.chats(rows), "--messages-column", "messages", "--show", 2, "--tokenizer",
                                 self.tokenizer)
        self.assertEqual(output.count("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>\n]"), 2)
        self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    unittest.main()
