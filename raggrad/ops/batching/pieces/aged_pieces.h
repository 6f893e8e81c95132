// AgedPieces: pieces that no call has asked for yet, by key and by age. Internal to the family; the lock of their
// resource guards them.
#pragma once

#include <cstdint>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>

#include "raggrad/ops/batching/waiting/deadline_timer.h"

namespace raggrad::batching {

template <class Piece>
class AgedPieces {
 public:
  struct Entry {
    int64_t key;
    Piece piece;
    int64_t bytes;
    Clock::time_point since = {};
  };
  // Entries move between lists by their nodes: taking one needs no memory, and whoever took it decides when its piece
  // is destroyed.
  using Entries = std::list<Entry>;

  bool empty() const noexcept { return by_age_.empty(); }
  const Entry& oldest() const noexcept { return by_age_.front(); }

  const Entry* Find(int64_t key) const noexcept {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : &*found->second;
  }

  // Moves all entries in; their keys must be new. If it throws std::bad_alloc, none was moved.
  void Store(Entries& entries) {
    auto next = entries.begin();
    try {
      for (; next != entries.end(); ++next) by_key_.emplace(next->key, next);
    } catch (...) {
      for (auto stored = entries.begin(); stored != next; ++stored) by_key_.erase(stored->key);
      throw;
    }
    const Clock::time_point now = Clock::now();
    for (Entry& entry : entries) entry.since = now;
    by_age_.splice(by_age_.end(), entries);
  }

  // Takes the entry of a key, which must be there.
  Entries Take(int64_t key) noexcept {
    const auto found = by_key_.find(key);
    Entries taken;
    taken.splice(taken.end(), by_age_, found->second);
    by_key_.erase(found);
    return taken;
  }

  // Takes the entries that came at this time or before.
  Entries TakeUntil(Clock::time_point latest) noexcept {
    Entries taken;
    while (!empty() && oldest().since <= latest) taken.splice(taken.end(), Take(oldest().key));
    return taken;
  }

  Entries TakeAll() noexcept {
    by_key_.clear();
    return std::exchange(by_age_, {});
  }

 private:
  Entries by_age_;  // oldest first
  std::unordered_map<int64_t, typename Entries::iterator> by_key_;
};

}  // namespace raggrad::batching
