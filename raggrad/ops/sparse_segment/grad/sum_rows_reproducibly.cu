#include "raggrad/ops/sparse_segment/grad/sum_rows.cuh"

namespace raggrad::sparse_segment::on_cuda {

using cuda::Call;

template Status SumRowsReproducibly<Half, false>(const Call&, const SumJob<Half>&) noexcept;
template Status SumRowsReproducibly<Half, true>(const Call&, const SumJob<Half>&) noexcept;
template Status SumRowsReproducibly<BFloat16, false>(const Call&, const SumJob<BFloat16>&) noexcept;
template Status SumRowsReproducibly<BFloat16, true>(const Call&, const SumJob<BFloat16>&) noexcept;
template Status SumRowsReproducibly<float, false>(const Call&, const SumJob<float>&) noexcept;
template Status SumRowsReproducibly<float, true>(const Call&, const SumJob<float>&) noexcept;
template Status SumRowsReproducibly<double, false>(const Call&, const SumJob<double>&) noexcept;
template Status SumRowsReproducibly<double, true>(const Call&, const SumJob<double>&) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
