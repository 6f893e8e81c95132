// The cursors that the gradient's walk guesses, for chunks and for boxes of rows: right and wrong guesses give the bits
// of the serial rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "raggrad/ops/sparse_slice/test/test_slices.h"

namespace raggrad::sparse_slice {
namespace {

using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::IsOk;

// Inputs large enough to be walked in several chunks. Most of them make guessed cursors wrong.
TEST(SparseSliceGradInChunks, EveryNumberOfColumns) {
  Generator random(7);
  for (int64_t dims = 1; dims <= 6; ++dims) {
    SCOPED_TRACE(dims);
    const Row start(static_cast<size_t>(dims), 1);
    EXPECT_TRUE(ExpectSameAsReference(Slice(SortedRows(random, kSplit, dims, 40), start, InBox(start, 30))));
  }
}

TEST(SparseSliceGradInChunks, RowsInNoOrder) {
  Generator random(8);
  for (int64_t dims = 1; dims <= 6; ++dims) {
    SCOPED_TRACE(dims);
    const Row start(static_cast<size_t>(dims), 1);
    EXPECT_TRUE(ExpectSameAsReference(Slice(RandomRows(random, kSplit, dims, 40), start, InBox(start, 30))));
  }
}

TEST(SparseSliceGradInChunks, RowsInFallingOrder) {
  Generator random(9);
  std::vector<Row> rows = SortedRows(random, kSplit, 2, 1000);
  std::reverse(rows.begin(), rows.end());
  EXPECT_TRUE(ExpectSameAsReference(Slice(rows, {100, 100}, InBox({100, 100}, 700))));
}

// Two rows of a sorted input are swapped: all guesses behind the first are wrong, or only one.
TEST(SparseSliceGradInChunks, TwoRowsChangePlaces) {
  Generator random(10);
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::vector<Row> rows = SortedRows(random, kSplit, 1, 1'000'000);
    std::swap(rows[static_cast<size_t>(random.Below(kSplit))], rows[static_cast<size_t>(random.Below(kSplit))]);
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, {1000}, InBox({1000}, 900'000))));
  }
}

TEST(SparseSliceGradInChunks, EqualRowsCrossTheEndsOfChunks) {
  Generator random(11);
  for (const int64_t run : {2, 3, 1000, 1025, 8192, 20'000, 100'000}) {  // shorter and longer than a chunk skips
    SCOPED_TRACE(run);
    std::vector<Row> rows;
    for (int64_t i = 0; i < kSplit; ++i) rows.push_back({i / run, 0});
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, {0, 0}, [&](const Row& row) { return row[0] % 2 == 0; })));
    // Of the equal rows only some have a gradient: the first ones take them.
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, {0, 0}, [&](const Row&) { return random.Below(3) == 0; })));
  }
}

TEST(SparseSliceGradInChunks, StartsThatWrapAround) {
  Generator random(12);
  for (const Row& start : {Row{kMax, kMin}, Row{kMin, kMax}, Row{-1, kMin + 5}, Row{kMax - 3, -5}}) {
    std::vector<Row> rows = SortedRows(random, kSplit, 2, 300);
    for (Row& row : rows) {
      for (int64_t& column : row) column = WrappingAdd(column, kMax - 150);  // half of them wrap
    }
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, start, [&](const Row&) { return random.Below(2) == 0; })));
    std::sort(rows.begin(), rows.end());
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, start, [](const Row& row) { return row[0] % 3 != 0; })));
  }
}

TEST(SparseSliceGradInChunks, AGradientWithoutEntryStopsAllThatFollow) {
  Generator random(13);
  const Row start = {10};
  const Indices good = Slice(SortedRows(random, kSplit, 1, 100'000), start, InBox(start, 80'000));
  for (int repeat = 0; repeat < 10; ++repeat) {
    Indices indices = good;
    indices.output[static_cast<size_t>(random.Below(indices.m()))] = {-1};
    EXPECT_FALSE(ExpectSameAsReference(indices));
  }
  Indices first = good;
  first.output.front() = {kMax};
  EXPECT_FALSE(ExpectSameAsReference(first));
  Indices last = good;
  last.output.back() = {kMax};
  EXPECT_FALSE(ExpectSameAsReference(last));
}

TEST(SparseSliceGradInChunks, ExtraMemoryIsAFewBytesPerWorker) {
  Generator random(14);
  const Row start = {10};
  const Indices indices = Slice(SortedRows(random, kCopySplit, 1, 1000), start, InBox(start, 80));
  CountingAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  ctx.executor = &::raggrad::testing::SharedExecutor(7);
  ASSERT_THAT(SparseSliceGrad(Array(std::vector<float>(indices.output.size())), indices.Matrix(indices.input),
                              Array(start), indices.Matrix(indices.output), ctx),
              IsOk());
  EXPECT_LE(allocator.peak_bytes(), kCopySplit * sizeof(float) + size_t{7} * 64);
}

