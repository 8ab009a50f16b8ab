#include "cache/expert_cache.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/platform.h"
#include "cache/expert_cache_state.h"

namespace deltafin {
namespace {

constexpr auto kCancelPoll = std::chrono::milliseconds(20);  // a CancelToken cannot wake anybody
constexpr int64_t kMaxBatch = 1 << 20;
// Reads of one expert in one batch: the first, and one more after a drive hung, which goes to the copies.
constexpr uint8_t kMaxTries = 2;

}  // namespace

void ExpertCache::State::Want(int32_t position) {
  const int32_t number = index.Find(KeyOf(position));
  position_slot[static_cast<size_t>(position)] = number;
  position_tries[static_cast<size_t>(position)] = 0;
  if (number < 0) {
    ++counters.misses;
    pending.Push(position);
    return;
  }
  ++counters.hits;
  policy->Used(number, RowsOf(position));
  slot(number).position = position;
  if (slot(number).phase == ExpertSlot::Phase::kReady) arrived.Push(position);
  if (slot(number).prefetch == ExpertSlot::Prefetch::kWarm) to_raise.push_back(slot(number).tag);
}

void ExpertCache::State::WantMore() {
  while (wanted < experts.size() && (order == ExpertOrder::kArrival || wanted < delivered + Window()))
    Want(static_cast<int32_t>(wanted++));
}

// Half of the slots that guesses leave, so that each can be read once more into another one after a drive hung.
size_t ExpertCache::State::Window() const {
  const int64_t room = (arena.slots() - static_cast<int64_t>(most_guesses)) / 2;
  return static_cast<size_t>(std::clamp<int64_t>(room, 1, most_in_transit));
}

bool ExpertCache::State::NextIsReady() {
  if (order == ExpertOrder::kArrival) return !arrived.empty();
  const int32_t number = position_slot[delivered];
  return number >= 0 && slot(number).phase == ExpertSlot::Phase::kReady;
}

void ExpertCache::State::StartReads() {
  for (;;) {
    int32_t number = -1;
    {
      const std::lock_guard lock(mutex);
      if (!TakeSlotForNext(&number)) return;
    }
    Fetch(number, IoPriority::kDemand);
  }
}

void ExpertCache::State::Fetch(int32_t number, IoPriority priority) {
  // Two words, so that std::function keeps it inside itself.
  const auto done = [this, number](Result<ExpertWeights> result) { Fetched(number, std::move(result)); };
  static_assert(sizeof(done) <= 2 * sizeof(void*) && std::is_trivially_copyable_v<decltype(done)>);
  source.Fetch(slot(number).key, arena.slot(number).data(), priority, slot(number).tag, done);
}

bool ExpertCache::State::TakeSlotForNext(int32_t* number) {
  if (!open || error || pending.empty()) return false;
  *number = TakeSlot(in_transit < most_in_transit);
  if (*number < 0) return false;
  const int32_t position = pending.Pop();
  ++in_transit;
  position_slot[static_cast<size_t>(position)] = *number;
  ++position_tries[static_cast<size_t>(position)];
  ExpertSlot& taken = slot(*number);
  taken = {ExpertSlot::Phase::kReading, KeyOf(position), {}, tag, 0, position, ExpertSlot::Prefetch::kNo};
  index.Insert(taken.key, *number);
  policy->Inserted(*number, taken.key, RowsOf(position));
  ++reading;
  return true;
}

int32_t ExpertCache::State::TakeSlot(bool may_evict) {
  const int32_t unused = arena.Take();
  if (unused >= 0 || !may_evict) return unused;
  const int32_t victim = policy->Victim([this](int32_t number) {
    const ExpertSlot& candidate = slot(number);
    return candidate.phase == ExpertSlot::Phase::kReady && candidate.pins == 0 && candidate.position < 0 &&
           candidate.prefetch != ExpertSlot::Prefetch::kGuess;
  });
  if (victim >= 0) Evict(victim);
  return victim;
}

void ExpertCache::State::Evict(int32_t number) {
  index.Erase(slot(number).key);
  policy->Removed(number);
  slot(number).phase = ExpertSlot::Phase::kFree;
  --resident;
  ++counters.evictions;
  // A use after this shows: a scale byte of 255 is not a number.
  if constexpr (kIsDebug || kIsSanitized) std::memset(arena.slot(number).data(), 0xFF, arena.slot(number).size());
}

// On the I/O thread, or inside Fetch().
void ExpertCache::State::Fetched(int32_t number, Result<ExpertWeights> result) {
  std::unique_lock lock(mutex);
  ExpertSlot& filled = slot(number);
  if (filled.phase == ExpertSlot::Phase::kHung) {  // the second call: the drive has let go of the slot
    filled.phase = ExpertSlot::Phase::kFree;
    arena.Give(number);
    --hung;
  } else if (result) {
    --reading;
    filled.phase = ExpertSlot::Phase::kReady;
    filled.weights = *result;
    ++resident;
    CountRead(filled);
    if (filled.position >= 0) arrived.Push(filled.position);
  } else {
    --reading;
    FetchFailed(number, std::move(result.error()));
  }
  const bool pump = BeginPump();
  // Under the lock: after it the destructor may run, unless it has to wait for the pump.
  changed.notify_all();
  lock.unlock();
  if (pump) PumpWarm();
}

void ExpertCache::State::FetchFailed(int32_t number, Error failure) {
  ExpertSlot& failed = slot(number);
  const int32_t position = failed.position;
  const bool is_hung = failure.code() == ErrorCode::kDeadline;
  LoseSlot(number, is_hung);
  if (position < 0) return;
  position_slot[static_cast<size_t>(position)] = -1;
  if (position_tries[static_cast<size_t>(position)] > 0) --in_transit;
  // A guess, or an earlier batch that was abandoned, started this read; the open batch has yet to ask by itself.
  const bool not_ours = failed.tag != tag && position_tries[static_cast<size_t>(position)] == 0;
  const bool has_another_way =
      is_hung && source.HasCopy(failed.key) && position_tries[static_cast<size_t>(position)] < kMaxTries;
  if (not_ours || has_another_way) {
    pending.Push(position);
  } else if (!error) {
    error = std::move(failure);
  }
}

void ExpertCache::State::LoseSlot(int32_t number, bool is_hung) {
  ExpertSlot& lost = slot(number);
  index.Erase(lost.key);
  policy->Removed(number);
  if (lost.prefetch == ExpertSlot::Prefetch::kGuess) ForgetGuess(number);
  if (lost.prefetch == ExpertSlot::Prefetch::kUnwanted) --unwanted;
  if (lost.prefetch == ExpertSlot::Prefetch::kWarm) {
    --warm_reading;
    warm_next = warm.size();  // a drive that fails is for those to ask who need it
  }
  lost.prefetch = ExpertSlot::Prefetch::kNo;
  lost.position = -1;
  lost.phase = is_hung ? ExpertSlot::Phase::kHung : ExpertSlot::Phase::kFree;
  if (is_hung) {
    ++hung;
    ++counters.hung;
  } else {
    arena.Give(number);
  }
}

ExpertCache::Ready ExpertCache::State::Deliver(ExpertCache* cache) {
  const int32_t position = order == ExpertOrder::kArrival ? arrived.Pop() : static_cast<int32_t>(delivered);
  const int32_t number = position_slot[static_cast<size_t>(position)];
  slot(number).position = -1;
  ++slot(number).pins;
  if (position_tries[static_cast<size_t>(position)] > 0) --in_transit;
  if (++delivered == experts.size()) Close();
  return {ExpertPin(cache, number), position};
}

void ExpertCache::State::Release(int32_t number) {
  {
    const std::lock_guard lock(mutex);
    --slot(number).pins;
  }
  StartReads();
}

void ExpertCache::State::Close() {
  open = false;
  in_transit = 0;
  error.reset();
  pending.Clear();
  arrived.Clear();
}

uint64_t ExpertCache::SlotBytes(const ExpertSource& source) {
  return AlignUp(source.slot_bytes(), std::max<uint64_t>(4096, source.slot_alignment()));
}

Result<std::unique_ptr<ExpertCache>> ExpertCache::Create(ExpertSource& source, const ExpertCacheOptions& options,
                                                         std::unique_ptr<EvictionPolicy> policy, const Clock& clock) {
  DFIN_CHECK(policy != nullptr, "a cache has an eviction policy");
  if (options.max_batch < 1 || options.max_batch > kMaxBatch)
    return Fail(ErrorCode::kInvalidArgument, "expert cache: largest batch: expected 1 to ", kMaxBatch, ", got ",
                options.max_batch);
  if (source.slot_alignment() > AlignedBuffer::kAlignment)
    return Fail(ErrorCode::kInvalidArgument, "expert cache: slot alignment: expected at most ",
                AlignedBuffer::kAlignment, ", got ", source.slot_alignment());
  const int64_t most_ahead = std::max<int64_t>(options.slots - 2, 0);
  if (options.prefetch_slots < 0 || options.prefetch_slots > most_ahead)
    return Fail(ErrorCode::kInvalidArgument, "expert cache: slots for prefetched experts: expected 0 to ", most_ahead,
                ", got ", options.prefetch_slots);
  DFIN_TRY(SlotArena arena, SlotArena::Create(options.slots, SlotBytes(source)));
  return std::unique_ptr<ExpertCache>(
      new ExpertCache(std::make_unique<State>(source, std::move(arena), std::move(policy), options, clock)));
}

ExpertCache::ExpertCache(std::unique_ptr<State> state) : state_(std::move(state)) {}

ExpertCache::~ExpertCache() {
  Abandon();
  StopWarming();
  State& s = *state_;
  // Reads of earlier batches may still be on their way.
  for (const ExpertSlot& slot : s.slots) {
    std::unique_lock lock(s.mutex);
    DFIN_CHECK(slot.pins == 0, "a pin outlives its cache");
    const bool on_its_way = slot.phase == ExpertSlot::Phase::kReading;
    lock.unlock();
    if (on_its_way) s.source.Cancel(slot.tag);
  }
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return s.reading == 0 && s.hung == 0 && !s.pumping; });
}

