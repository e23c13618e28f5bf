#!/usr/bin/env python3
"""Reinforcement learning in a loop of one's own, on a CPU: a tiny model learns by reward alone to recall from far back.

    python3 examples/policy_gradient.py          # half a minute on two idle cores

A document states 16 facts, then has hundreds of tokens of noise, then asks for the facts:

    fact(key, value) ... noise noise noise ... question(key) question(key) ...

The answer to a question is one token. First the model sees short documents with their answers, until it knows half of
them. In long documents it is then hardly better than a guess. From there on nobody tells it an answer: it draws
answers, a right one has the reward 1, any other 0, and the objective of PPO with advantages within a group does the
rest. The same seed gives the same numbers, with any number of threads. Exits with 1 if the reward stays below --goal.
Needs longstride and numpy.
"""
import argparse
import sys
import time

import numpy

import longstride

KEYS, VALUES = 16, 8
REPEATS = 4             # a document asks for every key so often: the group whose mean reward is the baseline
SHORT, CONTEXT = 64, 4096
PASSES = 2              # over the same answers; from the second on the policy is no longer the one that drew them
CLIP = (0.2, 0.28)
# Token ids: facts, questions, answers, noise.
QUESTION = KEYS * VALUES
ANSWER = QUESTION + KEYS
NOISE = ANSWER + VALUES


def documents(random, length, repeats):
    """A context full of documents: tokens, where they begin, and the right value at each question, -1 elsewhere."""
    vocabulary = 320  # of the preset
    tokens, right = [], []
    for _ in range(CONTEXT // length):
        values, order = random.integers(VALUES, size=KEYS), random.permutation(KEYS)
        asked = numpy.tile(random.permutation(KEYS), repeats)
        noise = random.integers(NOISE, vocabulary, length - KEYS - asked.size)
        tokens += [order * VALUES + values[order], noise, QUESTION + asked]
        right += [numpy.full(length - asked.size, -1), values[asked]]
    return numpy.concatenate(tokens), numpy.arange(0, CONTEXT, length), numpy.concatenate(right)


def learn_form(engine, random, most=200):
    """Supervised steps on short documents, until half of the probability is on right answers."""
    for step in range(1, most + 1):
        tokens, begins, right = documents(random, SHORT, repeats=1)
        targets = numpy.where(right >= 0, ANSWER + right, -1)
        result = engine.backward(tokens, targets=targets, documents=begins)
        engine.update(lr=2e-3)
        engine.zero_grad()
        if numpy.exp(result.logprobs[right >= 0]).mean() > 0.5:
            return step
    sys.exit(f"not even short documents were learnt in {most} steps")


def draw(engine, random, tokens, begins, asked):
    """An answer to every question, the log-probabilities of them all, and how much of the policy the choices have.

    The engine scores given targets, so each of the few possible answers is scored once."""
    choices = numpy.stack([
        engine.score(tokens, targets=numpy.where(asked, ANSWER + value, -1), documents=begins).logprobs[asked]
        for value in range(VALUES)])
    steps = numpy.exp(choices).cumsum(axis=0)
    drawn = (steps < random.random(steps.shape[1]) * steps[-1]).sum(axis=0)
    return drawn, choices[drawn, numpy.arange(drawn.size)], steps[-1]


def spread(values, asked):
    """One entry per token, for the engine: the values at the questions, 0 elsewhere."""
    out = numpy.zeros(asked.size, dtype=numpy.float32)
    out[asked] = values
    return out


def iteration(engine, random, length, lr):
    """Draws answers, and learns from their rewards. Returns the mean reward and the share of clipped answers."""
    tokens, begins, right = documents(random, length, REPEATS)
    asked = right >= 0
    drawn, logprobs, mass = draw(engine, random, tokens, begins, asked)
    rewards = (drawn == right[asked]).astype(float)
    # The baseline: the mean of the answers to the same question. Tokens that are no answer were never drawn; they
    # would have earned nothing, so they lower it by their share.
    groups = rewards.reshape(-1, REPEATS, KEYS)
    baseline = groups.mean(axis=1, keepdims=True) * mass.reshape(groups.shape)
    advantages = (groups - baseline).ravel()

    targets = numpy.full(tokens.size, -1)
    targets[asked] = ANSWER + drawn
    for _ in range(PASSES):
        result = engine.backward(tokens, targets=targets, documents=begins, weights=spread(advantages, asked),
                                 divisor=drawn.size, old_logprobs=spread(logprobs, asked), clip=CLIP)
        engine.update(lr=lr)
        engine.zero_grad()
    ratios = numpy.exp(result.logprobs[asked] - logprobs)
    clipped = numpy.where(advantages > 0, ratios > 1 + CLIP[1], ratios < 1 - CLIP[0])
    return rewards.mean(), clipped.mean()


def main():
    parser = argparse.ArgumentParser(description="raises a reward by policy gradients, on a CPU")
    parser.add_argument("--length", type=int, default=512, help="tokens of a document (default: 512)")
    parser.add_argument("--iterations", type=int, default=40, help="(default: 40)")
    parser.add_argument("--goal", type=float, default=0.8, help="reward to reach, a guess has 0.125 (default: 0.8)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of the rewarded part (default: 0.001)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    options = parser.parse_args()
    least = KEYS * (1 + REPEATS)
    if not least <= options.length <= CONTEXT or CONTEXT % options.length:
        parser.error(f"--length must divide {CONTEXT} and be at least {least}")
    if options.iterations < 1:
        parser.error("--iterations must be at least 1")

    began = time.monotonic()
    random = numpy.random.default_rng(options.seed)
    engine = longstride.Engine(preset="tiny-qwen3", context=CONTEXT, chunk=512, page=64, device="cpu",
                               threads=options.threads, seed=options.seed, optimizer={"weight_decay": 0.0})
    steps = learn_form(engine, random)
    print(f"{engine.parameters} parameters; {steps} supervised steps on documents of {SHORT} tokens, "
          f"{time.monotonic() - began:.0f} s; now rewards alone, {options.length} tokens", flush=True)
    rewards = []
    for number in range(1, options.iterations + 1):
        reward, clipped = iteration(engine, random, options.length, options.lr)
        rewards.append(reward)
        if number == 1 or number % 5 == 0:
            print(f"iteration {number:3}  reward {reward:.3f}  clipped {clipped:.3f}  "
                  f"{time.monotonic() - began:5.1f} s", flush=True)
    reached = numpy.mean(rewards[-3:])
    print(f"reward {rewards[0]:.3f} at first, {reached:.3f} in the last iterations; the goal is {options.goal:g}")
    if reached < options.goal:
        sys.exit("the reward did not reach the goal: give it more --iterations, or shorter documents (--length)")


if __name__ == "__main__":
    try:
        main()
    except longstride.Error as error:
        sys.exit(f"error: {error.message}\n  hint: {error.hint}")
