"""Where the kernels of a test run: Triton's interpreter without a GPU, else the GPU."""

import pytest
import torch

_GPU = torch.cuda.is_available()
on_interpreter = pytest.param(
    "cpu", marks=pytest.mark.skipif(_GPU, reason="the interpreter is for machines without a GPU")
)
on_gpu = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not _GPU, reason="needs a CUDA device")])
KERNEL_DEVICES = [on_interpreter, on_gpu]
DEVICE = "cuda" if _GPU else "cpu"
