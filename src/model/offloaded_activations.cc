#include "model/offloaded_activations.h"

#include <algorithm>

#include "base/error.h"
#include "base/sizes.h"

namespace longstride {
namespace {

const WaitSite kSaveAfterCompute{"activations/save-after-compute"};    // to host: it is computed
const WaitSite kReuseAfterSave{"activations/reuse-after-save"};        // computing: it has left
const WaitSite kFetchAfterCompute{"activations/fetch-after-compute"};  // from host: memory is free
const WaitSite kAccessAfterFetch{"activations/access-after-fetch"};    // computing: it has come

// A record holds at most two tensors: q and k, or an attention output and its log-sum-exp.
constexpr std::int64_t kMostPieces = 2;

constexpr const char* kNames[kRetainedKinds] = {"layer inputs",      "queries", "attention outputs",
                                                "residuals between", "gates",   "ups"};

Retention kind(int k) { return Retention{static_cast<Retained>(k)}; }

}  // namespace

ActivationSpread spread_activations(const ActivationSizes& sizes, std::int64_t chunk_tokens,
                                    const std::vector<Retention>& saved,
                                    const ActivationBudget& budget) {
  ActivationSpread spread;
  constexpr std::int64_t kAll = ActivationBudget::kAll;
  for (int k = 0; k < kRetainedKinds; ++k) {
    const std::int64_t records = std::ranges::count_if(saved,
                                                       [&](Retention r) { return r.has(kind(k)); }),
                       bytes = activation_bytes(sizes, chunk_tokens, kind(k));
    OffloadCapacity& capacity = spread.capacity[static_cast<std::size_t>(k)];
    const std::int64_t left = budget.host - spread.host_bytes;
    capacity.host_records =
        budget.host == kAll ? records : std::clamp<std::int64_t>(left / bytes, 0, records);
    capacity.disk_records = records - capacity.host_records;
    if (capacity.disk_records > 0) {
      // What is on its way to the disk takes host memory too.
      capacity.host_records = std::max<std::int64_t>(
          0, std::min(capacity.host_records, left / bytes - capacity.disk_buffers));
      capacity.disk_records = records - capacity.host_records;
      capacity.disk_directory = budget.disk_directory;
      spread.host_bytes += capacity.disk_buffers * bytes;
    }
    spread.host_bytes += capacity.host_records * bytes;
    spread.disk_bytes += capacity.disk_records * bytes;
  }
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  if (budget.disk != kAll && spread.disk_bytes > budget.disk)
    throw Error(fmt::format("activations that leave the device need {} of disk beside {} of host "
                            "memory, and {} are allowed",
                            text(spread.disk_bytes), text(spread.host_bytes), text(budget.disk)),
                "allow more host memory or disk, or recompute more activations");
  return spread;
}

OffloadedActivations::OffloadedActivations(Device& device, std::unique_ptr<Mover> mover,
                                           const ActivationSizes& sizes, std::int64_t layers,
                                           std::int64_t chunk_tokens,
                                           const std::vector<Retention>& saved,
                                           const ActivationCapacity& capacity)
    : mover_(std::move(mover)), sizes_(sizes), layers_(layers), chunk_tokens_(chunk_tokens) {
  for (int k = 0; k < kRetainedKinds; ++k) {
    std::vector<std::int64_t>& places = places_[static_cast<std::size_t>(k)];
    std::int64_t records = 0;
    for (const Retention r : saved) places.push_back(r.has(kind(k)) ? records++ : -1);
    const OffloadCapacity& room = capacity[static_cast<std::size_t>(k)];
    LS_CHECK(records == room.records(), "{} records of activations, room for {}", records,
             room.records());
    if (records == 0) continue;
    stores_[static_cast<std::size_t>(k)] = std::make_unique<OffloadStore>(
        device, mover_.get(),
        OffloadRecords{.bytes = activation_bytes(sizes, chunk_tokens, kind(k)),
                       .most_pieces = kMostPieces,
                       .what = kNames[k],
                       .what_on_host = kNames[k]},
        room);
  }
}

// After an error, work in flight on the lanes must end before the memory is freed.
OffloadedActivations::~OffloadedActivations() { finish_whatever_comes(*mover_); }

void OffloadedActivations::begin(const StepSchedule& schedule) {
  on_disk_.clear();
  ahead_ = 0;
  for (const auto& store : stores_)
    if (store && store->capacity().disk_records > 0) store->drop_read_ahead();
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks)
      for (std::size_t k = 0; k < stores_.size(); ++k) {
        if (!task.fetches.has(kind(static_cast<int>(k)))) continue;
        const auto at = static_cast<std::size_t>(task.chunk * layers_ + task.fetches_layer);
        const Record record{k, places_[k].at(at)};
        if (record.place >= stores_[k]->capacity().host_records) on_disk_.push_back(record);
      }
}

