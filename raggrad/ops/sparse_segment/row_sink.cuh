// What becomes of a row when it has been summed: it is stored, or an optimizer takes a step with it.
#pragma once

#include "raggrad/cuda/numbers.cuh"
#include "raggrad/ops/sparse_segment/device_plan.h"
#include "raggrad/ops/sparse_segment/update_loop.h"

namespace raggrad::sparse_segment::cuda {

// Neighbouring numbers of a row, as one lane reads and writes them at once.
template <class T, int kColumns>
struct alignas(kColumns * sizeof(T)) Columns {
  T numbers[kColumns];
};

// The same as one word, which the compiler keeps in as few registers as there can be.
template <class T, int kColumns, size_t kBytes = kColumns * sizeof(T)>
using Packed = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, unsigned int, unsigned short>>>;

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

// For what is not read again soon: it leaves the cache to the gradient, whose rows are read many times.
template <class T, int kColumns>
__device__ void StoreOnce(T* to, const Columns<T, kColumns>& columns) {
  using Word = Packed<T, kColumns>;
  __stcs(reinterpret_cast<Word*>(to), reinterpret_cast<const Word&>(columns));
}

template <class T>
struct RowSink {
  using A = SumType<T>;

  T* output;          // [rows, width]; rows are stored there, unless there is an update
  bool dense;         // in their places in the table; otherwise one after the other
  int64_t max_rows;   // of the output
  void* numbers;      // if not null: the rows' numbers in the table
  bool wide_numbers;  // they are int64
  UpdateRule rule;
  DType table_type;
  UpdateJob<A> update;

  __device__ void Number(uint32_t place, uint32_t row) const {
    if (place >= max_rows) return;
    if (wide_numbers) {
      static_cast<int64_t*>(numbers)[place] = row;
    } else {
      static_cast<int32_t*>(numbers)[place] = static_cast<int32_t>(row);
    }
  }

  // sums: columns [column, column + kColumns) of the place-th row, which is `row` in the table.
  template <int kColumns, bool kUpdate>
  __device__ void Take(uint32_t place, uint32_t row, int64_t column, int64_t width, const A (&sums)[kColumns]) const {
    Columns<T, kColumns> rounded;
    for (int c = 0; c < kColumns; ++c) rounded.numbers[c] = ::raggrad::cuda::Narrow<T>(sums[c]);
    if constexpr (kUpdate) {
      Columns<A, kColumns> gradient;  // as a stored one would be when it is read: rounded, and without minus zero
      for (int c = 0; c < kColumns; ++c) {
        gradient.numbers[c] = ::raggrad::cuda::Add(::raggrad::cuda::Widen(rounded.numbers[c]), A{0});
      }
      Update(row * width + column, gradient);
    } else {
      if (place < max_rows) StoreOnce(output + (dense ? row : place) * width + column, rounded);
    }
  }

 private:
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
    if (rule == UpdateRule::kSgd) {
      for (int c = 0; c < kColumns; ++c) steps.numbers[c] = ::raggrad::cuda::Multiply(update.rate, gradient.numbers[c]);
    } else if (rule == UpdateRule::kAdagrad) {
      steps = AdagradSteps(at, gradient);
    } else {
      steps = AdamSteps(at, gradient);
    }
    for (int c = 0; c < kColumns; ++c) {
      const A weight = ::raggrad::cuda::Widen(weights.numbers[c]);
      weights.numbers[c] = ::raggrad::cuda::Narrow<W>(::raggrad::cuda::Add(weight, -steps.numbers[c]));
    }
    Store(table, weights);
  }

  template <int kColumns>
  __device__ Columns<A, kColumns> AdagradSteps(int64_t at, const Columns<A, kColumns>& gradient) const {
    using ::raggrad::cuda::Add, ::raggrad::cuda::Multiply;
    Columns<A, kColumns> sums = Load<kColumns>(update.state1 + at);
    Columns<A, kColumns> steps;
    for (int c = 0; c < kColumns; ++c) {
      const A g = gradient.numbers[c];
      sums.numbers[c] = Add(sums.numbers[c], Multiply(g, g));
      steps.numbers[c] = Divide(Multiply(update.rate, g), Root(sums.numbers[c]));
    }
    Store(update.state1 + at, sums);
    return steps;
  }

  template <int kColumns>
  __device__ Columns<A, kColumns> AdamSteps(int64_t at, const Columns<A, kColumns>& gradient) const {
    using ::raggrad::cuda::Add, ::raggrad::cuda::Multiply;
    Columns<A, kColumns> m = Load<kColumns>(update.state1 + at);
    Columns<A, kColumns> v = Load<kColumns>(update.state2 + at);
    Columns<A, kColumns> steps;
    for (int c = 0; c < kColumns; ++c) {
      const A g = gradient.numbers[c];
      m.numbers[c] = Add(m.numbers[c], Multiply(Add(g, -m.numbers[c]), update.gain1));
      v.numbers[c] = Add(v.numbers[c], Multiply(Add(Multiply(g, g), -v.numbers[c]), update.gain2));
      steps.numbers[c] = Divide(Multiply(m.numbers[c], update.rate), Root(v.numbers[c]));
    }
    Store(update.state1 + at, m);
    Store(update.state2 + at, v);
    return steps;
  }

  __device__ A Root(A x) const { return ::raggrad::cuda::Add(sqrt(::raggrad::cuda::Flush(x)), update.epsilon); }
  static __device__ A Divide(A a, A b) {
    return ::raggrad::cuda::Flush(::raggrad::cuda::Flush(a) / ::raggrad::cuda::Flush(b));
  }
};

}  // namespace raggrad::sparse_segment::cuda
