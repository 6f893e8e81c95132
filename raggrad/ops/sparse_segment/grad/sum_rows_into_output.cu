#include "raggrad/ops/sparse_segment/grad/sum_rows.cuh"

namespace raggrad::sparse_segment::on_cuda {

using cuda::Call;

template Status SumRows<Half, false>(const Call&, const SumJob<Half>&, Accumulation) noexcept;
template Status SumRows<BFloat16, false>(const Call&, const SumJob<BFloat16>&, Accumulation) noexcept;
template Status SumRows<float, false>(const Call&, const SumJob<float>&, Accumulation) noexcept;
template Status SumRows<double, false>(const Call&, const SumJob<double>&, Accumulation) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