// The walk guesses that an input row matches if it lies in the box around the next 4096 output rows, 64 rows at a time.
// Inputs have two columns and short runs of matches. Each test spoils the guess in another way, at the edges of words,
// runs and boxes.
class SparseSliceGradBoxes : public ::testing::Test {
 protected:
  static Indices ShortRuns() {
    std::vector<Row> rows;
    for (int64_t i = 0; i < kSplit; ++i) rows.push_back({i / 10, i % 10});
    return Slice(rows, {1000, 3}, InBox({1000, 3}, 4000));
  }
  // Calls spoil(indices, k) for output rows k at the edges, and compares with the reference.
  template <class F>
  static void ForEachEdge(const F& spoil) {
    const Indices good = ShortRuns();
    for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{44}, int64_t{45}, int64_t{511}, int64_t{512}, int64_t{4095},
                            int64_t{4096}, int64_t{4097}, int64_t{8192}, good.m() - 2, good.m() - 1}) {
      SCOPED_TRACE(k);
      Indices indices = good;
      spoil(indices, k);
      ExpectSameAsReference(indices);
    }
  }
  static auto InputOf(Indices& indices, int64_t k) {
    Row row = indices.output[static_cast<size_t>(k)];
    for (size_t c = 0; c < row.size(); ++c) row[c] = WrappingAdd(row[c], indices.start[c]);
    return std::find(indices.input.begin(), indices.input.end(), row);
  }
};

TEST_F(SparseSliceGradBoxes, TheGuessIsRight) { EXPECT_TRUE(ExpectSameAsReference(ShortRuns())); }

TEST_F(SparseSliceGradBoxes, ARowInsideHasNoGradient) {
  ForEachEdge([](Indices& indices, int64_t k) { indices.output.erase(indices.output.begin() + k); });
}

TEST_F(SparseSliceGradBoxes, AGradientHasNoRow) {
  ForEachEdge([](Indices& indices, int64_t k) { indices.input.erase(InputOf(indices, k)); });
}

TEST_F(SparseSliceGradBoxes, ARowIsThereTwice) {
  ForEachEdge([](Indices& indices, int64_t k) {
    const auto row = InputOf(indices, k);
    indices.input.insert(row, Row(*row));
  });
  ForEachEdge([](Indices& indices, int64_t k) {
    const auto row = InputOf(indices, k);
    indices.input.insert(row, Row(*row));
    indices.output.insert(indices.output.begin() + k, Row(indices.output[static_cast<size_t>(k)]));
  });
}

TEST_F(SparseSliceGradBoxes, RowsChangePlaces) {
  ForEachEdge([](Indices& indices, int64_t k) { std::iter_swap(InputOf(indices, k), InputOf(indices, k / 2)); });
  ForEachEdge([](Indices& indices, int64_t k) {
    std::swap(indices.output[static_cast<size_t>(k)], indices.output[static_cast<size_t>(k / 2)]);
  });
}

TEST_F(SparseSliceGradBoxes, RowsInsideFollowTheLastGradient) {
  ForEachEdge([](Indices& indices, int64_t k) { indices.output.resize(static_cast<size_t>(k) + 1); });
}

// The second box begins at every place of a word, with rows that are not in the first.
TEST_F(SparseSliceGradBoxes, BoxesBeginAnywhereInAWord) {
  for (int64_t before = 0; before < 70; ++before) {
    SCOPED_TRACE(before);
    Indices indices{{}, {0, 0}, {}};
    for (int64_t i = 0; i < before; ++i) indices.input.push_back({-1, -1});
    for (int64_t i = 0; i < 9000; ++i) {
      indices.input.push_back({i, i % 2});
      if (i >= 4200 || i % 2 == 0) indices.output.push_back({i, i % 2});
    }
    EXPECT_TRUE(ExpectSameAsReference(indices));
  }
}

TEST_F(SparseSliceGradBoxes, BoxesAsLargeAsInt64) {
  const std::vector<int64_t> extremes = {kMin, kMin + 1, -1, 0, 1, kMax - 1, kMax};
  Generator random(16);
  const auto extreme = [&] { return extremes[static_cast<size_t>(random.Below(7))]; };
  for (int repeat = 0; repeat < 40; ++repeat) {
    std::vector<Row> rows;
    for (int i = 0; i < 9000; ++i) rows.push_back({extreme(), extreme()});
    const Row start = {extreme(), extreme()};
    const Row least = {extreme(), extreme()};
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, start, [&](const Row& row) {
      const Row moved = Moved(row, start);
      return moved[0] >= least[0] && moved[1] >= least[1];
    })));
  }
}

}  // namespace
}  // namespace raggrad::sparse_slice
