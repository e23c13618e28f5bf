"""Figures and tables of scripts/sparse-quality."""
import math


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def figures(loss, correct, mask, context, recall_tokens, asked):
    """Recall and loss of values over the documents before `recall_tokens`, the loss of text over those after.

    `loss` and `correct` have one entry per token; whether it belongs to the token or to the one before it shows where
    few tokens are targets.
    """
    known = [sum(1 for at, _ in asked if loss[at - shift] > 0) for shift in (0, 1)]
    shift = known.index(max(known))
    text = [at for at in range(recall_tokens, len(mask)) if mask[at] and at % context != 0]
    part = max(1, context // 8)
    by_distance = {}
    for at, distance in asked:
        by_distance.setdefault(1 << int(math.log2(distance)), []).append(correct[at - shift])
    all_losses = [loss[at - shift] for at, _ in asked] + [loss[at - shift] for at in text]
    return {"targets": len(all_losses), "loss": mean(all_losses),
            "recall": mean(correct[at - shift] for at, _ in asked), "asked": len(asked),
            "recall_loss": mean(loss[at - shift] for at, _ in asked),
            "recall_by_distance": {str(low): {"asked": len(hits), "recall": mean(hits)}
                                   for low, hits in sorted(by_distance.items())},
            "text_loss": mean(loss[at - shift] for at in text),
            "text_loss_by_eighth": [mean(loss[at - shift] for at in text if at % context // part == eighth)
                                    for eighth in range(8)]}


def short(tokens):
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def setting_text(setting, sizes):
    if setting["kind"] == "dense":
        return ["dense", "", "", ""]
    return [f"1/{setting['share']}", setting["scoring"], str(sizes["summaries"][setting["summary"]]),
            f"{setting['forced'][0]}, {setting['forced'][1]}"]


def same(a, b):
    return a["setting"] == b["setting"] and a["model"] == b["model"]


def groups(results, prefix):
    """Results of one kind as lists of those with the same model and setting."""
    found = []
    for name, result in results.items():
        if name.startswith(prefix):
            for group in found:
                if same(group[0], result):
                    group.append(result)
                    break
            else:
                found.append([result])
    return found


def order(group):
    setting = group[0]["setting"]
    if setting["kind"] == "dense":
        return (0,)
    return (1, setting["forced"] == [0, 0], setting["scoring"], setting["summary"], -setting["share"])


def main_table(results, sizes, model):
    evaluated = sorted((g for g in groups(results, "eval-") if g[0]["model"] == model), key=order)
    by_context = {r["context"]: r for g in evaluated for r in g if r["setting"]["kind"] == "dense"}
    cosines = groups(results, "cosine-")
    rows = []
    for group in evaluated:
        here = {r["context"]: r for r in group}
        row = setting_text(group[0]["setting"], sizes)
        for context in sizes["contexts"]:
            r, full = here.get(context), by_context.get(context)
            share = f" ({100 * r['recall'] / full['recall']:.0f}%)" if r and full and full["recall"] and r != full else ""
            row.append(f"{100 * r['recall']:.1f}%{share}" if r else "")
        row += [f"{here[context]['text_loss']:.4f}" if context in here else "" for context in sizes["contexts"]]
        for part in ("recall", "text"):
            match = [c for g in cosines for c in g if same(c, group[0]) and c["part"] == part]
            row.append(f"{match[0]['dense']['groups']['all']['cosine']:.4f}" if match else "")
        rows.append(row)
    names = [short(context) for context in sizes["contexts"]]
    head = ["budget", "scoring", "keys per mean", "sinks, recent", *(f"recall {n}" for n in names),
            *(f"text loss {n}" for n in names), f"gradient cosine {names[0]}, recall", "text"]
    return table(head, rows)


def detail_tables(results, sizes, model):
    """By distance and by position, at the longest context, with the default scoring and forced pages."""
    longest = sizes["contexts"][-1]
    chosen = sorted((g for g in ([r for r in g if r["context"] == longest] for g in groups(results, "eval-"))
                     if g and g[0]["model"] == model
                     and (g[0]["setting"]["kind"] == "dense"
                          or (g[0]["setting"]["scoring"] == "mass" and g[0]["setting"]["forced"] != [0, 0]))), key=order)
    if not chosen:
        return ""
    bins = sorted(chosen[0][0]["recall_by_distance"], key=int)
    head = ["budget", "scoring", "keys per mean", "sinks, recent"]
    far = [setting_text(g[0]["setting"], sizes)
           + [f"{100 * g[0]['recall_by_distance'][b]['recall']:.1f}%" for b in bins] for g in chosen]
    eighths = [setting_text(g[0]["setting"], sizes)
               + [f"{x:.4f}" if x is not None else "" for x in g[0]["text_loss_by_eighth"]] for g in chosen]
    return (f"\nRecall at {short(longest)} by distance in tokens (each column up to twice its number):\n\n"
            + table(head + [short(int(b)) for b in bins], far)
            + f"\nLoss of text at {short(longest)} by position, in eighths of the context:\n\n"
            + table(head + [str(i + 1) for i in range(8)], eighths))


def training_table(results):
    rows = []
    for name, result in results.items():
        if name.startswith("train-"):
            training = result["settings"]["training"]
            rows.append([name[6:], os_name(result["settings"]["model"]["path"]), str(result["steps"]),
                         short(training["context"]), f"{result['seconds']:.0f}", f"{result['tokens_per_s']:.0f}",
                         f"{result['loss']:.3f}"])
    return table(["run", "from", "steps", "tokens a step", "seconds", "tokens/s", "loss of the last steps"], rows)


def os_name(path):
    return path.rstrip("/").rsplit("/", 1)[-1]


def markdown(results, sizes):
    models = []
    for group in groups(results, "eval-"):
        if group[0]["setting"]["kind"] == "sparse" and group[0]["model"] not in models:
            models.append(group[0]["model"])
    text = "Training:\n\n" + training_table(results)
    for model in sorted(models, key=lambda name: name.startswith("tuned-")):
        asked = [r["asked"] for g in groups(results, "eval-") for r in g
                 if r["model"] == model and r["context"] in sizes["contexts"]]
        text += (f"\nModel {model}: recall (and as a share of dense) of {min(asked)} to {max(asked)} facts, loss of text, "
                 f"chunks of {sizes['chunk']}, pages of {sizes['page']}:\n\n")
        text += main_table(results, sizes, model) + detail_tables(results, sizes, model)
    if results:
        example = next((r for n, r in results.items() if n.startswith("eval-") and r["setting"]["kind"] == "sparse"), None)
        if example:
            text += f"\nEvery figure's command is in quality.json; the first of them:\n\n    {example['command']}\n"
    return text


def what_is_left(names, sizes, shares):
    """A line from the names of the results."""
    trained = sorted(name[6:-5] for name in names if name.startswith("train-"))
    settings = 1 + 2 * 2 * len(sizes["summaries"]) * shares
    tuned = 1 + len(sizes["summaries"]) * shares
    needed = len(sizes["contexts"]) * (settings + 2 * tuned) + 2 * len(sizes["summaries"]) * shares
    ends = tuple(f"-{context}-" for context in sizes["contexts"])
    last = sizes["stages"][-1]["name"]
    done = sum(1 for name in names if name.endswith(".json") and (
        name.startswith("cosine-") or (name.startswith("eval-tuned-")) or
        (name.startswith(f"eval-{last}.") and any(end in name for end in ends))))
    return (f"trained so far: {', '.join(trained) or 'nothing'} (of {', '.join(s['name'] for s in sizes['stages'])}, "
            f"tuned-sparse, tuned-dense); {done} of about {needed} evaluations")
