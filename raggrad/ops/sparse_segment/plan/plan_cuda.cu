// Makes plans in device memory: checks the ids, counts them, sorts them by row, and counts the rows of each group.
#include <memory>
#include <new>

#include "raggrad/cuda/pinned_words.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/plan/plan_cuda.cuh"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/plan/prepare_ids.cuh"
#include "raggrad/ops/sparse_segment/plan/radix_sort.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

using cuda::Blocks;
using cuda::GlobalThread;

constexpr int kThreads = kTuning.item_threads_per_block;
constexpr unsigned kMaxPrepareBlocks = kTuning.prepare_max_blocks_per_multiprocessor * kTuning.multiprocessors;

// Queues all passes. Each sorts from one of the two arrays into the other. States and tickets must be zero.
template <int kRounds, class Word>
Status QueuePasses(const Call& call, int64_t n, const SortShape& shape, Notes* notes, Word* states, Contribution* from,
                   Contribution* to, const uint32_t* only_if) noexcept {
  for (int pass = 0; pass < shape.passes; ++pass, std::swap(from, to)) {
    Word* const tiles = states + pass * shape.states();
    const SortPass<Word> sort = {.contributions = from,
                                 .n = n,
                                 .digit = {pass * shape.digit_bits, (1U << shape.digit_bits) - 1},
                                 .histogram = notes->histograms[pass],
                                 .ticket = &notes->tickets[pass],
                                 .tiles = tiles,
                                 .bundles = tiles + (shape.tiles << shape.digit_bits),
                                 .sorted = to,
                                 .only_if = only_if};
    if (Status s = QueueSortPass<kRounds>(call, shape, sort); !s.ok()) return s;
  }
  return {};
}

// Puts segments in place of the positions that were sorted, and keeps these. One thread for each contribution.
__global__ void KeepPositionsKernel(Contribution* contributions, int64_t n, const Ids segment_ids, int64_t num_segments,
                                    uint32_t* positions) {
  const int64_t k = GlobalThread();
  if (k >= n) return;
  const uint32_t position = contributions[k].segment;
  positions[k] = position;
  contributions[k].segment = OrZero(segment_ids[position], num_segments);
}

// Finds the first id that differs from the plan's, as ~position for atomicMax. One thread for each id.
__global__ void CompareKernel(const Ids ids, const int32_t* planned, int64_t n, unsigned long long* first) {
  const int64_t i = GlobalThread();
  if (i < n && ids[i] != planned[i]) atomicMax(first, ~static_cast<unsigned long long>(i));
}

}  // namespace

Status CheckFitsGpu(const SegmentIds& ids, bool needs_segments) noexcept {
  constexpr int64_t kMost = UINT32_MAX;
  if (ids.n() <= kMost && (!needs_segments || ids.num_segments <= kMost)) return {};
  return MakeError(Code::kUnimplemented, ids.op, ": too many ids or segments for a GPU [expected at most ", kMost,
                   ", got ", ids.n(), " ids and ", ids.num_segments, " segments]");
}

