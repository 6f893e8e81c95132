#include "raggrad/core/fork.h"

#include <pthread.h>

#include <atomic>

namespace raggrad {
namespace {
std::atomic<int> generation{0};
}  // namespace

int ForkGeneration() noexcept {
  static const int installed = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  static_cast<void>(installed);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace raggrad
