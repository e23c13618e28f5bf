// Attention over pages that come to the device part by part.
#pragma once

#include "pages/kv_store.h"

namespace longstride {

// A task and the store that its pages come from; both null where all of them are there already.
struct PageSource {
  KvStore* store = nullptr;
  const Task* task = nullptr;
};

// Calls attend(KeyPart) for each part of what the task's queries see, with its pages on the device.
template <class F>
void for_parts(const PageSource& from, const F& attend) {
  if (from.store == nullptr || !from.store->comes_in_parts()) return attend(KeyPart{});
  const std::vector<KeyPart>& parts = from.task->parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    from.store->enter_part(*from.task, i);
    attend(parts.size() == 1 ? KeyPart{} : parts[i]);
  }
}

}  // namespace longstride
