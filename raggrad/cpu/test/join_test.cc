#include "raggrad/cpu/join.h"

#include <gtest/gtest.h>

#include <complex>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "raggrad/core/error_text.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/owned.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::cpu {
namespace {

using testing::Difference;
using ::testing::HasSubstr;
using testing::SharedExecutor;
using testing::StatusIs;
using testing::TensorOf;
using testing::TensorOfStrings;

template <class T>
Tensor TensorOfAny(const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, std::string>) {
    return TensorOfStrings({std::ssize(values)}, values);
  } else {
    return TensorOf(values, {std::ssize(values)});
  }
}

// Pieces of one tensor, and the tensor that is expected of them. T is std::string for strings.
template <class T>
class Pieces {
 public:
  void Add(const std::vector<T>& values) {
    values_.push_back(values);
    tensors_.push_back(TensorOfAny(values));
    Append(tensors_.back().view().data, values);
  }
  // The first values of a piece once more.
  void AddAgain(size_t piece, ptrdiff_t count) {
    const std::vector<T>& values = values_[piece];
    Append(tensors_[piece].view().data, {values.begin(), values.begin() + count});
  }
  // Values of a piece from `first` on, once more: a slice of its tensor.
  void AddSlice(size_t piece, size_t first, size_t count) {
    const auto begin = values_[piece].begin() + static_cast<ptrdiff_t>(first);
    const TensorView tensor = tensors_[piece].view();
    const size_t value_bytes = tensor.dtype == DType::kString ? sizeof(String) : sizeof(T);
    Append(static_cast<const std::byte*>(tensor.data) + first * value_bytes,
           {begin, begin + static_cast<ptrdiff_t>(count)});
  }
  // The same many times, as padding has them. Nothing can be added after it.
  void Repeat(size_t piece, ptrdiff_t count, int times) {
    AddAgain(piece, count);
    const std::vector<T> values(expected_.end() - count, expected_.end());
    for (int i = 1; i < times; ++i) expected_.insert(expected_.end(), values.begin(), values.end());
    repeated_ = count;
  }
  void AddWithoutData(size_t count) { Append(nullptr, std::vector<T>(count)); }

  Tensor expected() const { return TensorOfAny(expected_); }
  size_t size() const { return expected_.size(); }
  Joined joined() const {
    constexpr DType kDType = kDTypeOf<std::conditional_t<std::is_same_v<T, std::string>, String, T>>;
    return {"values", 0, list_, kDType, {std::ssize(expected_)}, repeated_};
  }

 private:
  void Append(const void* data, const std::vector<T>& values) {
    list_.push_back({data, std::ssize(expected_)});
    expected_.insert(expected_.end(), values.begin(), values.end());
  }

  std::vector<std::vector<T>> values_;
  std::vector<Tensor> tensors_;
  std::vector<Piece> list_;
  std::vector<T> expected_;
  int64_t repeated_ = 0;
};

template <class T>
void ExpectJoined(const Pieces<T>& pieces) {
  const Tensor expected = pieces.expected();
  for (const int workers : testing::kWorkers) {
    SCOPED_TRACE(std::to_string(workers) + " threads");
    Context ctx;
    ctx.executor = &SharedExecutor(workers);
    const Result<Tensor> got = Join(pieces.joined(), ctx);
    ASSERT_THAT(got, testing::IsOk());
    EXPECT_EQ(Difference(got->view(), expected.view()), "");
  }
}

// Values that tell where they come from.
template <class T>
std::vector<T> Values(size_t count, int first) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(first + static_cast<int>(i % 100));
  return values;
}

std::vector<std::string> Words(size_t count, int first, size_t length = 20) {
  std::vector<std::string> words(count);
  for (size_t i = 0; i < count; ++i)
    words[i] = std::to_string(first + static_cast<int>(i)) + std::string(i % length, 'x');
  return words;
}

template <class T>
class JoinNumbersTest : public ::testing::Test {};
using OneTypePerSize = ::testing::Types<int8_t, int16_t, float, double, std::complex<double>>;
TYPED_TEST_SUITE(JoinNumbersTest, OneTypePerSize);

