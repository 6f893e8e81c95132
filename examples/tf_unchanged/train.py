"""Trains the models and prints, as JSON, a digest of each one's weights and the seconds of the sparse part of a step.

    train.py stock|raggrad STEPS
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import tensorflow as tf
from models import BAGS, LAYERS, ROWS, WIDTH, Batch, Classifier, batches

kernels, steps = sys.argv[1], int(sys.argv[2])
if kernels == "raggrad":
    import raggrad.tf

    raggrad.tf.install()


def train(model_name: str) -> str:
    """The digest of all weights after some steps."""
    keras.utils.set_random_seed(1)
    model = Classifier(LAYERS[model_name]())
    optimizer = keras.optimizers.SGD(0.1)
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True)
    data = batches(4)
    model((data[0].ids, data[0].bags))
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(batch: Batch) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(batch.labels, model((batch.ids, batch.bags)))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)

    for number in range(steps):
        step(data[number % len(data)])
    weights = b"".join(keras.ops.convert_to_numpy(weight).tobytes() for weight in model.weights)
    return hashlib.sha256(weights).hexdigest()


def seconds_of_sparse_part(model_name: str) -> float:
    """The smallest time of the operators that pool rows and make the rows' gradient, of 15."""
    batch = batches(1)[0]
    table = tf.random.stateless_uniform([ROWS, WIDTH], [1, 2])
    rows, ids = (table, batch.ids)
    if model_name == "lookup":  # it gathers the unique rows first
        unique, ids = tf.unique(batch.ids)
        rows = tf.gather(table, unique)
    grad = tf.random.stateless_uniform([BAGS, WIDTH], [3, 4])
    times = []
    for _ in range(15):
        begin = time.perf_counter()
        tf.raw_ops.SparseSegmentMean(data=rows, indices=ids, segment_ids=batch.bags)
        if model_name == "lookup":
            tf.raw_ops.SparseSegmentMeanGrad(grad=grad, indices=ids, segment_ids=batch.bags, output_dim0=len(rows))
        else:
            tf.raw_ops.SparseSegmentMeanGradV2(
                grad=grad, indices=ids, segment_ids=batch.bags, dense_output_dim0=ROWS
            )
        times.append(time.perf_counter() - begin)
    return min(times)


print(json.dumps({name: {"weights": train(name), "seconds": seconds_of_sparse_part(name)} for name in LAYERS}))