namespace {

// A plan whose rows are not counted yet. If its rows may ascend, kernels find that out, and the sort of a million ids
// costs 8 us, not 38.
struct Sorted {
  Plan plan;
  Notes* notes;
  uint32_t* unique_before;
};

Result<Sorted> QueueSort(const Call& call, const SegmentIds& ids, const PlanParts& parts, const IdCopies& copies,
                         const BagSegments& bags, const ReportTo& checked, const uint32_t* only_if,
                         bool may_ascend) noexcept {
  const SortShape shape(ids.n(), ids.table_rows + (ids.left_out == LeftOut::kNone ? 0 : 1));
  Sorted sorted;
  Plan& plan = sorted.plan;
  // One block of memory: the states of the sort's tiles, the notes and the counts, which start as zeros; then
  // unique_before.
  const int64_t groups = GroupsOf(ids.n());
  // One more than segments: for ids that are dropped, and for bad segment ids, which become 0.
  const int64_t counts = parts.counts ? ids.num_segments + 1 : 0;
  constexpr int64_t kWord = sizeof(uint32_t), kNotes = sizeof(Notes) / kWord;
  const int64_t states = shape.passes * shape.states() * (shape.wide ? 2 : 1);
  const int64_t zeros = states + kNotes + counts;
  Result<Scratch<uint32_t>> memory = Scratch<uint32_t>::Make(call.device_memory(), zeros + groups + 1);
  if (!memory.ok()) return memory.status();
  plan.memory = *std::move(memory);
  uint32_t* const tile_states = plan.memory.data();
  auto* const notes = reinterpret_cast<Notes*>(tile_states + states);
  uint32_t* const segment_counts = tile_states + states + kNotes;
  sorted.notes = notes;
  sorted.unique_before = tile_states + zeros;
  plan.unique_before = sorted.unique_before;
  plan.descending = &notes->descending;
  if (parts.counts) plan.counts = segment_counts;
  const Offsets offsets(ids.offsets);
  const BagsJob bags_job = {offsets, ids.n(), bags, plan.memory.data(), zeros};
  const Status cleared = ids.offsets != nullptr
                             ? call.Launch(BagsKernel, Blocks(ids.n(), bags::on_cuda::kIdsPerBlock), kThreads, bags_job)
                             : call.Fill(plan.memory.data(), 0, static_cast<size_t>(zeros * kWord));
  if (!cleared.ok()) return cleared;

  // Memory that the first kernel does not need is allocated while it runs.
  Result<Scratch<Contribution>> contributions = Scratch<Contribution>::Make(call.device_memory(), ids.n());
  if (!contributions.ok()) return contributions.status();
  plan.contributions = *std::move(contributions);
  Result<Scratch<Contribution>> spare = Scratch<Contribution>::Make(call.device_memory(), ids.n());
  if (!spare.ok()) return spare.status();

  const unsigned blocks = std::min(Blocks(ids.n(), kPrepareThreads * kPerThread), kMaxPrepareBlocks);
  Contribution* const result = plan.contributions.data();
  Contribution* const unsorted = shape.passes % 2 == 0 ? result : spare->data();
  Contribution* const other = shape.passes % 2 == 0 ? spare->data() : result;
  const uint32_t* const sort_if = may_ascend ? &notes->unsorted : only_if;
  const PrepareJob job = {.indices = Ids(ids.indices),
                          .segment_ids = Ids(ids.segment_ids),
                          .n = ids.n(),
                          .table_rows = ids.table_rows,
                          .num_segments = ids.num_segments,
                          .per_block = Blocks(ids.n(), int64_t{blocks} * kPrepareThreads) * int64_t{kPrepareThreads},
                          .segments_first = ids.segments_first,
                          .left_out = ids.left_out,
                          .positions = parts.positions,
                          .contributions = unsorted,
                          .in_place = may_ascend ? result : nullptr,
                          .passes = shape.passes,
                          .digit_bits = shape.digit_bits,
                          .notes = notes,
                          .counts = parts.counts ? segment_counts : nullptr,
                          .copies = copies,
                          .offsets = offsets,
                          .only_if = only_if,
                          .checked = ReportJob(ids, checked)};
  if (Status s = call.Launch(PrepareKernel, blocks, kPrepareThreads, job); !s.ok()) return s;
  const auto passes = [&]<int kRounds>(auto* states_of_tiles) {
    return QueuePasses<kRounds>(call, ids.n(), shape, notes, states_of_tiles, unsorted, other, sort_if);
  };
  const Status queued = shape.wide ? passes.template operator()<kManyRounds>(reinterpret_cast<uint64_t*>(tile_states))
                        : shape.rounds == kManyRounds ? passes.template operator()<kManyRounds>(tile_states)
                                                      : passes.template operator()<kFewRounds>(tile_states);
  if (!queued.ok()) return queued;
  return Result<Sorted>(std::move(sorted));  // `return sorted` would copy with nvcc 13.0
}

}  // namespace

Result<Plan> QueuePlan(const Call& call, const SegmentIds& ids, const PlanParts& parts, const IdCopies& copies,
                       const ReportTo& to, const BagSegments& bags, const ReportTo& checked) noexcept {
  if (Status s = CheckFitsGpu(ids, parts.counts || parts.positions); !s.ok()) return s;
  Result<Scratch<uint32_t>> positions = Scratch<uint32_t>::Make(call.device_memory(), parts.positions ? ids.n() : 0);
  if (!positions.ok()) return positions.status();
  // Ids without segments are rows of a sparse gradient, which mostly ascend.
  Result<Sorted> sorted =
      QueueSort(call, ids, parts, copies, bags, checked, /*only_if=*/nullptr, ids.position_is_segment());
  if (!sorted.ok()) return sorted.status();
  Plan& plan = sorted->plan;
  const RowsJob rows = {plan.contributions.data(), ids.n(), GroupsOf(ids.n()), sorted->unique_before, sorted->notes};
  if (Status s = QueueFindRows(call, rows, ReportJob(ids, to)); !s.ok()) return s;
  plan.positions = *std::move(positions);
  return Result<Plan>(std::move(plan));  // `return plan` would copy with nvcc 13.0
}

