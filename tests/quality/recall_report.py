"""Figures and tables of scripts/sparse-quality."""
import math


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def recall_figures(outcome, loss, asked):
    """Of documents with facts, from what the program printed and the losses (each at the token before its target).

    Only the number of right answers is known, not which ones; those that got a probability over one half are right for
    certain, and are what recall by distance counts.
    """
    by_distance = {}
    for at, distance in asked:
        by_distance.setdefault(1 << int(math.log2(distance)), []).append(loss[at - 1] < math.log(2))
    return {"recall": outcome["correct"] / outcome["targets"], "targets_read": len(asked),
            "loss_read": mean(loss[at - 1] for at, _ in asked),
            "sure": mean(loss[at - 1] < math.log(2) for at, _ in asked),
            "sure_by_distance": {str(low): {"asked": len(hits), "sure": mean(hits)}
                                 for low, hits in sorted(by_distance.items())}}


def text_figures(loss, context):
    """Of documents of text, each `context` tokens long; the last token of each has no target."""
    at_all = [at for at in range(len(loss)) if (at + 1) % context != 0]
    part = max(1, context // 8)
    return {"targets_read": len(at_all), "loss_read": mean(loss[at] for at in at_all),
            "loss_by_eighth": [mean(loss[at] for at in at_all if (at + 1) % context // part == eighth)
                               for eighth in range(8)]}


def short(tokens):
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def setting_text(setting, sizes):
    if setting["kind"] == "dense":
        return ["dense", "", "", ""]
    summary = " of ".join(map(str, sizes["summaries"][setting["summary"]]))
    return [f"1/{setting['share']}", setting["scoring"], summary, f"{setting['forced'][0]}, {setting['forced'][1]}"]


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


def by_context(group):
    return {r["context"]: r for r in group}


def of_model(results, part, model):
    """Results of a part, by setting: lists over contexts, in the order of tables."""
    return sorted((g for g in groups(results, part + "-") if g[0]["model"] == model), key=order)


def recall_columns(results, sizes, model, kind, group):
    """Recall with the group's setting, and in brackets its share of that with dense attention."""
    found = of_model(results, kind, model)
    full = next((by_context(g) for g in found if g[0]["setting"]["kind"] == "dense"), {})
    here = next((by_context(g) for g in found if same(g[0], group[0])), {})
    columns = []
    for context in sizes["contexts"]:
        r = here.get(context)
        share = (f" ({100 * r['recall'] / full[context]['recall']:.1f}%)"
                 if r and context in full and full[context]["recall"] and r["setting"]["kind"] == "sparse" else "")
        columns.append(f"{100 * r['recall']:.1f}%{share}" if r else "")
    return columns


def main_table(results, sizes, model):
    texts, cosines = groups(results, "text-"), groups(results, "cosine-")
    rows = []
    for group in of_model(results, "facts", model):
        text = next((by_context(g) for g in texts if same(g[0], group[0])), {})
        row = setting_text(group[0]["setting"], sizes) + recall_columns(results, sizes, model, "facts", group)
        row += [f"{text[context]['loss']:.4f}" if context in text else "" for context in sizes["contexts"]]
        for part in ("facts", "text"):
            match = [c for g in cosines for c in g if same(c, group[0]) and c["part"] == part]
            row.append(f"{match[0]['dense']['groups']['all']['cosine']:.4f}" if match else "")
        rows.append(row)
    names = [short(context) for context in sizes["contexts"]]
    head = ["budget", "scoring", "summary", "sinks, recent", *(f"facts {n}" for n in names),
            *(f"text loss {n}" for n in names), f"gradient cosine {names[0]}, facts", "text"]
    return table(head, rows)


def other_table(results, sizes, model):
    """Recall of the other kinds."""
    kinds = [kind for kind in ("quotes",) if of_model(results, kind, model)]
    if not kinds:
        return ""
    rows = [setting_text(group[0]["setting"], sizes) +
            [column for kind in kinds for column in recall_columns(results, sizes, model, kind, group)]
            for group in of_model(results, kinds[0], model)]
    return "\n" + table(["budget", "scoring", "summary", "sinks, recent"] +
                        [f"{kind} {short(context)}" for kind in kinds for context in sizes["contexts"]], rows)


def detail_table(results, sizes, model, kind, columns):
    """At the longest context, with the default scoring and forced pages; `columns` gives (name, figure) of a result."""
    chosen = [[r for r in group if r["context"] == sizes["contexts"][-1]] for group in groups(results, kind)
              if group[0]["model"] == model and group[0]["setting"].get("scoring", "focus") == "focus"
              and group[0]["setting"].get("forced") != [0, 0]]
    chosen = sorted((group for group in chosen if group), key=order)
    if not chosen:
        return ""
    head = ["budget", "scoring", "summary", "sinks, recent"] + [name for name, _ in columns(chosen[0][0])]
    return table(head, [setting_text(g[0]["setting"], sizes) + [figure for _, figure in columns(g[0])] for g in chosen])


def detail_tables(results, sizes, model):
    longest = short(sizes["contexts"][-1])
    far = detail_table(results, sizes, model, "facts-", lambda r: [
        (short(int(low)), f"{100 * bin['sure']:.1f}%") for low, bin in r["sure_by_distance"].items()])
    place = detail_table(results, sizes, model, "text-", lambda r: [
        (str(i + 1), f"{x:.4f}" if x is not None else "") for i, x in enumerate(r["loss_by_eighth"])])
    text = ""
    if far:
        text += (f"\nRecall of facts at {longest} by distance in tokens, each column up to twice its number (answers with a "
                 f"probability over one half):\n\n{far}")
    if place:
        text += f"\nLoss of text at {longest} by position, in eighths of the context:\n\n{place}"
    return text


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
    evaluated = [g for g in groups(results, "facts-") if g[0]["setting"]["kind"] == "sparse"]
    models = sorted({g[0]["model"] for g in evaluated}, key=lambda name: (name.startswith("tuned-"), name))
    text = "Training:\n\n" + training_table(results)
    for model in models:
        counts = {r["context"]: r["targets"] for g in evaluated for r in g if r["model"] == model}
        asked = ", ".join(f"{counts[c]} at {short(c)}" for c in sizes["contexts"] if c in counts)
        text += (f"\nModel {model}: recall (in brackets: as a share of dense) of facts ({asked}), loss of text; chunks "
                 f"of {sizes['chunk']}, pages of {sizes['page']}:\n\n")
        text += main_table(results, sizes, model) + other_table(results, sizes, model)
        text += detail_tables(results, sizes, model)
    if evaluated:
        text += f"\nEvery figure's command is in quality.json, like this one:\n\n    {evaluated[0][0]['command']}\n"
    return text


def what_is_left(names, sizes, needed):
    """A line from the names of the results; `needed` are the numbers of evaluations."""
    trained = sorted(name[6:-5] for name in names if name.startswith("train-"))
    last = sizes["stages"][-1]["name"]
    ends = tuple(f"-{context}-" for context in sizes["contexts"])
    parts = ("facts", "quotes", "text")
    begins = tuple(f"{part}-{model}" for part in parts for model in (f"{last}.", "tuned-"))
    done = sum(1 for name in names if name.endswith(".json") and (
        name.startswith("cosine-") or (name.startswith(begins) and any(end in name for end in ends))))
    return (f"trained so far: {', '.join(trained) or 'nothing'} (of {', '.join(s['name'] for s in sizes['stages'])}, "
            f"tuned-sparse, tuned-dense); {done} of about {needed} evaluations")
