#include "raggrad/ops/sparse_segment/ids.h"

#include "raggrad/core/operands.h"

namespace raggrad::sparse_segment {

Status CheckIdShapes(std::string_view op, const TensorView& indices, const TensorView& segment_ids) noexcept {
  if (Status s = CheckVector(op, "indices", indices); !s.ok()) return s;
  if (Status s = CheckVector(op, "segment_ids", segment_ids); !s.ok()) return s;
  return CheckSameSize(op, indices, segment_ids);
}

Status CheckIdOperands(std::string_view op, const TensorView& indices, const TensorView& segment_ids) noexcept {
  if (Status s = CheckDType(op, "indices", indices.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(op, "segment_ids", segment_ids.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckOperands(op, {{"indices", indices}, {"segment_ids", segment_ids}}); !s.ok()) return s;
  return CheckIdShapes(op, indices, segment_ids);
}

}  // namespace raggrad::sparse_segment