void ExpertCache::Begin(int32_t layer, std::span<const int32_t> experts, std::span<const int32_t> rows,
                        ExpertOrder order) {
  State& s = *state_;
  const IoTag tag = s.source.NewTag();
  if (s.usage != nullptr) s.usage->Add(layer, experts);
  if (s.trace != nullptr && !experts.empty()) s.trace->Add(layer, experts, rows);
  s.to_raise.clear();
  s.to_cancel.clear();
  {
    const std::lock_guard lock(s.mutex);
    DFIN_CHECK(!s.open, "a batch begins after the one before it was finished or abandoned");
    DFIN_CHECK(experts.size() <= s.position_slot.size(), "a batch is larger than was promised");
    DFIN_CHECK(rows.empty() || rows.size() == experts.size(), "rows are of the experts");
    DFIN_CHECK(std::adjacent_find(experts.begin(), experts.end(), std::greater_equal<>()) == experts.end(),
               "experts of a batch ascend");
    s.open = !experts.empty();
    s.layer = layer;
    s.experts.assign(experts.begin(), experts.end());
    s.order = order;
    s.wanted = s.delivered = 0;
    s.tag = tag;
    s.rows.assign(rows.begin(), rows.end());
    s.policy->Began(layer, rows.empty() ? static_cast<int64_t>(experts.size())
                                        : std::accumulate(rows.begin(), rows.end(), int64_t{0}));
    s.WantMore();
    for (size_t later = s.wanted; later < experts.size(); ++later) {
      const int32_t number = s.index.Find(s.KeyOf(static_cast<int32_t>(later)));
      if (number >= 0) s.policy->Expected(number);
    }
    s.JudgeGuesses();
  }
  for (const IoTag raised : s.to_raise) s.source.Raise(raised, IoPriority::kDemand);
  s.to_raise.clear();
  for (const IoTag unwanted : s.to_cancel) s.source.Cancel(unwanted);
  s.StartReads();
}

