#include "raggrad/ops/sparse_segment/grad/sum_rows.cuh"

namespace raggrad::sparse_segment::on_cuda {

using cuda::Call;

template Status SumRows<Half, true>(const Call&, const SumJob<Half>&, Accumulation) noexcept;
template Status SumRows<BFloat16, true>(const Call&, const SumJob<BFloat16>&, Accumulation) noexcept;
template Status SumRows<float, true>(const Call&, const SumJob<float>&, Accumulation) noexcept;
template Status SumRows<double, true>(const Call&, const SumJob<double>&, Accumulation) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