Result<Plan> QueueBySegment(const Call& call, const SegmentIds& ids, const uint32_t* only_if) noexcept {
  const SegmentIds segments = {ids.op, ids.segment_ids, /*segment_ids=*/{}, ids.num_segments, ids.n()};
  Result<Sorted> sorted = QueueSort(call, segments, {}, {}, {}, {}, only_if, /*may_ascend=*/only_if == nullptr);
  if (!sorted.ok()) return sorted.status();
  return Result<Plan>(std::move(sorted->plan));
}

namespace {

Status KeepPositions(const Call& call, const SegmentIds& ids, Plan& plan) noexcept {
  return call.Launch(KeepPositionsKernel, Blocks(ids.n(), kThreads), kThreads, plan.contributions.data(), ids.n(),
                     Ids(ids.segment_ids), ids.num_segments, plan.positions.data());
}

}  // namespace

Result<Plan> QueueByRow(const Call& call, const SegmentIds& ids, bool positions, const ReportTo& checked) noexcept {
  if (Status s = CheckFitsGpu(ids, /*needs_segments=*/true); !s.ok()) return s;
  Result<Scratch<uint32_t>> kept = Scratch<uint32_t>::Make(call.device_memory(), positions ? ids.n() : 0);
  if (!kept.ok()) return kept.status();
  const PlanParts parts = {.counts = false, .positions = positions};
  Result<Sorted> sorted = QueueSort(call, ids, parts, {}, {}, checked, /*only_if=*/nullptr, /*may_ascend=*/true);
  if (!sorted.ok()) return sorted.status();
  Plan& plan = sorted->plan;
  plan.positions = *std::move(kept);
  if (positions) {
    if (Status s = KeepPositions(call, ids, plan); !s.ok()) return s;
  }
  return Result<Plan>(std::move(plan));
}

Status QueueEmptyReport(const Call& call, const SegmentIds& ids, const ReportTo& to) noexcept {
  return call.Launch(EmptyReportKernel, 1, 1, ReportJob(ids, to));
}

Result<ReportTo> ReportTo::ThisThread() noexcept { return Words(cuda::PinnedWords()); }

Result<ReportTo> ReportTo::Words(uint64_t* words) noexcept {
  if (words == nullptr) return Status(Code::kResourceExhausted, "CUDA: no pinned memory");
  static_assert(sizeof(Report) <= cuda::kWords * sizeof(uint64_t));
  return ReportTo{reinterpret_cast<Report*>(words), cuda::NewToken()};
}

Result<Report> ReportTo::Await(const UncapturedCall& call) const noexcept {
  const auto& read = *static_cast<const Report*>(report);
  if (Status s = call.Await(read.token, token); !s.ok()) return s;
  return read;
}

Result<Report> ReportTo::Await(const UncapturedCall& call, const SegmentIds& ids) const noexcept {
  Result<Report> read = Await(call);
  if (!read.ok() || read->fault == Fault::kNone) return read;
  return FaultError(ids.op, read->fault, read->value, static_cast<int64_t>(read->limit));
}

namespace {

// Queues the plan with copies of its ids.
Status QueueInto(const Call& call, const SegmentIds& ids, const ReportTo& to, const ReportTo& checked,
                 SegmentPlan::State& state) noexcept {
  Result<Scratch<int32_t>> indices = Scratch<int32_t>::Make(call.device_memory(), ids.n());
  if (!indices.ok()) return indices.status();
  Result<Scratch<int32_t>> segment_ids = Scratch<int32_t>::Make(call.device_memory(), ids.n());
  if (!segment_ids.ok()) return segment_ids.status();
  const PlanParts parts = {.counts = true, .positions = state.weighted};
  const bool of_bags = ids.offsets != nullptr;
  Result<Scratch<int64_t>> starts = Scratch<int64_t>::Make(call.device_memory(), of_bags ? ids.num_segments + 1 : 0);
  if (!starts.ok()) return starts.status();
  SegmentIds with_segments = ids;
  if (of_bags) with_segments.segment_ids = {segment_ids->data(), DType::kInt32, Shape{ids.n()}, call.device()};
  const IdCopies copies = {indices->data(), of_bags ? nullptr : segment_ids->data()};
  const BagSegments bags = {segment_ids->data(), starts->data()};
  Result<Plan> plan = QueuePlan(call, with_segments, parts, copies, to, bags, checked);
  if (!plan.ok()) return plan.status();
  if (parts.positions) {
    if (Status s = KeepPositions(call, with_segments, *plan); !s.ok()) return s;
  }
  state.starts = *std::move(starts);
  state.device_sorted = *std::move(plan);
  state.indices = *std::move(indices);
  state.segment_ids = *std::move(segment_ids);
  return {};
}

Status MakePlanWithoutWaiting(const SegmentIds& ids, const Context& ctx, SegmentPlan::State& state) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<Scratch<PaddedReport>> report = Scratch<PaddedReport>::Make(call->device_memory(), 1);
  if (!report.ok()) return report.status();
  state.report = *std::move(report);
  state.owner = call->stream_id;
  const ReportTo to = {state.report.data(), /*token=*/0, PaddedForm::kSegmentPlan, ids.n(), /*must_ascend=*/true};
  return ids.n() == 0 ? QueueEmptyReport(*call, ids, to) : QueueInto(*call, ids, to, /*checked=*/{}, state);
}