TYPED_TEST(JoinNumbersTest, FewPieces) {
  Pieces<TypeParam> pieces;
  ExpectJoined(pieces);
  pieces.Add({});
  ExpectJoined(pieces);
  pieces.Add(Values<TypeParam>(1, 1));
  ExpectJoined(pieces);
  pieces.Add({});
  pieces.Add({});
  pieces.AddWithoutData(3);
  pieces.Add(Values<TypeParam>(1000, 2));
  pieces.AddWithoutData(0);
  pieces.AddAgain(4, 7);
  pieces.Add({});
  ExpectJoined(pieces);
}

TYPED_TEST(JoinNumbersTest, ManyTinyPieces) {
  Pieces<TypeParam> pieces;
  for (int i = 0; i < 20'000; ++i) {
    i % 5 == 0 ? pieces.AddWithoutData(static_cast<size_t>(i % 4))
               : pieces.Add(Values<TypeParam>(static_cast<size_t>(i % 4), i % 27));
  }
  ExpectJoined(pieces);
}

// Slices of one tensor in all orders: some lie one behind the other and are copied together, others only nearly.
template <class T>
void AddSlices(Pieces<T>& pieces, size_t size) {
  constexpr size_t kLengths[] = {3, 0, 1, 7, 2};
  for (size_t first = 0, i = 0; first + 8 < size; first += kLengths[i % 5], ++i) {
    pieces.AddSlice(0, first, kLengths[i % 5]);
    if (i % 7 == 0) pieces.AddSlice(0, first, 2);                     // values that were there before
    if (i % 11 == 0) pieces.AddSlice(0, first + kLengths[i % 5], 1);  // those that follow, and once more
    if (i % 13 == 0) pieces.AddSlice(0, size - first - 2, 2);         // backwards
    if (i % 17 == 0) pieces.AddWithoutData(i % 4);
    if (i % 34 == 0) pieces.AddWithoutData(2);
  }
}

