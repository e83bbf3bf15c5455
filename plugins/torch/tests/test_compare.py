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
