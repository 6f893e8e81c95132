"""The operators of torch.ops.raggrad, with the shapes of their results and their derivatives."""

from . import on_cuda as on_cuda
