#include "raggrad/ops/sparse_segment/sum_rows.cuh"

namespace raggrad::sparse_segment::cuda {

using ::raggrad::cuda::Call;

template Status SumRows<Half, true>(const Call&, SumJob<Half>, bool) noexcept;
template Status SumRows<BFloat16, true>(const Call&, SumJob<BFloat16>, bool) noexcept;
template Status SumRows<float, true>(const Call&, SumJob<float>, bool) noexcept;
template Status SumRows<double, true>(const Call&, SumJob<double>, bool) noexcept;

}  // namespace raggrad::sparse_segment::cuda
