#include "raggrad/ops/ragged_variant/splits.h"

#include <algorithm>
#include <functional>
#include <span>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"

namespace raggrad::ragged_variant::on_cpu {
namespace {

constexpr int64_t kCheckGrain = 16384;  // splits: some 10 us of comparing them

template <class I>
Status CheckNumbers(std::string_view op, std::string_view argument, std::span<const I> splits,
                    std::optional<int64_t> last, Executor& executor) noexcept {
  constexpr std::string_view kInvalid = "Invalid ragged splits: ";
  if (splits[0] != 0) {
    return InvalidArgument(op, kInvalid, "first element of ragged splits  must be 0 but is ", splits[0], " [", argument,
                           "[0]: expected 0, got ", splits[0], "]");
  }
  cpu::FirstError decreasing;
  const cpu::Chunks steps = cpu::SplitEvenly(executor, static_cast<int64_t>(splits.size()) - 1, kCheckGrain);
  cpu::ForEachChunk(executor, steps, [&](int64_t, int64_t begin, int64_t end) {
    const I* const stop = splits.data() + end + 1;
    const I* const found = std::adjacent_find(splits.data() + begin, stop, std::greater<I>{});
    if (found != stop) decreasing.Report(found + 1 - splits.data());
  });
  if (decreasing.found()) {
    const int64_t at = decreasing.position();
    const I value = splits[static_cast<size_t>(at)];
    const I before = splits[static_cast<size_t>(at - 1)];
    return InvalidArgument(op, kInvalid, "ragged splits must be monotonically increasing, but ragged_splits[", at,
                           "]=", value, " is smaller than row_splits[", at - 1, "]=", before, " [", argument, "[", at,
                           "]: expected at least ", before, ", got ", value, "]");
  }
  if (last && splits.back() != *last) {
    return InvalidArgument(op, kInvalid, "last element of ragged splits must be the number of ragged values(", *last,
                           ") but is ", splits.back(), " [", argument, "[", splits.size() - 1, "]: expected ", *last,
                           ", got ", splits.back(), "]");
  }
  return {};
}

}  // namespace

Status CheckSplits(std::string_view op, std::string_view argument, const TensorView& splits,
                   std::optional<int64_t> last, Executor& executor) noexcept {
  return Visit(IndexTypes{}, splits.dtype, [&]<class I>() -> Status {
    const std::span numbers(splits.As<I>(), static_cast<size_t>(splits.dim(0)));
    return CheckNumbers(op, argument, numbers, last, executor);
  });
}

}  // namespace raggrad::ragged_variant::on_cpu
