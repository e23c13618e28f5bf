// A map of limited size. The caller makes room in a full one by dropping the least recently used.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

#include "base/error.h"

namespace longstride {

// Values keep their addresses until they are dropped. Not thread-safe.
template <class Key, class Value>
class RecentMap {
 public:
  explicit RecentMap(std::size_t most) : most_(most) { LS_CHECK(most > 0, "a map of nothing"); }

  std::size_t size() const { return places_.size(); }
  bool full() const { return size() >= most_; }
  // Null if the key is not there; a found entry counts as used.
  Value* find(const Key& key) {
    const auto place = places_.find(key);
    if (place == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, place->second);
    return &place->second->second;
  }
  // Requires that the key is not there yet and that the map is not full.
  Value& add(const Key& key, Value value) {
    LS_CHECK(!full() && !places_.contains(key), "{} of {} entries", size(), most_);
    entries_.emplace_front(key, std::move(value));
    places_.emplace(key, entries_.begin());
    return entries_.front().second;
  }
  void drop_oldest() {
    places_.erase(entries_.back().first);
    entries_.pop_back();
  }
  void clear() {
    places_.clear();
    entries_.clear();
  }

 private:
  using Entries = std::list<std::pair<Key, Value>>;  // most recently used first
  std::size_t most_;
  Entries entries_;
  std::map<Key, typename Entries::iterator> places_;
};

}  // namespace longstride
