// Error texts for bad ids, and how a device reports one. Internal to the family.
#pragma once

#include <cstdint>
#include <string_view>

#include "raggrad/core/error_text.h"
#include "raggrad/core/padded_report.h"

namespace raggrad::sparse_segment {

// A bad id. A serial check in TensorFlow's order meets the fault with the smallest Encode() first.
struct Fault {
  enum Check : uint64_t { kLastSegment, kSegmentsFirst, kOneByOne, kDescending };
  static constexpr uint64_t kNone = PaddedReport::kNoFault;

  Check check;
  int64_t position;
  bool in_segment_ids;

  constexpr uint64_t Encode() const noexcept {
    return uint64_t{check} << 62 | static_cast<uint64_t>(position) << 1 | (in_segment_ids ? 1U : 0U);
  }
  static constexpr Fault Decode(uint64_t code) noexcept {
    return {static_cast<Check>(code >> 62), static_cast<int64_t>(code << 2 >> 3), (code & 1) != 0};
  }
};

inline Status LastSegmentError(std::string_view op, int64_t position, int64_t got, int64_t num_segments) noexcept {
  return InvalidArgument(op, "Invalid number of segments [segment_ids[", position, "]: expected less than ",
                         num_segments, ", the rows of grad, got ", got, "]");
}
inline Status SegmentError(std::string_view op, int64_t position, int64_t got, int64_t num_segments) noexcept {
  return InvalidArgument(op, "Segment id ", got, " out of range [0, ", num_segments, "). [segment_ids[", position,
                         "]]");
}
inline Status IndexError(std::string_view op, int64_t position, int64_t got, int64_t table_rows) noexcept {
  return InvalidArgument(op, "Index ", got, " out of range [0, ", table_rows, "). [indices[", position, "]]");
}

// The error for Encode() == code. `value` is the id at fault, `limit` what it should be below: num_segments or
// table_rows.
inline Status FaultError(std::string_view op, uint64_t code, int64_t value, int64_t limit) noexcept {
  const Fault fault = Fault::Decode(code);
  if (fault.check == Fault::kLastSegment) return LastSegmentError(op, fault.position, value, limit);
  if (fault.check == Fault::kDescending) {
    return InvalidArgument(op, "segment ids are not increasing [segment_ids: expected ascending ids]");
  }
  if (fault.in_segment_ids) return SegmentError(op, fault.position, value, limit);
  return IndexError(op, fault.position, value, limit);
}

// The outcome of checking and counting ids. A padded gradient leaves the first part in device memory; `fault` is an
// Encode(). A plan sends all of it to pinned memory.
struct Report : PaddedReport {
  uint64_t descending = 0;  // 1: segment ids do not ascend
  uint64_t token = 0;       // written last; 0: the report is that of a padded gradient
};

}  // namespace raggrad::sparse_segment
