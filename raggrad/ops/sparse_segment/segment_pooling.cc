#include "raggrad/ops/sparse_segment/segment_pooling.h"

#include "raggrad/core/error_text.h"

namespace raggrad {

Result<SegmentCombiner> CombinerByName(std::string_view name, std::string_view argument) noexcept {
  if (name == "sum") return SegmentCombiner::kSum;
  if (name == "mean") return SegmentCombiner::kMean;
  if (name == "sqrtn") return SegmentCombiner::kSqrtN;
  return MakeError(Code::kInvalidArgument, "no such ", argument, " [", argument,
                   ": expected 'sum', 'mean' or 'sqrtn', got '", name, "']");
}

}  // namespace raggrad