Result<ExpertCache::Ready> ExpertCache::Next(CancelToken cancel) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  for (;;) {
    DFIN_CHECK(s.open, "Next() is called once for every expert of a batch");
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, "waiting for experts of layer ", s.layer, ": stopped");
    if (s.error) return Failure(*s.error);
    s.WantMore();
    if (!s.to_raise.empty()) {
      const IoTag raised = s.to_raise.back();
      s.to_raise.pop_back();
      lock.unlock();
      s.source.Raise(raised, IoPriority::kDemand);
      lock.lock();
      continue;
    }
    int32_t started = -1;
    if (s.TakeSlotForNext(&started)) {
      lock.unlock();
      s.Fetch(started, IoPriority::kDemand);
      lock.lock();
      continue;
    }
    if (s.NextIsReady()) return s.Deliver(this);
    if (s.reading == 0 && s.hung > 0)
      return Fail(
          ErrorCode::kDeadline, "waiting for experts of layer ", s.layer, ": all ", s.hung,
          " slots that are not in use wait for a drive that hangs: give --expert-cache more, or take the drive out");
    DFIN_CHECK(s.reading > 0, "every slot is pinned: a pin dies before the next call");
    const int64_t before = s.clock.NowNs();
    s.changed.wait_for(lock, kCancelPoll);
    s.counters.wait_seconds += SecondsBetween(before, s.clock.NowNs());
  }
}

