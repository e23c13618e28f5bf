"""Needle documents: exact lengths, the number at its depth, the answer alone as a target."""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import prepare_support as support  # noqa: E402


class Needle(support.Case):
    def make(self, *arguments, out=None, **options):
        return self.prepare("needle", *arguments, out=out, **options)

    def test_lengths_depths_and_answers(self):
        bos = support.train_tokenizer(self.path("bos"), bos=True)
        for tokenizer in (self.tokenizer, bos):
            self.out = self.path("out-" + os.path.basename(tokenizer))
            self.make("--lengths", "300,1K", "--depths", "0,0.5,1", "--count", 4, tokenizer=tokenizer)
            loaded = self.transformers(tokenizer)
            found = support.documents(self.out)
            self.assertEqual([len(tokens) for tokens, _ in found], [300] * 12 + [1024] * 12)
            keys = set()
            for number, (tokens, mask) in enumerate(found):
                self.assertEqual(tokens[0] == 1, tokenizer == bos)
                text = loaded.decode(tokens)
                answer = loaded.decode([token for token, flag in zip(tokens, mask, strict=True) if flag])
                key = re.fullmatch(r" ?(\d{6})", answer).group(1)
                keys.add(key)
                self.assertEqual(text.count(key), 3)
                self.assertTrue(text.endswith(" The pass key is " + key), text[-60:])
                self.assertTrue(mask[-1] and sum(mask) == mask[-sum(mask):].count(1))
                at, depth = text.index("\nThe pass key is"), (0, 0.5, 1)[number // 4 % 3]
                head, tail = text.index("\n") + 1, text.index("\nWhat is")
                room = tail - head - len("\nThe pass key is 123456. Remember it: 123456 is the pass key.\n")
                self.assertAlmostEqual((at - head) / room, depth, delta=0.15 if 0 < depth < 1 else 0.01)
            self.assertEqual(len(keys), 24)

    def test_workers_seeds_and_fillers(self):
        arguments = ["--lengths", "200K,4K", "--depths", "0.3,0.7", "--count", 3]
        self.make(*arguments, "--workers", 1)
        self.make(*arguments, "--workers", 3, out=self.path("again"))
        self.assertEqual(support.contents(self.out), support.contents(self.path("again")))
        self.make("--lengths", "1K", "--seed", 1, out=self.path("one"))
        self.make("--lengths", "1K", "--seed", 2, out=self.path("two"))
        self.assertNotEqual(support.documents(self.path("one")), support.documents(self.path("two")))
        filler = support.write(self.path("filler.txt"), "Nothing but waves. ")
        self.make("--lengths", "1K", "--filler", filler, out=self.path("waves"))
        self.assertIn("Nothing but waves. Nothing",
                      self.transformers().decode(support.documents(self.path("waves"))[0][0]))
        self.assertEqual([entry["path"] for entry in support.manifest_of(self.path("waves"))["origin"]], [filler])

    def test_refusals(self):
        self.refused("of 20 tokens is too short", "needle", "--lengths", "20")
        self.refused("'2' is not a number from 0 to 1", "needle", "--lengths", "1K", "--depths", "2")
        self.refused("missing.txt", "needle", "--lengths", "1K", "--filler", self.path("missing.txt"))
        empty = support.write(self.path("empty.txt"), "")
        self.refused("filler text has no tokens", "needle", "--lengths", "1K", "--filler", empty)


if __name__ == "__main__":
    unittest.main()
