// Optimizer steps that consume a gradient row by row, instead of storing it, and update those rows of the table.
//
//   RowUpdate update = Adagrad{.learning_rate = 0.05, .accumulator = MutableTensorView::Of(sums, Shape{rows, width})};
//
// w is a row of the table and g the gradient of that row. All is computed in float32 (float64 if the table is), each
// operation rounded by itself, subnormals flushed to zero. A half or bfloat16 table is rounded once, at the end.
//
//   Sgd       w -= learning_rate * g
//   Adagrad   a += g * g;   w -= learning_rate * g / (sqrt(a) + epsilon)
//   Adam      m += (g - m) * (1 - beta1);   v += (g * g - v) * (1 - beta2)
//             w -= m * rate / (sqrt(v) + epsilon),   rate = learning_rate * sqrt(1 - beta2^step) / (1 - beta1^step)
//   RowwiseAdagrad   a += (sum of g[c] * g[c]) / width;   w -= learning_rate / (sqrt(a) + epsilon) * g
//
// Only rows that the gradient has change: Adagrad is that of TensorFlow and PyTorch, Adam is torch.optim.SparseAdam,
// RowwiseAdagrad is FBGEMM's exact one, with one number of state for each row. Its sum of squares has a fixed order:
// lane c mod 32 adds up column c, left to right; then the upper half of the lanes is added to the lower, five times.
// It needs the whole row before the first step, so the gradient's rows are scratch of the call.
//
// Every rule may have its rate in memory: one float64 on the table's device, read when the update runs. It takes the
// place of learning_rate, for Adam of `rate` in the formula. So replays of a CUDA graph can have a rate each.
#pragma once

#include <variant>

#include "raggrad/core/tensor_view.h"

#pragma GCC visibility push(default)
namespace raggrad {

struct Sgd {
  double learning_rate;
  TensorView rate = {};
};

// States have the shape of the table, in float32 (float64 for a float64 table).
struct Adagrad {
  double learning_rate;
  double epsilon = 1e-7;
  MutableTensorView accumulator = {};
  TensorView rate = {};
};

struct Adam {
  double learning_rate;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  int64_t step = 1;  // which update this is, counted from 1
  MutableTensorView m = {};
  MutableTensorView v = {};
  TensorView rate = {};
};

struct RowwiseAdagrad {
  double learning_rate;
  double epsilon = 1e-8;
  MutableTensorView accumulator = {};  // [table_rows]
  TensorView rate = {};
};

using RowUpdate = std::variant<Sgd, Adagrad, Adam, RowwiseAdagrad>;

// The rate that an update computes from learning_rate, the betas and step. Given as `rate`, it has the same bits.
double RateOf(const Adam& update) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