void ExpertCache::Abandon() {
  State& s = *state_;
  bool pump = false;
  {
    const std::lock_guard lock(s.mutex);
    if (!s.open) return;
    for (ExpertSlot& slot : s.slots) slot.position = -1;
    s.Close();
    pump = s.BeginPump();
  }
  if (pump) s.PumpWarm();
  s.source.Cancel(s.tag);
  DropPrefetches();
}

bool ExpertCache::Keep(ExpertKey key) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const int32_t number = s.index.Find(key);
  if (number >= 0) s.policy->Expected(number);
  return number >= 0;
}

ExpertCacheCounters ExpertCache::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

int64_t ExpertCache::slots() const { return state_->arena.slots(); }
uint64_t ExpertCache::record_bytes() const { return state_->source.record_bytes(); }
int64_t ExpertCache::prefetch_slots() const { return static_cast<int64_t>(state_->most_guesses); }

int64_t ExpertCache::hung() const {
  const std::lock_guard lock(state_->mutex);
  return state_->hung;
}

int64_t ExpertCache::resident() const {
  const std::lock_guard lock(state_->mutex);
  return state_->resident;
}

ExpertPin::ExpertPin(ExpertPin&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), slot_(std::exchange(other.slot_, -1)) {}

ExpertPin& ExpertPin::operator=(ExpertPin&& other) noexcept {
  if (this != &other) {
    if (cache_ != nullptr) cache_->state_->Release(slot_);
    cache_ = std::exchange(other.cache_, nullptr);
    slot_ = std::exchange(other.slot_, -1);
  }
  return *this;
}

ExpertPin::~ExpertPin() {
  if (cache_ != nullptr) cache_->state_->Release(slot_);
}

const ExpertWeights& ExpertPin::weights() const {
  DFIN_CHECK(cache_ != nullptr, "the pin is empty");
  return cache_->state_->slot(slot_).weights;
}

ExpertKey ExpertPin::key() const {
  DFIN_CHECK(cache_ != nullptr, "the pin is empty");
  return cache_->state_->slot(slot_).key;
}

}  // namespace deltafin
