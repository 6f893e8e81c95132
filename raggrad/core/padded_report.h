// Reports of padded calls, which ops/padded.h describes: their words, and what backends share. Internal to the library.
#pragma once

#include <cstdint>
#include <string_view>

#include "raggrad/core/error_text.h"

namespace raggrad {

// Tells CheckPadded which operator made a report. 0 is none, because memory that nobody has written is often zero.
enum class PaddedForm : uint64_t {
  kNone,
  kSparseSegmentSumGradV2,
  kSparseSegmentMeanGradV2,
  kSparseSegmentSqrtNGradV2,
  kCoalesce,
  kSparseFillEmptyRows,
  kRaggedFillEmptyRows,
  kSparseSlice,
  kSegmentPlan,
};

struct PaddedReport {
  static constexpr uint64_t kNoFault = ~uint64_t{0};

  uint64_t count = 0;         // of the rows or entries that there are, also if there is no room for them
  uint64_t fault = kNoFault;  // the first one: its position, or a code of the family
  int64_t value = 0;          // found there
  uint64_t limit = 0;         // the value should have been in [0, limit); this and the value are 0 without a fault
  PaddedForm form = PaddedForm::kNone;
  uint64_t max = 0;  // the count that there is room for
};
inline constexpr int64_t kReportWords = sizeof(PaddedReport) / sizeof(uint64_t);

// The error for a bound that is no size.
inline Status CheckBound(std::string_view op, std::string_view bound, int64_t max) noexcept {
  if (max >= 0) return {};
  return InvalidArgument(op, bound, " is out of range [", bound, ": expected at least 0, got ", max, "]");
}

// The error for a bound that is too small. `what`: "rows" or "entries", of which there are too many.
inline Status TooMany(std::string_view op, std::string_view what, std::string_view bound, int64_t max,
                      int64_t count) noexcept {
  return MakeError(Code::kResourceExhausted, op, ": there are more ", what, " than there is room for [", bound,
                   ": expected ", count, " or more, got ", max, "]");
}

}  // namespace raggrad