// Two reports in pinned memory: first whether the ids are good, then the number of unique rows.
class Reports final : public LateCount {
 public:
  static Result<std::unique_ptr<Reports>> Make(int device) noexcept {
    std::unique_ptr<Reports> made(new (std::nothrow) Reports(device));
    if (made == nullptr) return Status(Code::kResourceExhausted, "no memory for reports");
    uint64_t* const words = made->block_.words();
    const Result<ReportTo> checked = ReportTo::Words(words);
    if (!checked.ok()) return checked.status();
    constexpr int64_t kWordsPerReport = sizeof(Report) / sizeof(uint64_t);
    static_assert(2 * kWordsPerReport <= cuda::kWords);
    const Result<ReportTo> counted = ReportTo::Words(words + kWordsPerReport);
    if (!counted.ok()) return counted.status();
    made->checked_ = *checked;
    made->counted_ = *counted;
    return Result<std::unique_ptr<Reports>>(std::move(made));
  }

  const ReportTo& checked() const noexcept { return checked_; }
  const ReportTo& counted() const noexcept { return counted_; }

  // To be called once the kernels that write the reports are queued.
  void KeepUntilWritten() noexcept { block_.ReuseAfter(count_report().token, counted_.token); }

  Result<int64_t> Await() const noexcept override {
    const Report& report = count_report();
    if (Status s = cuda::AwaitToken(report.token, counted_.token, device_); !s.ok()) return s;
    return static_cast<int64_t>(report.count);
  }

 private:
  explicit Reports(int device) noexcept : device_(device) {}
  const Report& count_report() const noexcept { return *static_cast<const Report*>(counted_.report); }

  int device_;
  cuda::PinnedBlock block_;
  ReportTo checked_;
  ReportTo counted_;
};

}  // namespace

Status MakePlan(const SegmentIds& ids, const Context& ctx, SegmentPlan::State& state,
                FunctionRef<void()> meanwhile) noexcept {
  if (!state.waits) return MakePlanWithoutWaiting(ids, ctx, state);
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<std::unique_ptr<Reports>> reports = Reports::Make(call->stream_id.device);
  if (!reports.ok()) return reports.status();
  const ReportTo checked = (*reports)->checked();
  state.owner = call->stream_id;
  if (Status s = QueueInto(*call, ids, (*reports)->counted(), checked, state); !s.ok()) {
    // A kernel may have been queued that writes a report. Only an error of CUDA itself makes this wait fail.
    [[maybe_unused]] const Status ended = call->AwaitAll("a kernel failed");
    return s;
  }
  (*reports)->KeepUntilWritten();
  state.late_count = *std::move(reports);
  meanwhile();
  const Result<Report> read = checked.Await(*call, ids);
  if (!read.ok()) return read.status();
  state.device_sorted.order = OrderIn(*read);
  state.ascending = read->descending == 0;
  return {};
}

Result<int64_t> FirstDifference(const TensorView& ids, const int32_t* planned, const Context& ctx) noexcept {
  const int64_t n = ids.dim(0);
  if (n == 0) return n;
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<Scratch<unsigned long long>> first = Scratch<unsigned long long>::Make(call->device_memory(), 1);
  if (!first.ok()) return first.status();
  if (Status s = call->Fill(first->data(), 0, sizeof(uint64_t)); !s.ok()) return s;
  if (Status s = call->Launch(CompareKernel, Blocks(n, kThreads), kThreads, Ids(ids), planned, n, first->data());
      !s.ok()) {
    return s;
  }
  uint64_t read = 0;
  if (Status s = call->ReadBack(reinterpret_cast<const uint64_t*>(first->data()), std::span(&read, 1)); !s.ok())
    return s;
  return read == 0 ? n : static_cast<int64_t>(~read);
}

}  // namespace raggrad::sparse_segment::on_cuda