TYPED_TEST(JoinNumbersTest, SlicesOfOneTensor) {
  for (const size_t size : {size_t{20}, size_t{50'000}}) {
    Pieces<TypeParam> pieces;
    pieces.Add(Values<TypeParam>(size, 1));
    AddSlices(pieces, size);
    ExpectJoined(pieces);
    pieces.Repeat(0, 4, 3);  // begins where no slice ends
    ExpectJoined(pieces);
  }
}

TYPED_TEST(JoinNumbersTest, PaddingBehindItsOwnValues) {
  Pieces<TypeParam> pieces;
  pieces.Add(Values<TypeParam>(12, 1));
  pieces.AddSlice(0, 0, 8);
  pieces.AddSlice(0, 8, 4);
  pieces.Repeat(0, 12, 30'000);
  ExpectJoined(pieces);
}

TYPED_TEST(JoinNumbersTest, AHugePieceAmongTinyOnes) {
  Pieces<TypeParam> pieces;
  for (int i = 0; i < 10; ++i) pieces.Add(Values<TypeParam>(2, i));
  pieces.Add(Values<TypeParam>(3'000'000, 0));
  pieces.AddWithoutData(1'000'000);
  for (int i = 0; i < 10; ++i) pieces.Add(Values<TypeParam>(3, i));
  ExpectJoined(pieces);
}

TYPED_TEST(JoinNumbersTest, ManyRowsOfPadding) {
  Pieces<TypeParam> pieces;
  pieces.Add(Values<TypeParam>(12, 1));
  pieces.Add(Values<TypeParam>(8, 5));
  pieces.Repeat(0, 4, 50'000);
  ExpectJoined(pieces);
}

TEST(JoinStringsTest, FewPieces) {
  Pieces<std::string> pieces;
  ExpectJoined(pieces);
  pieces.Add({});
  ExpectJoined(pieces);
  pieces.Add({""});
  ExpectJoined(pieces);
  pieces.AddWithoutData(3);
  pieces.Add(Words(5, 1));
  pieces.Add({});
  pieces.Add({"", "a", ""});
  pieces.AddAgain(2, 2);
  pieces.AddWithoutData(1);
  ExpectJoined(pieces);
  pieces.Repeat(2, 2, 3);
  ExpectJoined(pieces);
}

TEST(JoinStringsTest, ManyRowsOfPadding) {
  Pieces<std::string> pieces;
  pieces.Add(Words(7, 1));
  pieces.Repeat(0, 3, 20'000);
  ExpectJoined(pieces);
}

TEST(JoinStringsTest, ManyTinyPieces) {
  Pieces<std::string> pieces;
  for (int i = 0; i < 20'000; ++i) {
    i % 5 == 0 ? pieces.AddWithoutData(static_cast<size_t>(i % 3)) : pieces.Add(Words(static_cast<size_t>(i % 3), i));
  }
  ExpectJoined(pieces);
}

TEST(JoinStringsTest, SlicesOfOneTensor) {
  Pieces<std::string> pieces;
  pieces.Add(Words(20'000, 1));
  AddSlices(pieces, 20'000);
  ExpectJoined(pieces);
}

TEST(JoinStringsTest, AHugePieceAmongTinyOnes) {
  Pieces<std::string> pieces;
  pieces.Add(Words(3, 0));
  pieces.Add(Words(100'000, 0));
  pieces.Add(Words(3, 7));
  ExpectJoined(pieces);
}

TEST(JoinStringsTest, FewLongStrings) {
  Pieces<std::string> pieces;
  for (int i = 0; i < 9; ++i) pieces.Add({std::string(100'000, static_cast<char>('a' + i)), ""});
  ExpectJoined(pieces);
}

// The characters follow the elements without gaps, in the elements' order.
TEST(JoinStringsTest, IsOneBlock) {
  Pieces<std::string> pieces;
  pieces.Add(Words(10'000, 0));
  pieces.AddWithoutData(10'000);
  pieces.Add(Words(10'000, 5));
  testing::CountingAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  ctx.executor = &SharedExecutor(7);
  const Result<Tensor> got = Join(pieces.joined(), ctx);
  ASSERT_THAT(got, testing::IsOk());
  EXPECT_EQ(allocator.live_bytes(), got->bytes());
  const std::span strings(got->As<String>(), pieces.size());
  const char* next = reinterpret_cast<const char*>(strings.data() + strings.size());
  for (const String& string : strings) {
    ASSERT_EQ(string.data, next);
    next += string.size;
  }
  EXPECT_EQ(next, got->As<char>() + got->bytes());
}

TEST(JoinStringsTest, NeedNoScratchIfTheyAreFew) {
  Pieces<std::string> pieces;
  pieces.Add(Words(10, 0));
  pieces.Add(Words(10, 5));
  testing::CountingAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  EXPECT_THAT(Join(pieces.joined(), ctx), testing::IsOk());
  EXPECT_EQ(allocator.requests(), 1) << "the result, and nothing else";
}

TEST(JoinStringsTest, ReportsTheFirstStringWithoutCharacters) {
  for (const size_t others : {size_t{0}, size_t{1000}, size_t{50'000}}) {
    std::vector<String> strings(others + 3, String{"abc", 3});
    strings[others + 1] = strings[others + 2] = {nullptr, 3};
    const Piece pieces[] = {{nullptr, 0}, {strings.data(), 2}};
    testing::ForEachSetting([&](const Context& ctx) {
      const Result<Tensor> got = Join({"values", 0, pieces, DType::kString, {std::ssize(strings) + 2}}, ctx);
      const std::string place = "[values: expected characters at place " + std::to_string(others + 3) + " of";
      EXPECT_THAT(got, StatusIs(Code::kInvalidArgument, HasSubstr(place)));
    });
  }
}

TEST(JoinTest, RefusesShapesThatCannotBe) {
  const float value = 0;
  const Piece pieces[] = {{&value, 0}};
  for (const DType dtype : {DType::kFloat32, DType::kString}) {
    const Result<Tensor> overflow = Join({"values", 0, pieces, dtype, {INT64_MAX, 4}}, {});
    EXPECT_THAT(overflow, StatusIs(Code::kInvalidArgument, HasSubstr("overflow")));
  }
  const Result<Tensor> too_large = Join({"values", 0, pieces, DType::kFloat32, {INT64_MAX}}, {});
  EXPECT_THAT(too_large, StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
}

template <class T>
void ExpectAllocationFailuresAreReported(const Pieces<T>& pieces) {
  testing::ExpectEveryAllocationFailureIsReported(
      {}, [&](const Context& ctx) { return WithOp("Join", [&] { return Join(pieces.joined(), ctx).status(); }); });
}

TEST(JoinTest, ReportsEveryAllocationThatFails) {
  Pieces<float> numbers;
  numbers.Add({1, 2, 3});
  ExpectAllocationFailuresAreReported(numbers);
  Pieces<std::string> strings;
  strings.Add(Words(10'000, 1));
  ExpectAllocationFailuresAreReported(strings);
}

// Counts how often it is asked, and runs tasks one after the other, cut for seven workers.
class AskedExecutor : public Executor {
 public:
  explicit AskedExecutor(int64_t tasks_until_stopped = INT64_MAX) : left_(tasks_until_stopped) {}
  int num_workers() const noexcept override {
    ++asked_;
    return 7;
  }
  void Run(int64_t tasks, TaskRef body) noexcept override {
    ++asked_;
    for (int64_t task = 0; task < tasks; ++task, --left_) body(task);
  }
  bool stopped() const noexcept override { return left_ <= 0; }
  int asked() const noexcept { return asked_; }

 private:
  mutable int asked_ = 0;
  int64_t left_;
};

template <class T>
int TimesAsked(const Pieces<T>& pieces) {
  AskedExecutor executor;
  Context ctx;
  ctx.executor = &executor;
  EXPECT_THAT(Join(pieces.joined(), ctx), testing::IsOk());
  return executor.asked();
}

// The default pool would be started by that.
TEST(JoinTest, DoesNotLookAtTheExecutorForASmallCopy) {
  Pieces<float> small;
  for (int i = 0; i < 10; ++i) small.Add(Values<float>(6000, i));  // 240,000 bytes
  EXPECT_EQ(TimesAsked(small), 0);
  Pieces<std::string> few_strings;
  few_strings.Add(Words(1000, 0));
  few_strings.Add({std::string(100'000, 'a')});
  EXPECT_EQ(TimesAsked(few_strings), 0);

  Pieces<float> large;
  for (int i = 0; i < 10; ++i) large.Add(Values<float>(7000, i));
  EXPECT_GT(TimesAsked(large), 0);
  Pieces<std::string> many_strings;
  many_strings.Add(Words(5000, 0));
  EXPECT_GT(TimesAsked(many_strings), 0);
  few_strings.Add({std::string(200'000, 'b')});
  EXPECT_GT(TimesAsked(few_strings), 0);
}

// A stopped phase leaves values out, and the next phase must not read them; sanitizers would report it.
template <class T>
void ExpectWholeOrCancelled(const Pieces<T>& pieces, bool parallel) {
  const Tensor expected = pieces.expected();
  for (int64_t tasks = 0;; ++tasks) {
    AskedExecutor executor(tasks);
    Context ctx;
    ctx.executor = &executor;
    const Result<Tensor> got = Join(pieces.joined(), ctx);
    if (got.ok()) {
      EXPECT_EQ(Difference(got->view(), expected.view()), "");
      EXPECT_GT(tasks, parallel ? 7 : 0);
      return;
    }
    ASSERT_THAT(got, StatusIs(Code::kCancelled, HasSubstr("stopped")));
  }
}

TEST(JoinTest, IsWholeOrCancelled) {
  Pieces<float> small, large;
  small.Add({1, 2});
  ExpectWholeOrCancelled(small, false);
  for (int i = 0; i < 100; ++i) large.Add(Values<float>(30'000, i));
  ExpectWholeOrCancelled(large, true);
  Pieces<std::string> strings;
  strings.Add({"a"});
  ExpectWholeOrCancelled(strings, false);
  for (int i = 0; i < 100; ++i) strings.Add(Words(1000, i));
  ExpectWholeOrCancelled(strings, true);
}

}  // namespace
}  // namespace raggrad::cpu
