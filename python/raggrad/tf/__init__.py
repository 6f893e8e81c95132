"""raggrad in TensorFlow: the operators of an unchanged program run raggrad's kernels.

>>> import raggrad.tf
>>> raggrad.tf.install()
>>> raggrad.tf.status()["SparseSegmentMean"]
'raggrad'

There is nothing else to call: tf.nn.embedding_lookup_sparse, tf.sparse.segment_mean, tf.sparse.fill_empty_rows and
their gradients are used as before. build() adds the operators of variants and of batching. docs/tensorflow.md lists all
of them.
"""

# TensorFlow is looked at before anything imports it.
from . import _load as _load

# isort: split
from .installation import install, status
from .on_demand import build

__all__ = ["build", "install", "status"]
