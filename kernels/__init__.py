"""Numeric kernels: arrays and addresses in, arrays out. Knows nothing of models, GGUF or text. Start at `ops.py`."""

if __name__ != "edgellm.kernels":
    raise ImportError("this folder is installed as edgellm.kernels; import that name")
