#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "raggrad/cuda/errors.cuh"
#include "raggrad/cuda/pinned_words.cuh"

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
    if (!idle_.empty()) {
      uint64_t* const block = idle_.back();
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
  void Give(uint64_t* block) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back(block);
  }

 private:
  std::mutex mutex_;
  std::vector<uint64_t*> idle_;
  size_t made_ = 0;
};

}  // namespace

PinnedBlock::~PinnedBlock() {
  if (words_ != nullptr) IdleBlocks::Instance().Give(words_);
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

}  // namespace raggrad::cuda