// As many of the next records as buffers allow.
void OffloadedActivations::read_ahead() {
  while (ahead_ < on_disk_.size() &&
         stores_[on_disk_[ahead_].kind]->read_ahead(on_disk_[ahead_].place))
    ++ahead_;
}

template <class F>
void OffloadedActivations::for_records(const Owner& owner, Retention which,
                                       const LayerActivations& tensors, const F& f) {
  for (int k = 0; k < kRetainedKinds; ++k) {
    if (!which.has(kind(k))) continue;
    const std::int64_t place = places_[static_cast<std::size_t>(k)].at(
        static_cast<std::size_t>(owner.chunk * layers_ + owner.layer));
    LS_CHECK(place >= 0, "chunk {} layer {}: {} are not saved", owner.chunk, owner.layer,
             kNames[k]);
    std::array<OffloadPiece, kMostPieces> pieces;
    std::size_t n = 0;
    std::int64_t offset = 0;
    const auto rooms = activation_rooms(sizes_, chunk_tokens_);
    std::size_t next = 0;
    for_activations(
        sizes_, owner.tokens,
        [&](Retained of, const char*, const auto& member, DType dtype, const Shape& shape) {
          const std::int64_t room = rooms[next++];
          if (!kind(k).has(of)) return;
          pieces.at(n++) = {offset, shape.elements() * size_of(dtype),
                            static_cast<std::byte*>(member(tensors).view().data())};
          offset += room;
        });
    f(*stores_[static_cast<std::size_t>(k)], place, std::span(pieces).first(n));
  }
}

void OffloadedActivations::computing_on(const LayerActivations& tensors, bool writes) {
  for_activations(sizes_, 1, [&](Retained, const char*, const auto& member, DType, const Shape&) {
    const View view = member(tensors).view();
    if (view.present())
      mover_->computing_on(static_cast<std::byte*>(view.data()), view.bytes(), writes);
  });
}

Fence OffloadedActivations::save(const Owner& owner, Retention which,
                                 const LayerActivations& tensors) {
  computing_on(tensors, true);
  mover_->wait(Lane::kToHost, mover_->fence(Lane::kCompute), kSaveAfterCompute);
  Fence last;
  for_records(owner, which, tensors,
              [&](OffloadStore& store, std::int64_t place, std::span<const OffloadPiece> pieces) {
                last = store.write(place, pieces);
              });
  return last;
}

void OffloadedActivations::wait_saved(Fence saved, const LayerActivations& tensors) {
  mover_->wait(Lane::kCompute, saved, kReuseAfterSave);
  computing_on(tensors, true);
}

Fence OffloadedActivations::fetch(const Owner& owner, Retention which,
                                  const LayerActivations& tensors) {
  computing_on(tensors, true);
  mover_->wait(Lane::kFromHost, mover_->fence(Lane::kCompute), kFetchAfterCompute);
  read_ahead();
  Fence last;
  for_records(owner, which, tensors,
              [&](OffloadStore& store, std::int64_t place, std::span<const OffloadPiece> pieces) {
                last = store.read(place, pieces);
              });
  return last;
}

void OffloadedActivations::wait_fetched(Fence fetched, const LayerActivations& tensors) {
  mover_->wait(Lane::kCompute, fetched, kAccessAfterFetch);
  computing_on(tensors, false);
}

void OffloadedActivations::finish() {
  mover_->finish();
  for (const auto& store : stores_)
    if (store) store->finish();
}

MovedBytes OffloadedActivations::moved() const {
  MovedBytes sum;
  for (const auto& store : stores_)
    if (store) sum += store->moved();
  return sum;
}

OffloadTimes OffloadedActivations::take_times() {
  DiskTimes now;
  for (const auto& store : stores_)
    if (store) now = now + store->disk_times();
  const OffloadTimes times{mover_->take_times(), now.busy_s - disk_taken_.busy_s,
                           now.waited_s - disk_taken_.waited_s};
  disk_taken_ = now;
  return times;
}

}  // namespace longstride
