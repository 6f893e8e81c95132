// The sink of summed rows on a GPU: stores them, or lets an optimizer update the table.
#pragma once

#include "raggrad/core/padded_report.h"
#include "raggrad/cuda/arithmetic.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/ops/sparse_segment/plan/device_plan.h"
#include "raggrad/ops/sparse_segment/update/optimizer_step.h"

namespace raggrad::sparse_segment::on_cuda {

// Neighbouring values of a row, which a lane loads or stores at once.
template <class T, int kColumns>
struct alignas(kColumns * sizeof(T)) Columns {
  T values[kColumns];
};

// The same as one word of at most 16 bytes, which the compiler keeps in the fewest registers.
template <class T, int kColumns, size_t kBytes = kColumns * sizeof(T)>
using Packed =
    std::conditional_t<kBytes == 16, uint4,
                       std::conditional_t<kBytes == 8, uint2,
                                          std::conditional_t<kBytes == 4, unsigned int,
                                                             std::conditional_t<kBytes == 2, unsigned short, void>>>>;

template <int kColumns, class T>
__device__ Columns<T, kColumns> Load(const T* from) {
  return *reinterpret_cast<const Columns<T, kColumns>*>(from);
}
template <int kColumns, class T>
__device__ Packed<T, kColumns> LoadPacked(const T* from) {
  return *reinterpret_cast<const Packed<T, kColumns>*>(from);
}
template <class T, int kColumns>
__device__ Columns<T, kColumns> Unpack(const Packed<T, kColumns>& packed) {
  return reinterpret_cast<const Columns<T, kColumns>&>(packed);
}

template <class T, int kColumns>
__device__ void Store(T* to, const Columns<T, kColumns>& columns) {
  *reinterpret_cast<Columns<T, kColumns>*>(to) = columns;
}

// Stores values that are not read again soon, so that the cache keeps the gradient, whose rows are read many times.
// Adam's update of segment-A and -C takes 2 to 4 % less time with it.
template <class T, int kColumns>
__device__ void StoreOnce(T* to, const Columns<T, kColumns>& columns) {
  constexpr int kAtOnce = std::min<int>(kColumns, 16 / sizeof(T));  // 8 columns of float are two words
  using Word = Packed<T, kAtOnce>;
  for (int c = 0; c < kColumns; c += kAtOnce) {
    __stcs(reinterpret_cast<Word*>(to + c), reinterpret_cast<const Word&>(columns.values[c]));
  }
}

// The rate of an update. One in memory is rounded as the host rounds its own.
template <class A>
__device__ A Rate(const OptimizerJob<A>& update) {
  if (update.rate_on_device == nullptr) return update.rate;
  return cuda::Flush(static_cast<A>(__ldg(update.rate_on_device)));
}

template <class T>
struct RowSink {
  using A = SumType<T>;

  T* output;            // [max_rows, width]; unused if an optimizer gets the rows
  bool dense;           // rows go to their places in the table; otherwise one after the other
  int64_t max_rows;     // of the output; further rows are dropped
  void* unique_rows;    // [max_rows]: gets the table row of each row of the output; may be null
  bool unique_is_wide;  // unique_rows is int64, not int32
  Optimizer optimizer;
  DType table_type;
  OptimizerJob<A> update;
  const PaddedReport* report;  // of ids that nobody has checked yet: after a fault nothing is updated; may be null

  __device__ void WriteUniqueRow(uint32_t place, uint32_t row) const {
    if (place >= max_rows) return;
    if (unique_is_wide) {
      static_cast<int64_t*>(unique_rows)[place] = row;
    } else {
      static_cast<int32_t*>(unique_rows)[place] = static_cast<int32_t>(row);
    }
  }

  // Brings columns of a row that Take will change into the second-level cache, while the row is summed. Adam's update
  // of segment-A-zipf then takes 0.167 ms instead of 0.195. Where most rows have one contribution it changes little.
  __device__ void Prefetch(uint32_t row, int64_t column, int64_t width) const {
    const int64_t at = row * width + column;
    const int64_t table_bytes = table_type == DType::kFloat64 ? 8 : table_type == DType::kFloat32 ? 4 : 2;
    cuda::Prefetch(static_cast<const char*>(update.table) + at * table_bytes);
    if (optimizer != Optimizer::kSgd) cuda::Prefetch(update.state1 + at);
    if (optimizer == Optimizer::kAdam) cuda::Prefetch(update.state2 + at);
  }

  // Takes columns [column, column + kColumns) of unique row number `place`, which is `row` in the table.
  template <int kColumns, bool kUpdate>
  __device__ void Take(uint32_t place, uint32_t row, int64_t column, int64_t width, const A (&sums)[kColumns]) const {
    if constexpr (kUpdate) {
      Update(row, column, width, sums);
    } else if (place < max_rows) {
      Store(output + (dense ? row : place) * width + column, sums);
    }
  }

