#include "raggrad/ops/padded.h"

#include "raggrad/core/operands.h"
#include "raggrad/core/padded_report.h"
#include "raggrad/cuda/host_copy.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"
#include "raggrad/ops/sparse_segment/fault.h"

namespace raggrad {
namespace {

constexpr std::string_view kOp = "CheckPadded";

Result<PaddedReport> Read(const TensorView& report, const Context& ctx) noexcept {
  if (Status s = CheckOperands(kOp, {{"report", report}}); !s.ok()) return s;
  if (Status s = CheckDType(kOp, "report", report.dtype, TypeList<uint64_t>{}); !s.ok()) return s;
  if (report.shape != Shape{kReportWords}) {
    return InvalidArgument(kOp, "this is no report [report: expected shape [", kReportWords, "], got ", report.shape,
                           "]");
  }
  if (report.device.is_cpu()) return *report.As<PaddedReport>();
  const Result<Tensor> copy = cuda::CopyToHost(kOp, report, ctx);
  if (!copy.ok()) return copy.status();
  return *copy->As<PaddedReport>();
}

Result<int64_t> CheckRows(std::string_view op, const PaddedReport& report) noexcept {
  if (report.fault != PaddedReport::kNoFault) {
    return sparse_segment::FaultError(op, report.fault, report.value, static_cast<int64_t>(report.limit));
  }
  if (report.count > report.max) {
    return TooMany(op, "rows", "max_unique", static_cast<int64_t>(report.max), static_cast<int64_t>(report.count));
  }
  return static_cast<int64_t>(report.count);
}

Result<int64_t> CheckEntries(std::string_view op, std::string_view bound, const PaddedReport& report) noexcept {
  if (report.fault != PaddedReport::kNoFault) {
    return sparse_fill_empty_rows::NoSuchRow(op, report.form == PaddedForm::kRaggedFillEmptyRows,
                                             static_cast<int64_t>(report.limit), static_cast<int64_t>(report.fault),
                                             report.value);
  }
  if (report.count > report.max) {
    return TooMany(op, "entries", bound, static_cast<int64_t>(report.max), static_cast<int64_t>(report.count));
  }
  return static_cast<int64_t>(report.count);
}

}  // namespace

Result<int64_t> CheckPadded(const TensorView& report, const Context& ctx) noexcept {
  const Result<PaddedReport> read = Read(report, ctx);
  if (!read.ok()) return read.status();
  switch (read->form) {
    case PaddedForm::kNone:
      break;
    case PaddedForm::kSparseSegmentSumGradV2:
      return CheckRows("SparseSegmentSumGradV2", *read);
    case PaddedForm::kSparseSegmentMeanGradV2:
      return CheckRows("SparseSegmentMeanGradV2", *read);
    case PaddedForm::kSparseSegmentSqrtNGradV2:
      return CheckRows("SparseSegmentSqrtNGradV2", *read);
    case PaddedForm::kCoalesce:
      return CheckRows("Coalesce", *read);
    case PaddedForm::kSparseFillEmptyRows:
      return CheckEntries("SparseFillEmptyRows", "max_full", *read);
    case PaddedForm::kRaggedFillEmptyRows:
      return CheckEntries("RaggedFillEmptyRows", "max_full", *read);
    case PaddedForm::kSparseSlice:
      return CheckEntries("SparseSlice", "max_kept", *read);
    case PaddedForm::kSegmentPlan:
      return CheckRows("SegmentPlan", *read);
  }
  return InvalidArgument(kOp, "this is no report [report[4]: expected the number of a padded form, got ",
                         static_cast<uint64_t>(read->form), "]");
}

}  // namespace raggrad
