#include "raggrad/cpu/radix_sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "raggrad/core/error_text.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"

namespace raggrad::cpu {
namespace {

struct Record {
  uint32_t key;
  uint32_t position;
  bool operator==(const Record&) const = default;
};

std::vector<Record> RandomRecords(int64_t n, int key_bits) {
  std::mt19937 random(static_cast<uint32_t>(n * 64 + key_bits));
  std::vector<Record> records(static_cast<size_t>(n));
  for (uint32_t i = 0; i < records.size(); ++i) {
    records[i] = {static_cast<uint32_t>(random() & ((uint64_t{1} << key_bits) - 1)), i};
  }
  return records;
}

uint32_t KeyOf(const Record& record) { return record.key; }

TEST(RadixSortTest, IsAStableSortForEverySizeAndWidthOfKey) {
  for (const int64_t n : {0, 1, 2, 47, 48, 49, 500, 5'000, 40'000}) {
    for (const int key_bits : {0, 1, 4, 11, 12, 20, 31, 32}) {
      const std::vector<Record> records = RandomRecords(n, key_bits);
      std::vector<Record> want = records;
      std::ranges::stable_sort(want, {}, &Record::key);
      testing::ForEachSetting([&](const Context& ctx) {
        std::vector<Record> work = records;
        std::vector<Record> spare(work.size());
        const Result<Record*> sorted = RadixSort(ctx, SortBuffers{work.data(), spare.data()}, n, key_bits, KeyOf);
        ASSERT_TRUE(sorted.ok());
        EXPECT_TRUE(std::equal(want.begin(), want.end(), *sorted)) << "n = " << n << ", " << key_bits << " bits";
      });
    }
  }
}

// Sorting does not depend on the instruction set.
template <class F>
void ForEachNumberOfThreads(const F& f) {
  for (const int workers : testing::kWorkers) {
    SCOPED_TRACE(std::to_string(workers) + " threads");
    Context ctx;
    ctx.executor = &testing::SharedExecutor(workers);
    f(static_cast<const Context&>(ctx));
  }
}

// 12 bytes: such records do not divide a cache line.
struct LongRecord {
  uint32_t key;
  uint32_t position;
  uint32_t unused;
};

// Memory of `count` elements that begins `offset` elements behind a line.
template <class T>
class Array {
 public:
  Array(int64_t count, int64_t offset) : memory_(*Scratch<T>::Make({}, count + offset)), offset_(offset) {}
  T* data() noexcept { return memory_.data() + offset_; }

 private:
  Scratch<T> memory_;
  int64_t offset_;
};

template <class T>
struct Pair {
  Array<T> values, spare;

  Pair(int64_t count, int64_t offset) : values(count, offset), spare(count, offset) {}
  SortBuffers<T> buffers() noexcept { return {values.data(), spare.data()}; }
};

// Sorts records, and two arrays with their positions.
template <class R>
void ExpectSortsAndCarries(const std::vector<Record>& records, int key_bits, int64_t offset) {
  const auto n = static_cast<int64_t>(records.size());
  Pair<R> work(n, offset);
  Pair<float> floats(n, offset);
  Pair<double> doubles(n, offset);
  ForEachNumberOfThreads([&](const Context& ctx) {
    for (uint32_t i = 0; i < records.size(); ++i) {
      R& record = work.values.data()[i];
      record.key = records[i].key;
      record.position = i;
      floats.values.data()[i] = static_cast<float>(i);
      doubles.values.data()[i] = i;
    }
    const auto key = [](const R& record) { return record.key; };
    const Result<R*> sorted = RadixSort(ctx, work.buffers(), n, key_bits, key, floats.buffers(), doubles.buffers());
    ASSERT_TRUE(sorted.ok());
    const bool in_spare = *sorted == work.spare.data();
    const float* const carried_float = (in_spare ? floats.spare : floats.values).data();
    const double* const carried_double = (in_spare ? doubles.spare : doubles.values).data();
    // n different pairs of the input, in ascending order, are all of them.
    int64_t wrong = 0;
    Record before = {};
    for (int64_t i = 0; i < n; ++i) {
      const Record got = {(*sorted)[i].key, (*sorted)[i].position};
      const bool is_next = i == 0 || before.key < got.key || (before.key == got.key && before.position < got.position);
      const bool is_input = got.position < n && records[got.position].key == got.key;
      const bool has_its_own = carried_float[i] == static_cast<float>(got.position) &&
                               carried_double[i] == static_cast<double>(got.position);
      if (!is_next || !is_input || !has_its_own) ++wrong;
      before = got;
    }
    EXPECT_EQ(wrong, 0) << n << " records, keys of " << key_bits << " bits, offset " << offset;
  });
}

TEST(RadixSortTest, CarriesOtherArraysAlong) {
  for (const int64_t n : {2, 48, 49, 40'000}) ExpectSortsAndCarries<Record>(RandomRecords(n, 12), 12, /*offset=*/0);
}

// From 4 MiB on, records go to memory in groups, if they lie at lines.
constexpr int64_t kMany = 600'011;

TEST(RadixSortTest, SortsManyRecordsWhereverTheyLie) {
  const std::vector<Record> records = RandomRecords(kMany, 20);
  ExpectSortsAndCarries<Record>(records, 20, /*offset=*/0);
  ExpectSortsAndCarries<Record>(records, 20, /*offset=*/3);
  ExpectSortsAndCarries<LongRecord>(records, 20, /*offset=*/0);
}

// Most keys are one: groups of the other digits stay empty or begin in the middle.
TEST(RadixSortTest, SortsManyRecordsOfFewKeys) {
  for (const uint32_t modulus : {3U, 200'000U}) {
    std::vector<Record> records(kMany);
    for (uint32_t i = 0; i < records.size(); ++i) records[i] = {i % modulus == 0 ? 1'000'000 - i / modulus % 5 : 77, i};
    ExpectSortsAndCarries<Record>(records, 20, /*offset=*/0);
  }
}

TEST(RadixSortTest, ReportsAFailedAllocation) {
  for (const int64_t n : {100, 600'000}) {
    std::vector<Record> work = RandomRecords(n + 8, 20);
    std::vector<Record> spare(work.size());
    const auto first_line = [](std::vector<Record>& records) {  // what begins with a line can be streamed
      return std::ranges::find_if(records, [](const Record& record) { return StartsLine(&record); });
    };
    const SortBuffers buffers = {&*first_line(work), &*first_line(spare)};
    testing::ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) {
      return WithOp("Sort", [&] { return RadixSort(ctx, buffers, n, 20, KeyOf).status(); });
    });
  }
}

}  // namespace
}  // namespace raggrad::cpu
