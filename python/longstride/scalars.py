"""The numbers of a metrics line under the names that TensorBoard and W&B group by: train/loss, memory/host/pages."""
from longstride.annotations import Record
from longstride.report.sizes import is_number
from longstride.report.tiers import tiers_of

GIB = 1 << 30
NAMES = {
    "loss": "train/loss", "accuracy": "train/accuracy", "gradient_norm": "train/gradient_norm",
    "learning_rate": "train/learning_rate", "epoch": "train/epoch", "tokens": "train/tokens",
    "targets": "train/targets", "tokens_per_s": "speed/tokens_per_s", "tflops": "speed/tflops",
    "mfu": "speed/mfu", "seconds": "time/step",
    "hidden_share": "transfers/hidden_share", "union_pages_mean": "sparse/union_pages_mean",
    "union_pages_most": "sparse/union_pages_most", "selected_page_reuse": "sparse/selected_page_reuse",
}
GIB_NAMES = {"bytes_moved_in": "transfers/in_gib", "bytes_moved_out": "transfers/out_gib",
             "peak_rss": "memory/resident_gib", "bytes": "memory/device_gib", "bytes_limit": "memory/device_limit_gib"}


def scalars_of(line: Record) -> dict[str, float]:
    """{name: number} of a line of a step or an evaluation; empty for other kinds. Unknown values are left out."""
    kind = line.get("kind")
    found = _of_step(line) if kind is None else _of_evaluation(line) if kind == "eval" else {}
    return {name: float(value) for name, value in found.items() if is_number(value)}


def _of_step(line: Record) -> Record:
    found = {name: line.get(key) for key, name in NAMES.items()}
    found |= {name: line[key] / GIB for key, name in GIB_NAMES.items() if is_number(line.get(key))}
    for key, value in line.items():
        if key.startswith("seconds_") and key != "seconds_left":
            found["time/" + key.removeprefix("seconds_")] = value
    memory = {key: value for key, value in line.items()
              if key.startswith("bytes_") and not key.startswith("bytes_moved") and is_number(value)}
    for tier, tenants in tiers_of(memory).items():
        for tenant, size in tenants.items():
            if size:
                found[f"memory/{tier}/{tenant.replace(' ', '_')}_gib"] = size / GIB
    if line.get("skipped") is True:
        found["train/skipped"] = 1
    return found


def _of_evaluation(line: Record) -> Record:
    found = {"eval/loss": line.get("loss"), "eval/accuracy": line.get("accuracy"), "eval/seconds": line.get("seconds")}
    bins = line.get("by_position")
    for one in bins if isinstance(bins, list) else []:
        if isinstance(one, dict) and isinstance(one.get("from"), int):
            # Digits to a fixed width, so that names in alphabetical order are in the order of positions.
            found[f"eval_loss_by_position/from_{one['from']:010}"] = one.get("loss")
            found[f"eval_accuracy_by_position/from_{one['from']:010}"] = one.get("accuracy")
    return found
