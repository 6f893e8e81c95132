#include "raggrad/ops/sparse_segment/grad/sum_rows.cuh"

namespace raggrad::sparse_segment::on_cuda {

using cuda::Call;

template Status SumRowsReproducibly<Half, false>(const Call&, SumJob<Half>, int64_t) noexcept;
template Status SumRowsReproducibly<Half, true>(const Call&, SumJob<Half>, int64_t) noexcept;
template Status SumRowsReproducibly<BFloat16, false>(const Call&, SumJob<BFloat16>, int64_t) noexcept;
template Status SumRowsReproducibly<BFloat16, true>(const Call&, SumJob<BFloat16>, int64_t) noexcept;
template Status SumRowsReproducibly<float, false>(const Call&, SumJob<float>, int64_t) noexcept;
template Status SumRowsReproducibly<float, true>(const Call&, SumJob<float>, int64_t) noexcept;
template Status SumRowsReproducibly<double, false>(const Call&, SumJob<double>, int64_t) noexcept;
template Status SumRowsReproducibly<double, true>(const Call&, SumJob<double>, int64_t) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