  // Stores columns of a row at their place in the output.
  template <int kColumns>
  __device__ void Store(T* to, const A (&sums)[kColumns]) const {
    StoreOnce(to, Rounded(sums));
  }

  // Updates columns of a row of the table.
  template <int kColumns>
  __device__ void Update(uint32_t row, int64_t column, int64_t width, const A (&sums)[kColumns]) const {
    if (report != nullptr && report->fault != PaddedReport::kNoFault) return;
    const Columns<T, kColumns> rounded = Rounded(sums);
    Columns<A, kColumns> gradient;  // the value a stored gradient has when read back: rounded, and +0 for -0
    for (int c = 0; c < kColumns; ++c) {
      gradient.values[c] = cuda::Add(cuda::Widen(rounded.values[c]), A{0});
    }
    Update(row * width + column, gradient);
  }

 private:
  template <int kColumns>
  __device__ static Columns<T, kColumns> Rounded(const A (&sums)[kColumns]) {
    Columns<T, kColumns> rounded;
    for (int c = 0; c < kColumns; ++c) rounded.values[c] = cuda::Narrow<T>(sums[c]);
    return rounded;
  }

  template <int kColumns>
  __device__ void Update(int64_t at, const Columns<A, kColumns>& gradient) const {
    if constexpr (std::is_same_v<A, double>) {
      UpdateTable<double>(at, gradient);
    } else if (table_type == DType::kFloat32) {
      UpdateTable<float>(at, gradient);
    } else if (table_type == DType::kHalf) {
      UpdateTable<Half>(at, gradient);
    } else {
      UpdateTable<BFloat16>(at, gradient);
    }
  }

  template <class W, int kColumns>
  __device__ void UpdateTable(int64_t at, const Columns<A, kColumns>& gradient) const {
    W* const table = static_cast<W*>(update.table) + at;
    Columns<W, kColumns> weights = Load<kColumns>(table);
    Columns<A, kColumns> steps;
    const A rate = Rate(update);
    if (optimizer == Optimizer::kSgd) {
      for (int c = 0; c < kColumns; ++c) steps.values[c] = cuda::Multiply(rate, gradient.values[c]);
    } else if (optimizer == Optimizer::kAdagrad) {
      steps = AdagradSteps(at, gradient, rate);
    } else {
      steps = AdamSteps(at, gradient, rate);
    }
    for (int c = 0; c < kColumns; ++c) {
      const A weight = cuda::Widen(weights.values[c]);
      weights.values[c] = cuda::Narrow<W>(cuda::Add(weight, -steps.values[c]));
    }
    StoreOnce(table, weights);
  }

  template <int kColumns>
  __device__ Columns<A, kColumns> AdagradSteps(int64_t at, const Columns<A, kColumns>& gradient, A rate) const {
    using cuda::Add, cuda::Divide, cuda::Multiply;
    Columns<A, kColumns> sums = Load<kColumns>(update.state1 + at);
    Columns<A, kColumns> steps;
    for (int c = 0; c < kColumns; ++c) {
      const A g = gradient.values[c];
      sums.values[c] = Add(sums.values[c], Multiply(g, g));
      steps.values[c] = Divide(Multiply(rate, g), Root(sums.values[c]));
    }
    StoreOnce(update.state1 + at, sums);
    return steps;
  }

  template <int kColumns>
  __device__ Columns<A, kColumns> AdamSteps(int64_t at, const Columns<A, kColumns>& gradient, A rate) const {
    using cuda::Add, cuda::Divide, cuda::Multiply;
    Columns<A, kColumns> m = Load<kColumns>(update.state1 + at);
    Columns<A, kColumns> v = Load<kColumns>(update.state2 + at);
    Columns<A, kColumns> steps;
    for (int c = 0; c < kColumns; ++c) {
      const A g = gradient.values[c];
      m.values[c] = Add(m.values[c], Multiply(Add(g, -m.values[c]), update.gain1));
      v.values[c] = Add(v.values[c], Multiply(Add(Multiply(g, g), -v.values[c]), update.gain2));
      steps.values[c] = Divide(Multiply(m.values[c], rate), Root(v.values[c]));
    }
    StoreOnce(update.state1 + at, m);
    StoreOnce(update.state2 + at, v);
    return steps;
  }

  __device__ A Root(A x) const { return cuda::Add(sqrt(cuda::Flush(x)), update.epsilon); }
};

}  // namespace raggrad::sparse_segment::on_cuda
