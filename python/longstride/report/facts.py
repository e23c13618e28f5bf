"""What stands at the top of a report: a few large numbers, and what was trained on what."""
import os
from datetime import datetime, timezone

from longstride.report.sizes import bytes_text, count_text, digits, duration_text, is_number, tokens_text
from longstride.report.thin import mean
from longstride.report.tiers import tiers_of


def last_mean(values, most=20):
    """The mean of the last values, which says more than a single step."""
    return mean(values[-most:])


def median(values):
    known = sorted(x for x in values if x == x)
    return known[len(known) // 2] if known else float("nan")


def status(run):
    """("finished" or how far the run is, whether it is finished)."""
    metrics = run.metrics
    done = metrics.steps[-1] if metrics.steps else 0
    total = metrics.last.get("total_steps")
    if not isinstance(total, int):
        return f"{done:,} steps", False
    return (f"finished, {done:,} steps", True) if done >= total else (f"step {done:,} of {total:,}", False)


def tiles(run):
    """(label, number, detail) of the large numbers."""
    metrics = run.metrics
    result = []
    if metrics.has("loss"):
        known = [x for x in metrics.column("loss")[-20:] if x == x]
        steps = min(20, len(metrics))
        result.append(("Loss", digits(last_mean(known), 4) if known else "–",
                       f"mean of the last {steps} steps" if steps > 1 else "one step"))
    evals = [line for line in metrics.evals if is_number(line.get("loss"))]
    if evals:
        best = min(evals, key=lambda line: line["loss"])
        detail = f"after step {evals[-1]['step']:,}"
        if best is not evals[-1]:
            detail += f"; best {digits(best['loss'], 4)} after {best['step']:,}"
        result.append(("Evaluation loss", digits(evals[-1]["loss"], 4), detail))
    if metrics.has("tokens_per_s"):
        mfu = median(metrics.column("mfu"))
        tflops = median(metrics.column("tflops"))
        detail = f"{digits(tflops)} TFLOP/s" if tflops == tflops else "median"
        result.append(("Tokens per second", digits(median(metrics.column("tokens_per_s"))),
                       detail + (f", {100 * mfu:.0f}% of the peak" if mfu == mfu else "")))
    if metrics.has("seconds"):
        result.append(("Time of a step", duration_text(median(metrics.column("seconds"))), "median"))
    if metrics.memory:
        tiers = tiers_of(metrics.memory[-1][1])
        limit = metrics.memory[-1][1].get("bytes_limit", 0)
        result.append(("Device memory", bytes_text(sum(tiers["device"].values())),
                       f"reserved, of {bytes_text(limit)}" if limit else "reserved"))
    if metrics.has("seconds"):
        result.append(("Training time", duration_text(sum(x for x in metrics.column("seconds") if x == x)),
                       f"{count_text(sum(x for x in metrics.column('tokens') if x == x))} tokens"))
    return result


def facts(run):
    """(label, text) of everything else; what is unknown is left out."""
    found = [("Model", model_text(run)), ("Parameters", parameters_text(run)), ("Context", context_text(run)),
             ("Chunk", chunk_text(run)), ("Attention", attention_text(run)), ("Plan", plan_text(run)),
             ("Device", device_text(run)), ("Data", data_text(run)), ("Optimizer", optimizer_text(run)),
             ("Time", time_text(run))]
    return [(label, text) for label, text in found if text]


def model_text(run):
    name, shape = run.setting("model", "preset") or base_name(str(run.setting("model", "path") or "")), run.model
    parts = [str(name)] if name else []
    if shape.get("model_type"):
        parts.append(str(shape["model_type"]))
    if shape.get("num_hidden_layers"):
        parts.append(f"{shape['num_hidden_layers']} layers")
    if shape.get("hidden_size"):
        parts.append(f"hidden size {shape['hidden_size']}")
    if run.setting("model", "quantize"):
        parts.append(f"quantized to {run.setting('model', 'quantize')}")
    return ", ".join(parts)


def base_name(path):
    """The last part of a path; of a checkpoint also the run that it belongs to."""
    parts = path.rstrip("/").split("/")
    return "/".join(parts[-2:] if parts[-1].startswith("step-") else parts[-1:])


def parameters_text(run):
    trained = run.metrics.last.get("trainable_parameters")
    total = run.parameters()
    rank = run.setting("lora", "rank")
    if not isinstance(trained, int):
        return count_text(total) if total else ""
    how = f" (adapters of rank {rank})" if rank else ""
    if total is None or total == trained:
        return f"{count_text(trained)}, {'all ' if total else ''}trained{how}"
    return f"{count_text(trained)} trained of {count_text(total)}{how}"


def context_text(run):
    context, batch = run.setting("training", "context"), run.setting("training", "batch")
    if not isinstance(context, int):
        return ""
    return f"{tokens_text(context)} tokens" + (f", {batch} sequences a step" if batch and batch != 1 else "")


def chunk_text(run):
    chunk = run.numerics("chunk_tokens") or run.setting("training", "chunk")
    page = run.numerics("page_tokens") or run.setting("training", "page")
    if not isinstance(chunk, int):
        return ""
    return f"{tokens_text(chunk)} tokens" + (f", pages of {tokens_text(page)}" if isinstance(page, int) else "")


def attention_text(run):
    layers, kind = run.setting("attention", "layers"), run.setting("attention", "kind")
    if layers:
        return ", ".join(map(str, layers)) if isinstance(layers, list) else str(layers)
    if kind == "sparse":
        return f"sparse, {run.setting('attention', 'budget')} pages for a page of queries"
    return ""  # the model's own


def plan_text(run):
    """Where things are kept: what is off the device, by tier, and how the backward pass gets its activations."""
    parts = []
    if run.metrics.memory:
        for tier, tenants in tiers_of(run.metrics.memory[-1][1]).items():
            if tier == "device" or not sum(tenants.values()):
                continue
            names = [f"{name} {bytes_text(size)}" for name, size in tenants.items() if size]
            parts.append(f"{'on disk' if tier == 'disk' else 'in host memory'}: {', '.join(names)}")
        parts = parts or ["everything on the device"]
    kept, activations = run.setting("training", "keep_chunks"), run.setting("memory", "activations")
    if isinstance(kept, int):
        parts.append(f"the last {'chunk keeps' if kept == 1 else f'{kept} chunks keep'} all activations")
    if activations == "recompute":
        parts.append("the others are recomputed")
    elif activations:
        parts.append("the others what fits")
    return "; ".join(parts)


def device_text(run):
    parts = [run.numerics("device"), run.numerics("compute"), run.numerics("determinism")]
    return ", ".join(str(part) for part in parts if part)


def data_text(run):
    names = [os.path.basename(path.rstrip("/")) for path in run.data_paths("data")]
    text = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    epoch = run.metrics.last.get("epoch")
    if is_number(epoch):
        text += f"{': ' if text else ''}{digits(epoch)} epochs"
    return text


def optimizer_text(run):
    rate = run.setting("optimizer", "learning_rate")
    if not is_number(rate):
        return ""
    parts = [f"AdamW, learning rate {rate:g}"]
    kind, warmup = run.setting("schedule", "kind"), run.setting("schedule", "warmup_steps")
    if kind:
        parts.append(f"{kind}" + (f" after {warmup} steps of warm-up" if warmup else ""))
    if run.setting("optimizer", "state") == "8bit":
        parts.append("moments in 8 bits")
    return ", ".join(parts)


def time_text(run):
    times = [time for time in run.metrics.times if time == time]
    if not times:
        return ""
    first = run.metrics.columns["seconds"][0]
    begin, end = times[0] - (first if 0 < first < 1e9 else 0), times[-1]

    def form(seconds, day=True):
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%-d %b %Y, %H:%M" if day else "%H:%M")

    same_day = datetime.fromtimestamp(begin, timezone.utc).date() == datetime.fromtimestamp(end, timezone.utc).date()
    text = form(begin) + (f" to {form(end, not same_day)} UTC" if form(end) != form(begin) else " UTC")
    resumed = len(run.metrics.resumes())
    if resumed:
        text += ", resumed once" if resumed == 1 else f", resumed {resumed} times"
    left = run.metrics.last.get("seconds_left")
    if is_number(left) and left > 0 and not status(run)[1]:
        text += f", about {duration_text(left)} left"
    return text
