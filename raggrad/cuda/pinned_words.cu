#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "raggrad/cuda/current_device.cuh"
#include "raggrad/cuda/errors.cuh"
#include "raggrad/cuda/pinned_words.cuh"
#include "raggrad/cuda/tuning.h"

namespace raggrad::cuda {
namespace {

// Blocks that nobody has now. They are reused and never freed, because freeing pinned memory waits for the whole GPU.
// Each has 128 bytes, and there are as many as were ever in use at once: about one for each thread.
class IdleBlocks {
 public:
  static IdleBlocks& Instance() {
    static auto& blocks = *new IdleBlocks;
    return blocks;
  }

  // Null if there is no memory.
  uint64_t* Take() noexcept {
    const std::lock_guard lock(mutex_);
    for (auto idle = idle_.rbegin(); idle != idle_.rend(); ++idle) {
      if (idle->last_word != nullptr && !HasToken(*idle->last_word, idle->last_token)) continue;
      uint64_t* const block = idle->words;
      std::swap(*idle, idle_.back());
      idle_.pop_back();
      return block;
    }
    try {
      idle_.reserve(made_ + 1);  // Give() must not fail
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    uint64_t* block = nullptr;
    const cudaError_t error = cudaMallocHost(&block, kWords * sizeof(uint64_t));
    Ignore(error);
    if (error != cudaSuccess) return nullptr;
    ++made_;
    return block;
  }
  // A block whose words a kernel may still write, until it writes that token.
  void Give(uint64_t* block, const uint64_t* last_word, uint64_t last_token) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back({block, last_word, last_token});
  }

 private:
  struct Idle {
    uint64_t* words;
    const uint64_t* last_word;  // null: no kernel writes the words
    uint64_t last_token;
  };
  std::mutex mutex_;
  std::vector<Idle> idle_;
  size_t made_ = 0;
};

}  // namespace

PinnedBlock::~PinnedBlock() {
  if (words_ != nullptr) IdleBlocks::Instance().Give(words_, last_word_, last_token_);
}

uint64_t* PinnedBlock::words() noexcept {
  if (words_ == nullptr) {
    words_ = IdleBlocks::Instance().Take();
    if (words_ != nullptr) std::fill_n(words_, kWords, uint64_t{0});
  }
  return words_;
}

uint64_t* PinnedWords() noexcept {
  thread_local PinnedBlock block;
  return block.words();
}

uint64_t NewToken() noexcept {
  static std::atomic<uint64_t> tokens = 0;
  return ++tokens;
}

bool HasTokenWithin(const uint64_t& word, uint64_t token, std::chrono::microseconds time) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + time;
  do {
    if (HasToken(word, token)) return true;
  } while (Clock::now() < end);
  return false;
}

Status CheckReported(const uint64_t& word, uint64_t token) noexcept {
  return HasToken(word, token) ? Status() : Status(Code::kInternal, "CUDA: a kernel reported nothing");
}

Status AwaitToken(const uint64_t& word, uint64_t token, int device) noexcept {
  if (HasTokenWithin(word, token, std::chrono::microseconds(kTuning.await_max_microseconds))) return {};
  const CurrentDevice current(device);
  if (Status s = ToStatus(cudaDeviceSynchronize(), "a kernel failed"); !s.ok()) return s;
  return CheckReported(word, token);
}

}  // namespace raggrad::cuda
