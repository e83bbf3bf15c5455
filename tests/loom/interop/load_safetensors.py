"""Loads a folder's model with Hugging Face's library, and looks at what must be there. 77: no library."""

import json
import pathlib
import sys

try:
    import numpy
    from safetensors import safe_open
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
index = folder / "model.safetensors.index.json"
names = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
tensors = {}
for name in names:
    with safe_open(folder / name, "numpy") as file:
        assert file.metadata() == {"k": "v"}
        tensors |= {key: file.get_tensor(key) for key in file.keys()}
values = numpy.arange(6) - 2.5
assert set(tensors) == {"f32", "f16", "f64", "scalar", "empty"}
assert tensors["f32"].dtype == numpy.float32 and (tensors["f32"] == values.reshape(2, 3)).all()
assert tensors["f16"].dtype == numpy.float16 and (tensors["f16"] == values).all()
assert tensors["f64"].dtype == numpy.float64 and (tensors["f64"] == values.reshape(3, 2)).all()
assert tensors["scalar"].shape == () and tensors["scalar"] == -2.5
assert tensors["empty"].shape == (0, 4) and tensors["empty"].dtype == numpy.int64
