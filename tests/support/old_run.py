"""A run folder as version 1 of its files was first written, spelled out so that no code of ours makes it."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

CONFIG = """{
  "data": "bdfdcafc01b037d6",
  "config": {
    "method": "reweigh", "options": {}, "steps": 60, "seed": 0,
    "batch": {"size": 2, "clean_size": 2, "balanced": false, "clean_balanced": false,
              "augmentation": null, "augment_clean": true,
              "scaling": {"mean": [0.0], "std": [1.0]}, "peak": 1, "rank": 0, "world": 1},
    "optimizer": {"name": "sgd", "learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.0,
                  "nesterov": false},
    "drops": [[48, 0.1]], "early_stop": null, "fine_tune": {"steps": 500, "learning_rate": null},
    "pretrain_steps": null, "evaluate_every": 3, "checkpoint_every": 12, "keep": 2, "probe": 1000,
    "accumulate": 1, "clip": 10.0, "precision": "no", "device": "auto", "trackers": [],
    "threads": 1
  }
}
"""
OPTIONS = """{
 "version": 1, "data": "DATA", "clean": "DATA", "target": "label", "test": null, "text": null,
 "encoder": null, "clean_where": null, "also_clean": [], "leave_out": [], "task": "auto",
 "ignore": [], "encoding": "utf-8", "image_size": null, "only_clean_classes": false,
 "compare": false, "holdout": 0.3, "steps": 60, "batch": null, "learning_rate": null,
 "hidden": null, "seed": 0, "threads": 1
}
"""
SOURCE = """{
 "version": 1, "kind": "table", "task": "classes", "target": "label", "classes": ["high", "low"],
 "rows": 4, "data": "DATA", "clean": "DATA", "clean_where": null, "text_column": null,
 "columns": ["x", "label"], "encoding": "utf-8", "delimiter": ","
}
"""
NETWORK = """{
 "version": 1,
 "network": {"kind": "mlp", "shape": [1], "outputs": 2, "hidden": [1, 1], "regression": false},
 "mean": [0.0], "std": [1.0], "peak": 1, "centre": 0.0, "scale": 1.0
}
"""
PREPROCESS = """{
 "version": 1,
 "kind": "table",
 "state": {
  "columns": [{"kind": "number", "name": "x", "centre": 0.0, "scale": 1.0, "gaps": false}],
  "unused": [{"name": "id", "why": "has another value in every row"}]
 }
}
"""
SUMMARY = """{
 "version": 1, "metric": "accuracy", "judged_on": "holdout", "judged_rows": 1, "figure": 1.0,
 "interval": 0.4,
 "comparison": [{"method": "uniform", "name": "plain", "figure": 0.5, "gain": 0.5, "interval": null}],
 "train_rows": 4, "clean_rows": 3, "suggestions": 1,
 "confusion": [{"given": "low", "suggested": "high", "count": 1}],
 "class_weights": {"high": 1.5, "low": null},
 "warnings": [{"what": "There are few rows.", "do": "Check more of them."}],
 "curves": {"reweigh": [{"phase": "main", "step": 0, "learning_rate": 0.02, "test_accuracy": 0.5},
                        {"phase": "main", "step": 3, "test_accuracy": 1.0, "zero_share": 0.25}]},
 "metrics": {"test_loss": 0.3, "test_accuracy": 1.0, "confusion": [[1, 0], [0, 0]]},
 "plan": {"method": "reweigh", "steps": 60, "batch": 2, "clean_batch": 2, "learning_rate": 0.02,
          "seed": 0,
          "network": {"kind": "mlp", "shape": [1], "outputs": 2, "hidden": [1, 1],
                      "regression": false}},
 "left_out": [{"name": "id", "why": "has another value in every row"}]
}
"""
ROWS = "x,label\n1,high\n2,low\n-1,low\n-2,low\n"


def write_old_run(folder):
    """The folder of a finished run on four rows, of which the second is mislabelled."""
    data, run = folder / "rows.csv", folder / "run"
    run.mkdir(parents=True)
    data.write_text(ROWS)
    texts = {"config": CONFIG, "options": OPTIONS, "source": SOURCE, "network": NETWORK,
             "preprocess": PREPROCESS, "summary": SUMMARY}  # fmt: skip
    for name, text in texts.items():
        (run / f"{name}.json").write_text(text.replace('"DATA"', json.dumps(str(data.resolve()))))
    (run / "metrics.jsonl").write_text(
        '{"phase": "main", "step": 0}\n{"final": {"test_loss": 0.3}}\n'
    )
    one, two = torch.ones(1, 1), torch.tensor([[4.0], [-4.0]])
    save_file(
        {
            "layers.1.weight": one, "layers.1.bias": torch.zeros(1),
            "layers.3.weight": one.clone(), "layers.3.bias": torch.zeros(1),
            "layers.5.weight": two, "layers.5.bias": torch.tensor([-1.0, 1.0]),
        },
        run / "model.safetensors",
    )  # fmt: skip
    audit = pa.table(
        {
            "index": [1, 0, 2, 3],
            "given_label": ["low", "high", "low", "low"],
            "suggested_label": pa.array(["high", None, None, None], pa.string()),
            "suspicion": [0.9, 0.2, 0.1, 0.05],
            "mean_weight": [0.1, 1.2, 1.1, 1.0],
            "zero_share": [0.9, 0.1, 0.0, 0.0],
            "seen": [15, 15, 15, 15],
        }
    )
    pq.write_table(audit, run / "audit.parquet")
    cells = [json.dumps({"x": x, "label": y}) for x, y in (("2", "low"), ("1", "high"))]
    cells += [json.dumps({"x": x, "label": "low"}) for x in ("-1", "-2")]
    suspects = audit.append_column("why", pa.array(["It did not help."] * 4))
    suspects = suspects.append_column("example", pa.array(cells))
    suspects = suspects.append_column("probability", pa.array([0.9, 0.8, 0.9, 0.9]))
    pq.write_table(suspects, run / "suspects.parquet")
    return run
