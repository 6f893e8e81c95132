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
        const Result<Record*> sorted = RadixSort(ctx, work.data(), spare.data(), n, key_bits, KeyOf);
        ASSERT_TRUE(sorted.ok());
        EXPECT_TRUE(std::equal(want.begin(), want.end(), *sorted)) << "n = " << n << ", " << key_bits << " bits";
      });
    }
  }
}

TEST(RadixSortTest, ReportsAFailedAllocation) {
  std::vector<Record> work = RandomRecords(100, 20);
  std::vector<Record> spare(work.size());
  testing::ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) {
    return WithOp("Sort", [&] { return RadixSort(ctx, work.data(), spare.data(), 100, 20, KeyOf).status(); });
  });
}

}  // namespace
}  // namespace raggrad::cpu
