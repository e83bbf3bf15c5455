"""perf/torch_compare.py: a short run has a figure for every collective, system and size, and a page."""
import json
import subprocess
import sys

from launch import ROOT


def test_a_short_comparison(tmp_path):
    run = subprocess.run([sys.executable, ROOT / "perf" / "torch_compare.py", "-e", "1K", "--rounds", "1", "--seconds", "0.01",
                          "--asynchronous", "--json", tmp_path / "results.json", "--html", tmp_path / "page.html"],
                         capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    cells = json.loads((tmp_path / "results.json").read_text())["cells"]["shm2"]
    assert len({(cell["collective"], cell["bytes"]) for cell in cells}) == 15
    assert all(set(cell["systems"]) == {"Weft", "Gloo"} for cell in cells)
    assert "| all_reduce | 4 B |" in run.stdout and "<svg" in (tmp_path / "page.html").read_text()


def test_what_is_hidden_of_a_short_communication_is_not_told(monkeypatch):
    """1 ms beside differences of 9 ms between steps came out as -687 %."""
    monkeypatch.syspath_prepend(ROOT / "perf")
    from torch_compare import hidden_part
    us = {"DDP": 120e3, "alone": 100e3, "communication": 80e3, "last bucket": 8e3, "transfers": 4e3}
    assert "too short" in hidden_part({**us, "DDP": 170.2e3, "alone": 161.5e3, "communication": 1.1e3})
    assert hidden_part(us).startswith("of which 75 % is hidden. The last bucket, behind which there is no arithmetic, takes 10.0 %")
