// Copies strings of operands into an output: counts the characters, makes one allocation for the strings and the
// characters behind them, and writes both.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"

namespace raggrad::cpu {

namespace strings_internal {
inline constexpr int64_t kGrain = 4096;  // strings that are worth a thread
inline constexpr int64_t kChunksPerWorker = 4;
}  // namespace strings_internal

// A sum that does not fit becomes the largest size, which no allocator grants.
inline size_t SaturatingAdd(size_t a, size_t b) noexcept {
  size_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<size_t>::max() : sum;
}

// Returns `before` plus the number of characters of the strings.
inline size_t CountCharacters(std::span<const String> strings, size_t before) noexcept {
  for (const String& string : strings) before = SaturatingAdd(before, string.size);
  return before;
}

// Writes copies of the strings to `to`, and their characters to `text`. Returns the end of the characters.
inline char* CopyStrings(std::span<const String> strings, String* to, char* text) noexcept {
  for (const auto& [data, size] : strings) {
    if (size > 0) std::memcpy(text, data, size);
    *to++ = {text, size};
    text += size;
  }
  return text;
}

inline bool HasNoData(const String& string) noexcept { return string.data == nullptr && string.size > 0; }

// INVALID_ARGUMENT for the first string of an operand that has a size but no characters.
inline Status CheckStrings(std::string_view op, std::string_view argument, std::span<const String> strings,
                           Executor& executor) noexcept {
  FirstError without_data;
  const Chunks chunks = SplitEvenly(executor, static_cast<int64_t>(strings.size()), strings_internal::kGrain);
  ForEachChunk(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
    const auto found = std::find_if(strings.begin() + begin, strings.begin() + end, HasNoData);
    if (found != strings.begin() + end) without_data.Report(found - strings.begin());
  });
  if (!without_data.found()) return {};
  const int64_t at = without_data.position();
  return InvalidArgument(op, "a string has no data [", argument, "[", at, "]: expected ",
                         strings[static_cast<size_t>(at)].size, " characters, got a null pointer]");
}

// Makes output `index`, a copy of the strings.
inline Result<Tensor> CopyStrings(const Context& ctx, int index, Shape shape,
                                  std::span<const String> strings) noexcept {
  Executor& executor = ExecutorOf(ctx);
  const Chunks chunks = SplitEvenly(executor, static_cast<int64_t>(strings.size()), strings_internal::kGrain,
                                    strings_internal::kChunksPerWorker);
  const auto part = [&](int64_t begin, int64_t end) {
    return strings.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  auto begins = Scratch<size_t>::Make(ctx, chunks.count);  // of the chunks' characters
  if (!begins.ok()) return begins.status();
  ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    (*begins)[chunk] = CountCharacters(part(begin, end), 0);
  });
  size_t total = 0;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const size_t count = std::exchange((*begins)[chunk], total);
    total = SaturatingAdd(total, count);
  }
  auto output = AllocateOutput(ctx, index, DType::kString, std::move(shape), total);
  if (!output.ok()) return output;
  String* const out = output->As<String>();
  ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    CopyStrings(part(begin, end), out + begin, reinterpret_cast<char*>(out + strings.size()) + (*begins)[chunk]);
  });
  return output;
}

}  // namespace raggrad::cpu
