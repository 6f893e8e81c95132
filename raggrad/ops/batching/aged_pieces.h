// Pieces that nobody has asked for yet: by key, and in the order of their age. Internal to the family; its resource's
// lock guards it.
#pragma once

#include <cstdint>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>

#include "raggrad/ops/batching/deadline_timer.h"

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
  // Entries come and go in the nodes of a list: leaving costs no memory, and whoever took an entry says when the piece
  // is destroyed.
  using Entries = std::list<Entry>;

  bool empty() const noexcept { return by_age_.empty(); }
  const Entry& oldest() const noexcept { return by_age_.front(); }

  const Entry* Find(int64_t key) const noexcept {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : &*found->second;
  }

  // Takes all entries, whose keys are new; none if that throws std::bad_alloc.
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

  // The entry of a key that is there.
  Entries Take(int64_t key) noexcept {
    const auto found = by_key_.find(key);
    Entries taken;
    taken.splice(taken.end(), by_age_, found->second);
    by_key_.erase(found);
    return taken;
  }

  // The entries that are not younger than this.
  Entries TakeUntil(Clock::time_point youngest) noexcept {
    Entries taken;
    while (!empty() && oldest().since <= youngest) taken.splice(taken.end(), Take(oldest().key));
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
