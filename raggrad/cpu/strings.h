// Strings that an operator picked from its operands, copied into an output of their own.
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
inline constexpr int64_t kGrain = 4096;  // strings that pay for a thread
inline constexpr int64_t kChunksPerWorker = 4;

inline size_t SaturatingAdd(size_t a, size_t b) noexcept {
  size_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<size_t>::max() : sum;
}
}  // namespace strings_internal

// INVALID_ARGUMENT for the first string of an operand that has a size but no characters.
inline Status CheckStrings(std::string_view op, std::string_view argument, std::span<const String> strings,
                           Parallel& parallel) noexcept {
  FirstError without_data;
  const Chunks chunks = SplitEvenly(parallel, static_cast<int64_t>(strings.size()), strings_internal::kGrain);
  ForEachChunk(parallel, chunks, [&](int64_t, int64_t begin, int64_t end) {
    const auto bad = [](const String& string) { return string.data == nullptr && string.size > 0; };
    const auto found = std::find_if(strings.begin() + begin, strings.begin() + end, bad);
    if (found != strings.begin() + end) without_data.Report(found - strings.begin());
  });
  if (!without_data.found()) return {};
  const int64_t at = without_data.position();
  return InvalidArgument(op, "a string has no data [", argument, "[", at, "]: expected ",
                         strings[static_cast<size_t>(at)].size, " characters, got a null pointer]");
}

// Output `index`: the strings, and behind them a copy of all their characters, in one allocation. A number of
// characters that does not fit is taken for the largest one, which no allocator has.
inline Result<Tensor> CopyStrings(const Context& ctx, int index, Shape shape,
                                  std::span<const String> strings) noexcept {
  using strings_internal::SaturatingAdd;
  Parallel& parallel = ctx.executor();
  const Chunks chunks = SplitEvenly(parallel, static_cast<int64_t>(strings.size()), strings_internal::kGrain,
                                    strings_internal::kChunksPerWorker);
  auto begins = Scratch<size_t>::Make(ctx, chunks.count);  // of the chunks' characters
  if (!begins.ok()) return begins.status();
  ForEachChunk(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    size_t sum = 0;
    for (int64_t i = begin; i < end; ++i) sum = SaturatingAdd(sum, strings[static_cast<size_t>(i)].size);
    (*begins)[chunk] = sum;
  });
  size_t total = 0;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const size_t count = std::exchange((*begins)[chunk], total);
    total = SaturatingAdd(total, count);
  }
  auto output = AllocateOutput(ctx, index, DType::kString, std::move(shape), total);
  if (!output.ok()) return output;
  String* const out = output->As<String>();
  ForEachChunk(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    char* text = reinterpret_cast<char*>(out + strings.size()) + (*begins)[chunk];
    for (int64_t i = begin; i < end; ++i) {
      const auto& [data, size] = strings[static_cast<size_t>(i)];
      if (size > 0) std::memcpy(text, data, size);
      out[i] = {text, size};
      text += size;
    }
  });
  return output;
}

}  // namespace raggrad::cpu
