#!/usr/bin/env python3
"""compare_table.py DIR FILE: the table of bench/compare_cpu from the JSON of its rounds; writes FILE as well."""
import json
import sys
from pathlib import Path


def best(runs):
    """The fastest round's speed and the leanest round's memory."""
    fastest = max(runs, key=lambda r: r["tokens_per_s"])
    return {"tokens_per_s": fastest["tokens_per_s"], "seconds": fastest["seconds"], "loss": fastest["loss"],
            "step_bytes": min(r["step_bytes"] for r in runs), "rounds": runs}


def main():
    directory, out = Path(sys.argv[1]), Path(sys.argv[2])
    ours = [json.loads(f.read_text()) for f in sorted(directory.glob("longstride-*.json"))]
    torch = [json.loads(f.read_text()) for f in sorted(directory.glob("torch-*.json"))]
    ours = best([{"tokens_per_s": r["tokens_per_s"], "seconds": r["seconds"]["total"], "loss": r.get("loss"),
                  "step_bytes": r["memory"]["step_bytes"], "peak_rss": r["memory"]["peak_rss"],
                  "baseline_rss": r["memory"]["baseline_rss"]} for r in ours])
    setup = {k: torch[0][k] for k in ("context", "threads", "model", "compile", "torch", "parameters")}
    busy = max(r["busy_elsewhere"] for r in torch)
    torch = best(torch)
    ratios = {"tokens_per_s": ours["tokens_per_s"] / torch["tokens_per_s"],
              "step_bytes": ours["step_bytes"] / torch["step_bytes"]}
    out.write_text(json.dumps({"setup": setup, "longstride": ours, "torch": torch, "longstride_over_torch": ratios,
                               "busy_elsewhere": busy}, indent=2) + "\n")

    print(f"One training step, fp32, {setup['context']} tokens, {setup['threads']} threads (best of {len(ours['rounds'])})")
    print(f"{'':28s}{'longstride':>12s}{'PyTorch ' + setup['torch'].split('+')[0]:>16s}{'ratio':>8s}")
    print(f"{'tokens/s':28s}{ours['tokens_per_s']:12.1f}{torch['tokens_per_s']:16.1f}{ratios['tokens_per_s']:8.2f}")
    print(f"{'seconds':28s}{ours['seconds']:12.1f}{torch['seconds']:16.1f}{ours['seconds'] / torch['seconds']:8.2f}")
    print(f"{'step memory, MiB':28s}{ours['step_bytes'] / 2**20:12.0f}{torch['step_bytes'] / 2**20:16.0f}"
          f"{ratios['step_bytes']:8.2f}")
    print("Step memory: peak resident memory beyond weights and gradients.")
    if busy > 0.05:
        print(f"Other programs used up to {busy:.0%} of the processors meanwhile: take the speeds with care.")
    print(f"Written to {out}")


if __name__ == "__main__":
    main()
