// Turns the bytes that libFuzzer mutates into choices, numbers and arrays. When the bytes run out every choice is the
// first one and every number 0, so short inputs are valid and simple.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "raggrad/core/dtype.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/testing/generators.h"

namespace raggrad::fuzz {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) noexcept : rest_(data, size), large_(IsLarge(rest_)) {}

  uint8_t Byte() noexcept {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  // In [0, limit); limit is at most 65536.
  int64_t Below(int64_t limit) noexcept {
    int64_t number = Byte();
    if (limit > 256) number |= int64_t{Byte()} << 8;
    return number % limit;
  }
  // True for about one byte in n, n <= 256: for what should be rare.
  bool OneIn(int n) noexcept { return Byte() >= 256 - 256 / n; }

  // A number of things: below `small`, but in a few inputs up to `large`, so that work is split between threads.
  bool large() const noexcept { return large_; }
  int64_t Count(int64_t small, int64_t large) noexcept { return large_ ? large * (1 + Below(64)) / 64 : Below(small); }

  // A generator to make more numbers than the input has bytes for.
  testing::Generator Random() noexcept { return testing::Generator(static_cast<uint64_t>(Below(65536))); }

  // Elements of any kind: the input's own bytes, hostile values or ordinary ones.
  template <class T>
  std::vector<T> Values(int64_t count) {
    switch (Below(3)) {
      case 0:
        return Raw<T>(count);
      case 1:
        return Random().HostileValues<T>(count);
      default:
        return Random().Values<T>(count);
    }
  }

  // Ids of [0, limit), skewed or ascending or not; sometimes one of them is out of range.
  template <class I>
  std::vector<I> Ids(int64_t count, int64_t limit) {
    std::vector<I> ids = IdsInRange<I>(count, std::clamp<int64_t>(limit, 1, std::numeric_limits<I>::max()));
    if (!ids.empty() && OneIn(16)) {
      const int64_t wrong[] = {-1, limit, limit + 1, std::numeric_limits<I>::min(), std::numeric_limits<I>::max()};
      ids[static_cast<size_t>(Below(65536)) % ids.size()] = static_cast<I>(wrong[Below(5)]);
    }
    return ids;
  }

  std::vector<std::string> Strings(int64_t count) { return Random().Strings(count, Below(20)); }

  // One of the list; rarely any value at all, most of which are dtypes of other operators.
  template <class... Ts>
  DType DTypeOf(TypeList<Ts...>) noexcept {
    constexpr DType kList[] = {kDTypeOf<Ts>...};
    return OneIn(32) ? static_cast<DType>(Below(40)) : kList[Below(sizeof...(Ts))];
  }

 private:
  // Uses a checksum of all bytes rather than one of them: the loops of large inputs look new to the fuzzer, and if
  // inputs derived from them were large too, it would soon try nothing else.
  static bool IsLarge(std::span<const uint8_t> input) noexcept {
    uint32_t checksum = 2166136261;
    for (const uint8_t byte : input) checksum = (checksum ^ byte) * 16777619;
    return checksum >> 25 == 0;
  }

  template <class T>
  std::vector<T> Raw(int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    if constexpr (std::is_same_v<T, bool>) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = Byte() % 2 != 0;
    } else {
      const size_t bytes = std::min(rest_.size(), values.size() * sizeof(T));
      if (bytes > 0) std::memcpy(values.data(), rest_.data(), bytes);
      rest_ = rest_.subspan(bytes);
    }
    return values;
  }

  template <class I>
  std::vector<I> IdsInRange(int64_t count, int64_t limit) {
    std::vector<I> ids;
    switch (Below(4)) {
      case 0:
        for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<I>(Byte() % limit));
        return ids;
      case 1:
        return Random().UniformIds<I>(count, limit);
      case 2:
        return Random().ZipfIds<I>(count, limit);
      default:  // ascending, in one piece or in the pieces that threads get
        ids = Random().UniformIds<I>(count, limit);
        const cpu::Chunks pieces{count, 1 + Below(3)};
        for (int64_t i = 0; i < pieces.count; ++i)
          std::sort(ids.begin() + pieces.begin(i), ids.begin() + pieces.end(i));
        return ids;
    }
  }

  std::span<const uint8_t> rest_;
  const bool large_;
};

}  // namespace raggrad::fuzz
